"""What became of packets: latencies of runs, of flows, of requests, of the hops of a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.evaluation.clocks import clocks_text
from tailtap.analysis.evaluation.transactions import KINDS
from tailtap.analysis.evaluation.values import DEFAULT, KEPT_LOSSES, label
from tailtap.analysis.runs.text import count_text, percent_text, time_text
from tailtap.base.units import format_count, format_share, format_time
from tailtap.records.causes import LateFlow
from tailtap.records.evaluation import (
    Change,
    FlowRecord,
    HopRecord,
    Percentile,
    Side,
)
from tailtap.records.experiment import FlowsRow, RunRow
from tailtap.show.sections import (
    COUNT,
    INTERVAL,
    THOUSANDTHS,
    TIME,
    Cell,
    Column,
    Mark,
    Row,
    Section,
    Shown,
    Table,
    row,
    table,
)

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.model import Evaluation
    from tailtap.analysis.evaluation.transactions import Kind, Transactions

FLOWS = 20
"""So many flows are in tables; the JSON has all."""
OF_FLOWS, OF_HOPS = (0.5, 0.99), (0.5, 0.99, 0.999)
"""The percentiles of flows, and of hops."""


def percentile_cell(found: Percentile, without_interval: str = "") -> Cell:
    """A percentile with its interval, or what is said where there is none."""
    above = f"{count_text(found.above)} packets above"
    if not found.supported:
        hint = f"unsupported: only {above}; one more slow packet would change it"
        return Cell(found.value, "unsupported", hint)
    hint = f"{percent_text(found.p)}: {above}{without_interval}"
    if found.low is not None and found.high is not None:
        hint = f"{percent_text(found.p)}: {above}; 95 % confidence {time_text(found.low)} to "
        hint += time_text(found.high)
    return Cell(found.value, "", hint)


def counts_table(found: Evaluation) -> Table:
    """What became of packets: all counts but those that are 0, of which few are shown."""
    rows = []
    for name, count in msgspec.structs.asdict(found.counts).items():
        if count or name in ("ingress", "egress", "matched", "lost"):
            share = format_share(found.loss or 0.0) if name == "lost" and count else ""
            if name == "lost" and count > found.lost_at_least:
                share = f"at most {share}"
            rows.append(row(f" {name.replace('_', ' ')}", count, share))
    return table("packets", (Column(), Column("", COUNT), Column()), rows)


def percentiles_table(percentiles: Sequence[Percentile], maximum: int | None) -> Table:
    """The percentiles of a run, with their intervals."""
    columns = (
        Column("percentile"),
        Column("latency", TIME),
        Column("95 % confidence", right=True),
        Column("packets above", COUNT),
    )
    rows = [
        row(
            label(one.p),
            percentile_cell(one),
            "unknown"
            if one.low is None or one.high is None
            else f"{time_text(one.low)} to {time_text(one.high)}",
            one.above,
        )
        for one in percentiles
    ]
    ends = [] if maximum is None else [row("max", maximum, "", 0)]
    return table("latency", columns, [*rows, *ends])


def latency_table(found: Evaluation, ps: Sequence[float], title: str) -> Table:
    """Minimum, percentiles, maximum and mean of an evaluation."""
    within_ns = found.within_ns
    columns = (
        Column("", right=True),
        Column("value", TIME),
        Column("95 % interval", INTERVAL),
        Column("packets above", COUNT),
    )

    def of(name: str, value: int) -> Row:
        return row(name, value, (value - within_ns, value + within_ns) if within_ns else "")

    rows = [
        row(
            label(one.p),
            percentile_cell(one),
            (one.low, one.high),
            one.above,
            look="" if one.supported else "unsupported",
        )
        for one in found.percentiles(ps)
    ]
    ends = of("max", found.max), of("mean", round(found.mean))
    within = f", {found.within.text}" if within_ns else ""
    return table(f"{title}{within}", columns, (of("min", found.min), *rows, *ends))


def evaluation_parts(found: Evaluation, ps: Sequence[float] = DEFAULT) -> Iterator[Shown]:
    """What packets were matched by, what became of them, and their latencies."""
    for name, side in zip(("before", "behind"), found.inputs.both, strict=True):
        if text := _side_text(side):
            yield f"{name}: {text}"
    reason = f": {found.key_reason}" if found.key_reason else ""
    after = f", behind the device by {found.key_after}" if found.key_after else ""
    yield f"matched by {found.key}{after}{reason}"
    for name, side in zip(("before", "after"), found.inputs.both, strict=True):
        if side.trailer is not None:
            yield f"stamps {name} the device: those of a switch's trailers, {side.trailer}"
    if found.device is not None and found.device.changes:
        yield f"the device changed, in the first {found.device.looked_at:,} packets:"
        for change in found.device.changes:
            yield f" {change_text(change, found.device.looked_at)}"
    if found.clocks is not None:
        yield clocks_text(found.clocks)
    yield counts_table(found)
    yield latency_table(found, ps, "latency")
    for pattern in found.loss_patterns or ():
        yield f"lost: {pattern.text}"
    yield flows_table(found.flows or ())


def change_text(change: Change, looked_at: int) -> str:
    """What was changed in packets, as a line."""
    how = f"{change.before} to {change.after}"
    if not change.before:
        how = f"{change.after} added"
    elif not change.after:
        how = f"{change.before} removed"
    others = format_count(change.ways - 1, "other way")
    more = "" if change.ways == 1 else f", and in {others}"
    where = "" if change.packets == looked_at else f" ({format_count(change.packets, 'packet')})"
    return f"{change.what}: {how}{more}{where}"


def _side_text(side: Side) -> str:
    """What was taken of the files of a side, where that is not all of one file."""
    parts = [side.path]
    if side.files:
        parts.append(f"{len(side.files)} files")
    if side.chosen is not None:
        parts.append(side.chosen)
    if side.copies:
        parts.append(f"without {side.copies:,} copies")
    return ", ".join(parts) if len(parts) > 1 else ""


def lost_table(found: Evaluation, n: int) -> Table:
    """The first `n` lost packets."""
    lost, kept = found.counts.lost, len(found.columns("losses")[-1])
    losses = found.losses(n)
    more = len(losses) < kept or KEPT_LOSSES <= kept < lost
    columns = (
        Column("time in s", right=True),
        Column("position", COUNT),
        Column("bytes", COUNT),
        Column("lost in a row", COUNT),
        Column("flow", spare=1),  # a key mostly says the flow as well
        Column("key"),
    )
    begin_ns = found.inputs.ingress.first_ns
    rows = (
        row(f"{(one.ingress_ns - begin_ns) / 1e9:.9f}", one.position, one.length, one.burst,
            one.flow, one.key)
        for one in losses
    )  # fmt: skip
    title = f"lost packets, the first {len(losses):,}" if more else "lost packets"
    return table(title, columns, rows)


def transactions_table(kinds: Sequence[Kind]) -> Table:
    """Requests and their answers, a row for each kind."""
    columns = (
        Column(""),
        Column("requests", COUNT),
        Column("unanswered", COUNT),
        *(Column(label(p), TIME) for p in OF_HOPS),
        Column("max", TIME),
    )
    rows = []
    for kind in kinds:
        waits: list[object] = [None] * (len(OF_HOPS) + 1)
        if (found := kind.evaluation) is not None:
            waits = [*(one.value for one in found.percentiles(OF_HOPS)), found.max]
        rows.append(row(f" {kind.name}", kind.counts.requests, kind.counts.unanswered, *waits))
    return table("transactions", columns, rows)


ALWAYS = ("requests", "answered", "unanswered")
"""Counts that are shown also where they are 0."""


def transactions_parts(found: Transactions, ps: Sequence[float] = DEFAULT) -> Iterator[Shown]:
    """The kinds of requests in one table, then each with its counts and waits."""
    yield f"requests and answers{f': {found.reason}' if found.reason else ''}"
    yield transactions_table(found.kinds)
    for kind in found.kinds:
        counts = msgspec.structs.asdict(kind.counts).items()
        shown = (
            row(f" {name.replace('_', ' ')}", count)
            for name, count in counts
            if count or name in ALWAYS
        )
        yield table(f"{kind.name}: {KINDS[kind.kind]}", (Column(), Column("", COUNT)), shown)
        if kind.evaluation is not None:
            yield latency_table(kind.evaluation, ps, f"{kind.name}: wait")


def runs_table(runs: Sequence[RunRow], ps: Sequence[float]) -> Table:
    """The tail of every run; a narrow terminal has the worst of it that any run supports."""
    found = (one.evaluation.latency_ns.percentiles for one in runs if one.evaluation is not None)
    supported = {one.p for percentiles in found for one in percentiles if one.supported}
    spare = (len(ps) - at if p in supported else len(ps) + 2 + at for at, p in enumerate(ps))
    columns = (
        Column("run", wrap=16),
        Column("packets", COUNT, spare=len(ps) + 1),
        *(Column(label(p), TIME, spare=one) for p, one in zip(ps, spare, strict=True)),
        Column("max", TIME),
        Column("lost", COUNT),
        Column("warnings", right=True, wrap=8),
    )
    return table("runs", columns, (_run(one, ps) for one in runs))


def _run(run: RunRow, ps: Sequence[float]) -> Row:
    if (evaluation := run.evaluation) is None:
        return row(run.slug, Cell(run.status, "alarm"), *[None] * (len(ps) + 3))
    found = {one.p: one for one in evaluation.latency_ns.percentiles}
    warnings = len(run.warnings) + len(evaluation.warnings)
    mark = Cell(str(warnings) if warnings else "")
    if run.valid is False:
        mark = Cell(f"{warnings}, invalid", "alarm")
    return row(
        run.slug,
        evaluation.counts.matched,
        *(percentile_cell(found[p]) for p in ps),
        Cell(evaluation.latency_ns.max, "max"),
        evaluation.counts.lost,
        mark,
    )


def flow_columns(first: str, *, late: bool) -> Sequence[Column]:
    """Columns for `flow_rows`; `late` is whether late packets of some flow were explained."""
    times = [Column(label(p), TIME) for p in OF_FLOWS]
    counts = Column("packets", COUNT), Column("lost", COUNT, alarms=True)
    columns = Column(first, spare=1, wrap=20), *counts, *times, Column("max", TIME)
    return (*columns, Column("late", COUNT), Column("causes", wrap=24)) if late else columns


def flow_rows(
    flows: Sequence[FlowRecord],
    late: Sequence[LateFlow] = (),
    name: str = "",
    mark: Mark | None = None,
) -> list[Row]:
    """The first flows of a run that has a `name`: those with most `late` packets, then others."""
    explained = {flow.flow: flow for flow in late}
    whole = {flow.flow: flow for flow in flows}
    rows = []
    for flow in list(dict.fromkeys((*explained, *whole)))[:FLOWS]:
        cells: list[object] = [None] * (3 + len(OF_FLOWS))
        if (one := whole.get(flow)) is not None:
            cells[:2] = one.packets, one.lost
            if (latency := one.latency_ns) is not None:
                cells[2:] = *map(percentile_cell, latency.percentiles), Cell(latency.max, "max")
        if (why := explained.get(flow)) is not None:
            cells[-1] = Cell(why.worst_ns, "max")
            causes = (
                f"{cause.packets:,} {Named(cause.cause, cause.detail)}" for cause in why.causes
            )
            cells += [why.late, ", ".join(causes)]
        called = ": ".join(part for part in (name, flow or "no frames") if part)
        rows.append(row(called, *cells, mark=mark))
    return rows


def flows_table(flows: Sequence[FlowRecord], late: Sequence[LateFlow] = ()) -> Table:
    """The first flows of an evaluation, and how many there are."""
    rows, total = flow_rows(flows, late), max(len(flows), len(late))
    more = f", the first {len(rows):,} of {total:,}" if len(rows) < total else ""
    return table(f"flows{more}", flow_columns("flow", late=bool(late)), rows)


def together_table(flows: Sequence[FlowsRow], first: str, names: Mapping[str, str]) -> Table:
    """Flows that were measured at the same time, a row for each measurement.

    `names` are those of measurements by their first runs.
    """
    columns = (
        Column(first, wrap=14),
        Column("flows", COUNT, "How many flows were measured at the same time"),
        Column("most lost", right=True, wrap=8,
               hint="The flow that lost the largest share of its packets"),
        Column("fairness of delivery", THOUSANDTHS,
               "Jain's index of the shares of packets that arrived: 1 when all get the same"),
        Column("slowest", right=True, wrap=12, hint="The flow with the highest latency at the "
               "highest percentile that all support"),
        Column("fairness of latency", THOUSANDTHS,
               "Jain's index of the latencies at that percentile"),
    )  # fmt: skip
    rows = []
    for one in flows:
        lost, slowest, p = one.lossiest, one.slowest, one.percentile
        latency: tuple[object, object] = (
            Cell(hint="the flows support no percentile in common"), None
        )  # fmt: skip
        if slowest is not None and p is not None:
            value = f"{label(p)} {format_time(slowest.latency_ns)}"
            latency = (f"{slowest.flow}: {value}", one.latency_fairness)
        rows.append(
            row(
                names.get(one.run, one.run) + ("" if one.valid else " (invalid)"),
                len(one.flows),
                Cell(f"{lost.flow}: {format_share(lost.lost)}", "alarm")
                if lost.lost
                else Cell("none", "zero"),
                one.delivery_fairness,
                *latency,
            )
        )
    return table("flows measured together", columns, rows)


def hop_section(
    hops: Sequence[HopRecord],
    title: str,
    marks: Sequence[Mark | None] = (),
    mark: Mark | None = None,
) -> Section:
    """A line hop by hop; in figures, hops have the colours `marks`, and the run has `mark`."""
    known = [one.p for one in hops[0].latency_ns.percentiles if one.p in OF_HOPS]
    columns = (
        Column("hop", wrap=12),
        Column("packets", COUNT, "Packets that came into the node and left it", spare=1),
        Column("lost", COUNT, "Packets that came into the node and did not leave it", alarms=True),
        *(Column(label(p), TIME) for p in known),
        Column("max", TIME, "The longest that a packet took for the hop"),
        Column("slowest of the worst", COUNT,
               "Of how many of the worst packets it took the longest part"),
    )  # fmt: skip
    names = [hop_name(one) for one in hops]
    slowest = max(one.slowest_of_worst for one in hops)
    rows = [
        row(
            name,
            one.counts.matched,
            one.counts.lost,
            *(percentile_cell(p) for p in one.latency_ns.percentiles if p.p in known),
            Cell(one.latency_ns.max, "max"),
            one.slowest_of_worst,
            look="worst" if one.slowest_of_worst == slowest > 0 else "",
            mark=mark,
        )
        for one, name, mark in zip(hops, names, marks or [None] * len(hops), strict=True)
    ]
    return Section(
        title, [_slowest(hops, names)], [table(f"hops of {title}", columns, rows)], mark=mark
    )


def hop_name(hop: HopRecord) -> str:
    """What a hop is called."""
    return hop.node if hop.part == "node" else f"{hop.node} {hop.part}"


def _slowest(hops: Sequence[HopRecord], names: Sequence[str]) -> str:
    """Which hop made the worst packets, and which one lost packets."""
    counts = [one.slowest_of_worst for one in hops]
    said = "No packet was seen at all taps."
    if known := sum(counts):
        most = counts.index(max(counts))
        said = (
            f"{names[most]} took the longest part of {counts[most]:,} of the "
            f"{format_count(known, 'worst packet')}."
        )
    losing = [f"{name} {one.counts.lost:,}" for one, name in zip(hops, names, strict=True)
              if one.counts.lost]  # fmt: skip
    return f"{said} Lost: {', '.join(losing)}." if losing else f"{said} No node lost a packet."
