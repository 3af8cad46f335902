"""Configurations against each other, and commits, as far as their repeats can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tailtap.analysis.compare.significance import rank_text
from tailtap.analysis.runs.text import number_text
from tailtap.base.units import format_share, format_time, format_us
from tailtap.records.compare import (
    CompareRecord,
    Configured,
    Counted,
    CounterPair,
    Counters,
    HistoryRecord,
    LoadRow,
    PairRow,
    RepeatRow,
    Resources,
    Series,
    Standing,
)
from tailtap.records.compare import Mark as Change
from tailtap.show.sections import (
    COUNT,
    P_VALUE,
    SHARE,
    TIME,
    Cell,
    Column,
    Mark,
    Part,
    Row,
    Section,
    Shown,
    Table,
    row,
    same,
    table,
)

COUNTED = (
    Column("configuration", wrap=16),
    Column("counter", wrap=12),
    Column("mean", same(partial(number_text, digits=4))),
    Column("deviation", same(partial(number_text, digits=2))),
    Column("runs", COUNT),
    Column("more than the first, 95 %", right=True, spare=1, wrap=14),
    Column("p, corrected", P_VALUE),
)
"""What was counted per packet: means over repeats, and how much more than the first."""
RANKED = (
    Column("configuration", wrap=16),
    Column("rank"),
    Column("repeats, the worst first", right=True, wrap=10),
    Column("within the worst run", right=True, spare=3, wrap=12),
    Column("max", TIME, spare=1),
    Column("loss", SHARE, spare=2),
    Column("over the first, 95 %", right=True, wrap=12),
    Column("p, corrected", P_VALUE),
)
"""How configurations stand to each other."""
PAIRS = 15
"""Comparisons that are shown; `--json` has all."""
MOST_COUNTED = 40
"""Rows of counters that are shown; `--json` has all."""
LAST = 10
"""Commits that are shown of a series; `--json` has all."""
Marks = Mapping[str, Mark]
"""The colours of configurations, by their labels."""


def comparison_parts(found: CompareRecord) -> Iterator[Shown]:
    """The ranking under each load, what differs, and what follows from it."""
    if found.undisturbed:
        yield "of undisturbed latencies: without the time around pauses from outside"
    yield from (*found.advice, "")
    for load in found.loads:
        yield from _ranking(load, found.alpha)
    for load in found.loads:
        yield from _counters(load)
    yield from (traits(found.loads), "")
    yield from (f"{check.name}: {check.answer}: {check.because}" for check in found.recommendations)


def _ranking(load: LoadRow, alpha: float) -> Iterator[Shown]:
    """The ranking under one load, and what differs."""
    if load.reason:
        yield f"{load.load}: no ranking: {load.reason}"
    else:
        yield Table("ranking", RANKED, [ranked_part(load, {})])
        pairs, shown = len(load.comparisons), differences(load, alpha)
        yield shown or f"comparisons: {pairs}, all with too few repeats to be decided"
        if shown and pairs > len(shown.rows):
            yield f"and {pairs - len(shown.rows)} more: --json has all"
    yield ""


def _counters(load: LoadRow) -> Iterator[Shown]:
    """What was counted per packet under one load, and where that differs."""
    counters = load.counters
    if not counters.counted:
        return
    part = counted_part(counters, load.load, {}, MOST_COUNTED)
    yield Table("counted per packet", COUNTED, [part])
    shown, pairs = counter_differences(load), len(counters.comparisons)
    if shown:
        yield shown
    elif pairs:
        yield f"differences of what was counted: {pairs}, all with too few repeats"
    left = len(counters.counted) - len(part.rows) + (pairs - len(shown.rows) if shown else 0)
    if left:
        yield f"and {left} more: --json has all"
    yield ""


def history_parts(found: HistoryRecord) -> Iterator[Shown]:
    """Each series of a history."""
    for series in found.series:
        yield from (history_section(series), "")


def ranked_part(load: LoadRow, marks: Marks) -> Part:
    """The configurations under one load: rows of `RANKED`."""
    by = " (as required)" if load.percentile_by == "require" else ""
    best = load.configurations[0].label if load.configurations else ""
    rows = [_standing(one, best, load, marks) for one in (*load.configurations, *load.floors)]
    rows += [row(one.label, "", "no good run", *[""] * 5, look="present") for one in load.unranked]
    return Part(rows, f"{load.load}, {load.percentile_text}{by}")


def _standing(found: Standing, best: str, load: LoadRow, marks: Marks) -> Row:
    repeats = [found.repeats[place] for place in found.worst_first]
    inside = repeats[0].interval
    losses = [run.loss for run in repeats if run.loss is not None]
    sides = {best, found.label}
    pair = next((p for p in load.comparisons if {p.slower, p.faster} == sides), None)
    look, hint = ("", "") if pair is None else _certainty(pair, certain=pair.significant)
    return row(
        found.label,
        rank_text(found.rank) or "floor",
        ", ".join(map(_repeat, repeats)),
        "" if inside is None else f"{format_us(inside.low)} to {format_us(inside.high)} us",
        max((run.max for run in repeats if run.max is not None), default=None),
        max(losses, default=None),
        Cell(pair and found.over_first, look),
        Cell(pair and pair.p_corrected, look, hint),
        look="" if found.rank else "present",
        mark=marks.get(found.label),
    )


def _certainty(pair: PairRow | CounterPair, *, certain: bool) -> tuple[str, str]:
    """The look of what a test says, and what it rests on."""
    hint = (
        f"p = {pair.p:.2g} before the correction; so many repeats reach {pair.smallest_p:.2g} "
        "at best"
    )
    return "" if certain else "zero", hint


def _repeat(run: RepeatRow) -> str:
    """A run's latency, and what it may be off by by its clocks and stamps."""
    if run.latency is None:
        return "unknown"
    off = f" ± {format_time(run.within_ns)}" if run.within_ns else ""
    return format_time(run.latency) + off


def differences(load: LoadRow, alpha: float) -> Table:
    """What the tests of pairs show that can be decided; the most certain ones first."""
    columns = (
        Column("configuration", wrap=16),
        Column("against", wrap=16),
        Column("is", wrap=6),
        Column("ratio (95 %)", right=True),
        Column("p", P_VALUE, spare=2),
        Column("corrected", P_VALUE),
        Column("runs' intervals", spare=1),
    )
    able = [pair for pair in load.comparisons if pair.smallest_p <= alpha]
    shown = sorted(able, key=lambda pair: (not pair.significant, pair.p_corrected))[:PAIRS]
    words = {True: "apart", False: "overlap", None: ""}
    rows = (
        row(pair.second, pair.first, pair.answer, pair.second_over_first, pair.p, pair.p_corrected,
            words[pair.runs_apart], look="" if pair.significant else "present")
        for pair in shown
    )  # fmt: skip
    return table("differences", columns, rows)


def counted_part(counters: Counters, load: str, marks: Marks, most: int | None = None) -> Part:
    """What was counted per packet under one load: rows of `COUNTED`, at most so many."""
    counted = sorted(counters.counted, key=lambda one: not one.chosen)
    first = {one.counter: one.configuration for one in reversed(counted)}
    pairs = {(pair.counter, pair.first, pair.second): pair for pair in counters.comparisons}
    rows = [
        _counted(
            one,
            pairs.get((one.counter, first[one.counter], one.configuration)),
            marks.get(one.configuration),
        )
        for one in counted[:most]
    ]
    return Part(rows, load)


def _counted(one: Counted, pair: CounterPair | None, mark: Mark | None) -> Row:
    values = ", ".join(number_text(value, 4) for value in one.values)
    more, look, hint = None, "", ""
    if pair is not None and pair.difference is not None:
        look, hint = _certainty(pair, certain=pair.answer != "not shown")
        more = between(pair.difference, pair.difference_low, pair.difference_high, signed=True)
    return row(
        one.configuration,
        one.counter,
        Cell(one.mean, "" if one.mean else "zero", f"Repeats: {values}"),
        one.deviation,
        len(one.values),
        Cell(more, look),
        Cell(None if more is None or pair is None else pair.p_corrected, look, hint),
        mark=mark,
    )


def between(
    middle: float | None, low: float | None, high: float | None, *, signed: bool = False
) -> str:
    """A number with its interval, as far as both are known."""
    if middle is None:
        return ""
    text = number_text(middle, signed=signed)
    if low is None or high is None:
        return text
    return f"{text} ({number_text(low, signed=signed)} to {number_text(high, signed=signed)})"


def counter_differences(load: LoadRow) -> Table:
    """What the tests of pairs show of what was counted; the most certain ones first."""
    columns = (
        Column("counter", wrap=12),
        Column("configuration", wrap=16),
        Column("against", wrap=16),
        Column("is", wrap=6),
        Column("per packet (95 %)", right=True),
        Column("ratio (95 %)", right=True),
        Column("corrected", P_VALUE),
    )
    known = [pair for pair in load.counters.comparisons if pair.difference_low is not None]
    shown = sorted(known, key=lambda pair: (pair.p_corrected, pair.p))[:PAIRS]
    rows = (
        row(pair.counter, pair.second, pair.first, pair.answer,
            between(pair.difference, pair.difference_low, pair.difference_high, signed=True),
            between(pair.ratio, pair.ratio_low, pair.ratio_high), pair.p_corrected,
            look="present" if pair.answer == "not shown" else "")
        for pair in shown
    )  # fmt: skip
    return table("differences of what was counted", columns, rows)


def traits(loads: Sequence[LoadRow]) -> Table:
    """What speaks for configurations other than their latency."""
    columns = (
        Column("configuration", wrap=16),
        Column("load", wrap=10),
        Column("rank", right=True),
        Column("models", right=True, spare=6),
        Column("clusters above", right=True, spare=3),
        Column("bounded", right=True, spare=4),
        Column("CPUs", right=True),
        Column("us/packet", right=True, spare=2),
        Column("memory", right=True, spare=5),
        Column("power", right=True, spare=8),
        Column("cache", wrap=8, spare=7),
        Column("isolation", wrap=9),
    )
    found: list[tuple[str, str, Configured]] = []
    for load in loads:
        found += [(load.load, rank_text(one.rank), one) for one in load.configurations]
        found += [(load.load, "", one) for one in load.unranked]
    rows = [_traits(*one) for one in found if one[-1].resources]
    title = "other than latency (isolation is a judgement, not a measurement)"
    return table(title, columns, rows)


def _traits(load: str, rank: str, found: Configured) -> Row:
    used = found.resources or Resources()
    cache, summary = found.cache, found.predictability
    bursts, bounded = (summary.bursts_above, summary.bounded) if summary else (None, None)
    virtual = " (virtual)" if cache and cache.virtual else ""
    return row(
        found.label,
        load,
        rank,
        f"{summary.models} of {summary.runs}" if summary else "",
        "" if bursts is None else f"{bursts:.2f}",
        "" if bounded is None else format_share(bounded),
        "" if used.cpus is None else f"{used.cpus:.2f} of {used.reserved}",
        "" if used.cpu_ns is None else f"{used.cpu_ns / 1000:.2f}",
        "" if used.memory is None else f"{used.memory / 1e6:,.1f} MB",
        "" if used.watts is None else f"{used.watts:,.1f} W",
        f"{cache.layout}{virtual}" if cache else "",
        found.isolation.grade if found.isolation else "",
    )


def history_section(series: Series) -> Section:
    """The last commits of a series, those at which it changed, and what changed it."""
    columns = (
        Column("commit"),
        Column("date"),
        Column("runs", COUNT),
        *(Column(name, right=True) for name in ("median", "lowest", "highest")),
        Column("change", wrap=20),
    )
    marks = {mark.place: mark for mark in series.marks}
    shown = set(range(len(series.points))[-LAST:]) | {
        place for mark in marks for place in (mark - 1, mark)
    }
    rows = []
    for place in sorted(shown):
        point, mark = series.points[place], marks.get(place)
        values = map(format_us, (point.value, point.low, point.high))
        rows.append(row(point.commit[:12], point.date[:10], point.runs, *values,
                        mark and _change(mark), look="changed" if mark else ""))  # fmt: skip
    notes = [_changed(series, mark) for mark in series.marks]
    if series.undecided:
        notes.append(f"not decided yet: {series.undecided}")
    elif not series.marks:
        notes.append(f"no change is shown in {len(series.points)} commits")
    title = (
        f"{series.experiment}: {series.configuration}, {series.load}, {series.percentile_text} in "
        f"us{', the floor' if series.wire else ''}"
    )
    return Section("", [], [table(title, columns, rows)], notes)


def changes_table(series: Series) -> Table:
    """The commits at which a series changed, and what else changed there."""
    headings = ("first commit behind the change", "last before", "ratio", "of", "the floor",
                "its noise", "machine", "also possible")  # fmt: skip
    rows = (
        row(mark.suspects[0][:12], mark.before[:12], _times(mark.ratio), mark.origin,
            _times(mark.floor), _times(mark.noise), "; ".join(mark.machine),
            ", ".join(other[:12] for other in mark.suspects[1:]))
        for mark in series.marks
    )  # fmt: skip
    return table(f"changes of {series.configuration}", list(map(Column, headings)), rows)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x{ratio:.2f}"


def _change(mark: Change) -> str:
    return _times(mark.ratio) or "another level"


def _changed(series: Series, mark: Change) -> str:
    """A change, and whether the program or the machine made it."""
    first, *others = (commit[:12] for commit in mark.suspects)
    near = f" (or {', '.join(others)})" if others else ""
    text = f"{_change(mark)} from {first} on{near}, {mark.before[:12]} was the last before it: "
    if series.newest and mark is series.marks[-1]:
        text = f"newest commits: {text}"
    floors = {"the floor": mark.floor, "its noise": mark.noise}
    floor = ", ".join(f"{name} by {_times(by)}" for name, by in floors.items() if by is not None)
    machine = "; ".join(mark.machine)
    match mark.origin:
        case "machine":
            return text + f"the machine changed, {floor}" + (f" ({machine})" if machine else "")
        case "unclear":
            return text + f"the machine changed at the same commit ({machine})"
        case "program":
            return text + "the program" + (f"; {floor}" if floor else "")
