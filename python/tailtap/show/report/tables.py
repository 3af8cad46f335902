"""The tables of the page about all runs; the template only lays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailtap.analysis.evaluation import Percentile
from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.evaluation.values import label as percentile_label
from tailtap.analysis.runs.flows import VARIABLES, stored, together
from tailtap.analysis.runs.groups import (
    Configuration,
    Member,
    configuration_label,
    floor_of,
    grouped,
    listed,
)
from tailtap.analysis.runs.run import Experiment, Origin, Run
from tailtap.analysis.runs.text import count_text, share_text, time_text
from tailtap.records.causes import LateFlow
from tailtap.records.evaluation import Counts
from tailtap.records.record import as_json, meanings
from tailtap.records.warnings import FEW, NOTES, by_kind
from tailtap.show.report.audit import topology
from tailtap.show.report.loss import LossCurve, Point, loss_curves, lossless, rate_curves
from tailtap.show.sections import (
    COUNT,
    DASH,
    RATE,
    SHARE,
    TIME,
    Cell,
    Column,
    Mark,
    Part,
    Row,
    Table,
    row,
    table,
)
from tailtap.show.sections.latency import (
    flow_columns,
    flow_rows,
    percentile_cell,
    together_table,
)

UNDISTURBED = "undisturbed"
COUNTS = {
    "ingress": "before",
    "egress": "after",
    "matched": "matched",
    "matched_in_order": "by order",
    "merged_ingress": "merged",
    "parts_egress": "pieces",
    "lost": "lost",
    "outside_ingress": "outside before",
    "not_forwarded": "not forwarded",
    "to_device": "to the device",
    "unmatched_egress": "only after",
    "outside_egress": "outside after",
    "duplicate_ingress": "dup. before",
    "duplicate_egress": "dup. after",
    "reordered": "reordered",
    "noncausal": "non-causal",
    "noncausal_ingress": "non-causal before",
    "trimmed_ingress": "trim before",
    "trimmed_egress": "trim after",
    "unkeyed_ingress": "no key before",
    "unkeyed_egress": "no key after",
    "unread_ingress": "not read before",
    "unread_egress": "not read after",
}
"""Heads of the counts of `records.evaluation.Counts`, in the order of the table."""
ALARMING = {
    "lost",
    "unmatched_egress",
    "duplicate_ingress",
    "duplicate_egress",
    "noncausal",
    "unread_ingress",
    "unread_egress",
}

Cells = Sequence[object]
"""The cells of a row behind its first one."""


def mark_of(group: Configuration, run: Run | None = None) -> Mark:
    """How figures show a configuration, or a run of it."""
    origin = group.origin if run is None else run.origin
    return Mark(group.light, group.dark, origin.source if origin else "")


def of_runs(
    title: str,
    columns: Sequence[Column],
    groups: Iterable[Configuration],
    rows: Callable[[Member], Iterable[Cells]],
) -> Table:
    """A table with some `rows` for each run."""
    return table(
        title,
        [Column("run"), *columns],
        (
            row(member.label, *cells, mark=mark_of(group, member.run))
            for group in groups
            for member in group.members
            for cells in rows(member)
        ),
    )


def summary(groups: list[Configuration]) -> Table:
    """The latency of every run, a part for each configuration, and the floor (`wire`) under it."""
    ps = sorted({row.p for g in groups for m in g.members for row in m.evaluation.listed})
    kept = {0.5, *(group.common_percentile for group in groups)}
    columns = (
        Column("run"),
        Column("packets", COUNT, spare=1),
        Column("loss", SHARE, spare=1),
        *(Column(percentile_label(p), TIME, spare=p not in kept) for p in ps),
        Column("max", TIME),
    )
    return Table("latency of every run", columns, [_summary(one, groups, ps) for one in groups])


def _summary(group: Configuration, groups: list[Configuration], ps: Sequence[float]) -> Part:
    rows = []
    for member in group.members:
        look, mark = _look(group, member), mark_of(group, member.run)
        cells = _latencies(member.evaluation, ps, member.run.origin)
        rows.append(row(member.label, *cells, look=look, mark=mark))
        below = "floor invalid" if look == "invalid" else "floor"
        if member.undisturbed:
            cells = _latencies(member.undisturbed, ps)
            rows.append(row(UNDISTURBED, *cells, look=below, mark=mark))
        elif member.left_out:
            cells = [Cell(hint=member.left_out)] * (len(ps) + 3)
            rows.append(row(f"{UNDISTURBED}: not shown", *cells, look=below, mark=mark))
    floor = floor_of(group, groups)
    if floor and floor.worst:
        cells = _latencies(floor.worst.evaluation, ps, floor.worst.run.origin)
        mark = mark_of(floor, floor.worst.run)
        rows.append(row(f"floor: {floor.worst.label}", *cells, look="floor", mark=mark))
    return Part(rows)


def _look(group: Configuration, member: Member) -> str:
    """How a repeat stands out: the worst one, and those that do not count."""
    if member not in group.leading:
        return "invalid"
    return "worst" if member is group.worst and group.members[1:] else ""


def _latencies(
    evaluation: Latencies, ps: Sequence[float], origin: Origin | None = None
) -> list[Cell]:
    """Packets, loss, percentiles and maximum of a run."""
    times = [_percentile(evaluation, listed(evaluation, p), origin) for p in ps]
    times.append(Cell(evaluation.max, "max"))
    if evaluation.within_ns:
        off = f" ±\u00a0{time_text(evaluation.within_ns)}"
        times = [
            replace(one, value=one.value and f"{time_text(one.value)}{off}")  # type: ignore[arg-type]
            for one in times
        ]
    return [Cell(evaluation.packets), _loss_cell(evaluation), *times]


def _percentile(evaluation: Latencies, found: Percentile | None, origin: Origin | None) -> Cell:
    if found is None:
        return Cell(hint="not published" if origin else "")
    if evaluation.packets is None:
        hint = "unsupported: how many packets lie above is not published"
    elif evaluation.lost_heavily and found.p > 1 - (evaluation.loss or 0):
        hint = "more packets were lost than lie above it, so the value is unknown"
    else:
        return percentile_cell(found, "; no confidence interval is published" * bool(origin))
    return Cell(found.value, "unsupported", hint)


def _loss_cell(evaluation: Latencies, look: str = "alarm") -> Cell:
    """The loss of a run; `look` is that of a loss which is not zero."""
    if evaluation.loss is None:
        return Cell(hint="not published")
    if evaluation.lost_heavily:
        hint = "the latency of lost packets is unknown"
        return Cell(evaluation.loss, look, hint)
    if evaluation.counted.get("lost", 0) > (evaluation.lost_at_least or 0):
        hint = "packets after the device were not matched or not read, and may be these"
        return Cell(f"at most {share_text(evaluation.loss)}", look, hint)
    return Cell(evaluation.loss, look if evaluation.loss else "")


def counted(groups: list[Configuration]) -> Table:
    """Loss and counts of every run, without the columns that tell nothing."""
    hints = meanings(Counts)
    columns = (
        Column("loss", SHARE, "lost / (lost + matched)"),
        *(Column(head, COUNT, hints[name], alarms=name in ALARMING)
          for name, head in COUNTS.items()),
    )  # fmt: skip

    def cells(member: Member) -> Iterator[Cells]:
        counts = member.evaluation.counted
        yield _loss_cell(member.evaluation, ""), *(counts.get(name) for name in COUNTS)

    return of_runs("loss and counts", columns, groups, cells).without(0, None, keep=6)


@dataclass(frozen=True)
class Losses:
    """The section about loss against the rate."""

    curves: Sequence[LossCurve]
    """Those that are drawn."""
    table: Table
    lossless: str
    """What lost nothing, in a sentence; empty where there is nothing of the kind."""


def losses(groups: list[Configuration], curves: Sequence[LossCurve]) -> Losses:
    """Losses of all runs, and the curves that are drawn of them."""
    columns = (
        Column("run"),
        Column("asked for", RATE),
        Column("sent", RATE),
        Column("came out", RATE),
        Column("packets", COUNT),
        Column("lost", COUNT, alarms=True),
        Column("loss", SHARE),
        Column(""),
    )
    parts = [
        Part([_loss_row(curve, point) for point in curve.points])
        for curve in loss_curves(groups)
        # A curve without loss is a sentence, unless one of its runs is invalid.
        if curve.lossy or not all(point.valid for point in curve.points)
    ]
    return Losses(curves, Table("loss of every run", columns, parts), lossless(rate_curves(groups)))


def _loss_row(curve: LossCurve, point: Point) -> Row:
    """A run; repeats stand one below the other."""
    evaluation = point.member.evaluation
    hint = "" if point.valid else "the generator did not send the rate"
    notes = [] if point.valid else ["invalid"]
    patterns = evaluation.loss_patterns or []
    notes += ["with load"] if any(one.kind == "load" for one in patterns) else []
    origin = point.member.run.origin
    return row(
        point.member.label,
        point.asked,
        Cell(point.rate, "" if point.valid else "alarm", hint),
        point.rate * (1 - point.loss),
        evaluation.offered or 0,
        evaluation.counted.get("lost"),
        Cell(point.loss, "alarm" if point.loss else "zero"),
        Cell(", ".join(notes), "alarm" if notes else "", hint),
        mark=Mark(curve.light, curve.dark, origin.source if origin else ""),
    )


def flows_of(groups: Sequence[Configuration], explained: Mapping[int, Sequence[LateFlow]]) -> Table:
    """The first flows of each run whose evaluation, or whose causes have them, by its index."""
    parts = [
        Part(
            flow_rows(
                member.evaluation.flows or (),
                explained.get(member.index, ()),
                member.label,
                mark_of(group),
            )
        )
        for group in groups
        for member in group.members
    ]
    return Table(
        "losses, latencies and causes by flow",
        flow_columns("run and flow", late=any(explained.values())),
        [part for part in parts if part.rows],
    )


def flows_together(experiment: Experiment) -> Table:
    """The measurements of several flows, in the order of their runs."""
    runs = {run.slug: run for run in experiment.own}
    found = list(together(map(stored, runs.values())))
    firsts = [runs[one.run] for one in found]
    repeated = any(run.repeat > 1 for run in firsts)
    names = {
        run.slug: configuration_label(run, experiment.name, VARIABLES)
        + (f" #{run.repeat}" if repeated else "")
        for run in firsts
    }
    return together_table(found, "measurement", names)


def changed(groups: Sequence[Configuration]) -> Table:
    """What differs behind the device, of each run whose captures hold frames: a row for each."""
    columns = (
        Column("what"),
        Column("before"),
        Column("behind"),
        Column("packets", right=True),
        Column("ways", COUNT),
    )

    def cells(member: Member) -> Iterator[Cells]:
        device = member.evaluation.device
        for one in device.changes if device else ():
            assert device is not None
            packets = f"{count_text(one.packets)} of {count_text(device.looked_at)}"
            yield one.what, one.before or None, one.after or None, packets, one.ways

    return of_runs("what the device changed", columns, groups, cells)


PUBLISHED = {
    "hdr": "percentiles",
    "latency": "histogram",
    "worst": "worst packets",
    "gaps": "gaps",
    "rates": "packet rates",
}
"""The content of result files, by the figure that shows it."""


def imported(groups: list[Configuration]) -> Table:
    """Every imported run: its origin, and what its files do not contain."""
    columns = (Column("number", COUNT), Column("files"), Column("not published or not readable"))

    def cells(member: Member) -> Iterator[Cells]:
        if (origin := member.run.origin) is None:
            return
        lacks = [name for kind, name in PUBLISHED.items() if not member.evaluation.shows(kind)]
        lacks += ["counts"] if member.evaluation.loss is None else []
        yield (
            Cell(str(member.run.number)),
            Cell(origin.source, "wide"),
            Cell(", ".join(lacks) or None, "wide"),
        )

    return of_runs("imported runs", columns, groups, cells)


@dataclass(frozen=True)
class Warnings:
    """Warnings of one kind and the runs that have them, as a text."""

    code: str
    message: str
    action: str
    """What to do."""
    runs: str


@dataclass(frozen=True)
class Told:
    """What is said against the runs, and what else they have to tell."""

    failed: Sequence[Run]
    doubts: Sequence[Warnings]
    notes: Sequence[Warnings]
    """Warnings that put no number in doubt."""


def told(experiment: Experiment, groups: list[Configuration]) -> Told:
    """What stands above all numbers, and the notes below them."""
    kinds = by_kind((notice, run) for run in experiment.runs for notice in run.all_warnings)
    rows = [
        *(Warnings(one.code, one.message, one.action, "")
          for one in by_kind((notice, None) for notice in experiment.warnings)),
        *(Warnings(one.code, one.message, one.action, runs_text(one.runs, experiment, groups))
          for one in kinds),
    ]  # fmt: skip
    return Told(
        experiment.failed,
        [row for row in rows if row.code not in NOTES],
        [row for row in rows if row.code in NOTES],
    )


def runs_text(runs: list[Run], experiment: Experiment, groups: list[Configuration]) -> str:
    """Runs by their labels; whole configurations, and all runs, in short."""
    # Own runs are known by the names of their folders, imported ones by their numbers.
    left = {(run.number, run.slug): run for run in runs}
    if len(experiment.finished) > 1 and all(
        (run.number, run.slug) in left for run in experiment.finished
    ):
        return "every run with a result"
    texts = []
    for group in groups:
        mine = [m for m in group.members if (m.run.number, m.run.slug) in left]
        if len(mine) == len(group.members) > 1:
            texts.append(f"{group.label} (all {len(mine)})")
        else:
            texts += [member.label for member in mine]
        for member in mine:
            del left[member.run.number, member.run.slug]
    texts += [run.slug for run in left.values()]
    return ", ".join(texts) if len(texts) <= FEW else f"{len(runs)} of {len(experiment.runs)} runs"


@dataclass(frozen=True)
class Fact:
    """One fact of the environment: the value all runs share, or each run's own."""

    name: str
    values: tuple[tuple[str, str], ...]


def environment_facts(experiment: Experiment) -> dict[str, list[Fact]]:
    """Parameters and environment of own runs by section, one value where all agree."""
    sections: dict[str, dict[str, dict[str, str]]] = {}
    for run in experiment.own:
        asked = run.record.parameters.whole if run.record else {}
        merged = {**asked, **topology(run), **as_json(run.environment)}
        for section, value in merged.items():
            for name, leaf in _leaves("", value):
                place = sections.setdefault(str(section), {}).setdefault(name, {})
                place[run.slug] = leaf
    return {
        section: [
            _fact(name or section, values, len(experiment.own)) for name, values in rows.items()
        ]
        for section, rows in sections.items()
    }


def _fact(name: str, values: Mapping[str, str], runs: int) -> Fact:
    if len(set(values.values())) == 1 and len(values) >= runs:
        return Fact(name, (("", next(iter(values.values()))),))
    by_value = grouped(values, values.__getitem__)
    return Fact(name, tuple((", ".join(slugs), value) for value, slugs in by_value.items()))


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        yield prefix, ", ".join(str(item) for item in value)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(f"{prefix}[{place}]", inner)
    elif isinstance(value, bool):
        yield prefix, "yes" if value else "no"
    else:
        yield prefix, DASH if value is None else str(value)
