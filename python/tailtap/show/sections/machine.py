"""What a machine can do, and what it is like where nobody asks it for anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tailtap.analysis.evaluation.values import label
from tailtap.base.errors import Check
from tailtap.base.units import format_count, format_rate, format_share, format_time
from tailtap.records.causes import NoiseRecord
from tailtap.records.datapath import RateAsked, RatesRecord
from tailtap.records.interrupts import InterruptsRun, OffsetRow
from tailtap.show.sections import (
    COUNT,
    RATE,
    SHARE,
    TENTHS,
    THOUSANDTHS,
    TIME,
    Cell,
    Column,
    Mark,
    Part,
    Row,
    Section,
    Table,
    row,
    table,
)

if TYPE_CHECKING:
    from tailtap.analysis.interrupts.runs import Sampled


CAUSES = 10
"""So many causes are listed, those with most time first."""
STATES = {"ok": "good", "poor": "unshown", "missing": "alarm", "untested": "unshown"}
"""How the states of checks stand out."""


def checks_table(checks: Sequence[Check]) -> Table:
    """What was looked at, area by area."""
    columns = (
        Column(wrap=12),
        Column("state", wrap=8),
        Column("found", wrap=16),
        Column("what to do", wrap=16),
    )
    areas = groupby(checks, lambda check: check.area)
    return Table("", columns, [Part(list(map(_check, found)), area) for area, found in areas])


def _check(check: Check) -> Row:
    state = f"{check.state}, needed" if check.required and check.state != "ok" else check.state
    return row(check.name, Cell(state, STATES[check.state]), check.found, check.remedy)


LATE_AT = (0.5, 0.99)
"""Percentiles of how late packets leave."""
BESIDE_FRAME = 20
"""Bytes of preamble, start delimiter and gap between frames; IEEE 802.3."""


def rates_section(record: RatesRecord) -> Section:
    """How fast a generator sends by frame size, and how late packets leave at shares of that."""
    shares = [one.share for one in record.sizes[0].at if one.share is not None]
    columns = [
        Column("size", right=True),
        Column("highest", RATE, right=True),
        Column("Gbit/s", TENTHS, "On a cable, with preamble and gap"),
        *(
            Column(f"{label(p)}, {format_share(share)}", TIME, "late at this share of the highest")
            for share in shares
            for p in LATE_AT
        ),
    ]
    rows, notes = [], []
    for one in record.sizes:
        wire = one.highest * (one.size + BESIDE_FRAME) * 8 / 1e9
        late = [at.slip_ns and at.slip_ns.at(p) for at in one.at if at.share for p in LATE_AT]
        rows.append(row(f"{one.size} B", one.highest, wire, *late))
        notes += [_of_rate(one.size, at) for at in one.at if at.share is None]
    how = record.generator if record.mode is None else f"{record.generator}, {record.mode} mode"
    threads = format_count(max(1, len(record.cpus)), "thread")
    return Section(
        "",
        [f"{record.interface}: {how}, {threads}. Late is how long after its time a packet left."],
        [table("how fast packets leave and how late", columns, rows)],
        notes,
    )


def _of_rate(size: int, one: RateAsked) -> str:
    asked = f"{format_rate(one.rate)} of {size} B"
    if not one.is_reached:
        refused = f", and {format_count(one.failed, 'packet')} refused" if one.failed else ""
        return f"{asked}: not reached, {format_rate(one.achieved_rate)}{refused}"
    slip = one.slip_ns
    late = [f"{label(p)} {format_time((slip and slip.at(p)) or 0)}" for p in LATE_AT]
    return f"{asked}: reached; late {', '.join(late)}"


def noise_section(record: NoiseRecord) -> Section:
    """What takes idle cores."""
    cores = (
        Column("CPU"),
        Column("read every", TIME, "The shortest time between two reads"),
        Column("gaps", COUNT),
        Column("gaps/s", COUNT),
        Column("median", TIME),
        Column("p99", TIME),
        Column("worst", TIME),
        Column("taken", SHARE, "The share of all the time"),
    )
    causes = (
        Column("cause"),
        Column("what", wrap=30),
        Column("gaps", COUNT),
        Column("time", TIME),
        Column("worst", TIME),
        Column("taken", SHARE),
    )
    more = len(record.causes) - CAUSES
    return Section(
        "What takes idle cores",
        [f"Gaps of more than {format_time(record.above_ns)}, Linux {record.kernel}."],
        [
            table(
                "gaps of idle cores",
                cores,
                [
                    row(str(cpu.cpu), cpu.least_ns, cpu.gaps,
                        round(cpu.gaps * 1e9 / cpu.elapsed_ns), cpu.median_ns, cpu.p99_ns,
                        cpu.worst_ns, cpu.gap_ns / cpu.elapsed_ns)
                    for cpu in record.cpus
                    if cpu.elapsed_ns
                ],
            ),
            table(
                "what had the cores in gaps",
                causes,
                [
                    row(one.cause, one.detail, one.gaps, one.ns, one.worst_ns, one.share)
                    for one in record.causes[:CAUSES]
                ],
            ),
        ],
        notes=[f"and {more} more, which had less; --json has all"] if more > 0 else [],
    )  # fmt: skip


SHOWN = 10
"""Counters that are not associated and are shown all the same: those that come closest."""
INTERRUPTS = (
    Column("counter", wrap=16),
    Column("over time"),
    Column("most", COUNT, "The most increments from one sample to the next"),
    Column("where late", TENTHS,
           "Increments a second in the windows of the latest packets, a tenth at most"),
    Column("elsewhere", TENTHS, "Increments a second in all other windows"),
    Column("p", THOUSANDTHS,
           "How often chance alone ties any counter so closely to the late packets"),
    Column("", hint="Whether it is associated"),
)  # fmt: skip


def interrupts_section(
    found: Sampled,
    title: str,
    strip: Callable[[Any], str] | None = None,
    mark: Mark | None = None,
) -> Section:
    """What the samples of a run say.

    On the page `strip` draws values over the time of the run, whose colours are `mark`.
    """
    windows, counters = found.windows, found.record.counters
    rows: list[Row] = []
    if strip is not None and counters and windows.number:
        late = strip(found.late.lateness(windows.bounds_ns))
        rows.append(row("late packets", Cell(late, "strip late"), *[""] * 5))
    sure = sum(one.associated for one in counters)
    for one in counters[: max(sure, SHOWN)]:
        rises = windows.increments[windows.names.index(one.name)]
        rows.append(
            row(
                one.name,
                Cell("" if strip is None else strip(rises), "strip"),
                int(rises.max()) if windows.number else 0,
                one.late_per_s,
                one.elsewhere_per_s,
                Cell(one.p_value, hint="" if one.p_value is not None else
                     "rose too rarely to be told from chance"),
                "associated" if one.associated else "present",
                look="" if one.associated else "present",
            )
        )  # fmt: skip
    more = len(counters) - max(sure, SHOWN)
    return Section(
        title,
        list(_sentences(found.record, sure)),
        [table(f"interrupts of {title}", INTERRUPTS, rows)] if counters else [],
        [f"{more} more rose; --json of `tailtap interrupts` has all."] if more > 0 else [],
        mark,
    )


def _sentences(found: InterruptsRun, sure: int) -> Iterator[str]:
    took = ""
    if (each := found.samples.took_ns) is not None:
        took = f", each taking {format_time(each.median)} (at most {format_time(each.max)})"
    packets = format_count(found.late.packets, "worst packet")
    samples = format_count(found.samples.number, "sample")
    yield (
        f"{packets}, from {format_time(found.late.threshold_ns)}, and {samples}, one each "
        f"{format_time(found.samples.period_ns)}{took}."
    )
    offset = found.offset
    if offset.ns is not None and offset.source != "clock":
        yield f"Offset of the clocks: {format_time(offset.ns)}{_uncertainty(offset)}."
    if found.reason is not None:
        yield f"Nothing can be told: {found.reason}."
    elif not sure:
        yield "No counter rises where packets are late, more than chance explains."
    else:
        yield f"{sure:,} of {format_count(len(found.counters), 'counter')} are associated."
    if (own := found.sampler) is not None:
        words = "The sampler makes packets late" if own.delays else "The sampler: nothing seen"
        yield (
            f"{words}: {format_count(own.packets, 'late packet')} in the device during a sample, "
            f"{own.expected:.1f} by chance, p = {own.p_value:.3f}."
        )


def _uncertainty(offset: OffsetRow) -> str:
    if offset.low_ns is None or offset.high_ns is None:
        return ", as given"
    ends = f"{format_time(offset.low_ns)} to {format_time(offset.high_ns)}"
    if offset.p_value is None:
        return f", as both were compared: {ends}"
    return (
        f", suggested: {ends} fit as well, p = {offset.p_value:.2g} for all counters and "
        "offsets together"
    )
