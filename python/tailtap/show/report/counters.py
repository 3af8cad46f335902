"""Tables of what taps, generators, processors and the kernel counted, as rows of finished text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tailtap.analysis.compare import counters as compare
from tailtap.analysis.compare.configurations import gather
from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.analysis.runs.text import count_text, number_text, time_text
from tailtap.base.errors import InputError
from tailtap.records.compare import Counted, CounterPair
from tailtap.records.generator import Generator, Slip
from tailtap.records.taps import Tap
from tailtap.show.report.comparison import Compared
from tailtap.show.report.tables import DASH, Cell, Head, Row, Sheet, Table, count_look, shed

TAP_COUNTS = ("seen", "stored", "lost", "other")
TAP_GROUPS: Mapping[str, Sequence[str]] = {
    "tap before": TAP_COUNTS,
    "tap after": TAP_COUNTS,
    "generator": ("by", "sent", "failed"),
    "slip": ("p50", "p99.9", "max"),
    "host": ("steal", "dropped", "squeezed"),
}
"""Heads of the table of taps and generator, in groups of columns."""


def taps_told(groups: list[Configuration]) -> Sheet:
    """The reports of taps and generator, without the columns that tell nothing."""
    heads = [Head(name, group=group) for group, names in TAP_GROUPS.items() for name in names]
    return shed(heads, tap_rows(groups))


def tap_rows(groups: list[Configuration]) -> list[Row]:
    """The reports of taps and generator; empty when no run has either."""
    rows = []
    for group in groups:
        for member in group.members:
            run = member.run
            if run.taps or run.generator:
                cells = tuple(_self_cells(run))
                rows.append(Row(member.label, group.light, group.dark, "", cells))
    return rows


COUNTER_WINDOWS: Mapping[str, str] = {
    "run": "while packets were sent",
    "lifetime": "from before the device was built until it was gone",
}
COUNTER_SCOPES: Mapping[str, str] = {
    "dut.cpus": "the device's CPUs",
    "group": "its control group, on CPUs",
    "machine": "all CPUs",
}
BY_PACKET = ("counter", "mean", "deviation", "runs", "more than the first, 95 %", "p, corrected")


def by_packet(experiment: Experiment, groups: list[Configuration]) -> tuple[Compared, ...]:
    """What was counted per packet under each load: means over repeats, and what differs."""
    try:
        loads = gather(experiment.finished)
        found = compare.counters(loads)
    except InputError:
        return ()  # published runs that do not go together, or samples that cannot be read
    colours = {
        (member.run.number, member.run.slug): group for group in groups for member in group.members
    }
    tables = []
    for load, counted in zip(loads, found, strict=True):
        looks = {one.label: colours[one.runs[0].number, one.runs[0].slug] for one in load.ranked}
        pairs = {(pair.counter, pair.first, pair.second): pair for pair in counted.comparisons}
        rows = []
        for row in counted.counted:
            first = next(one for one in counted.counted if one.counter == row.counter)
            pair = pairs.get((row.counter, first.configuration, row.configuration))
            group = looks[row.configuration]
            cells = (Cell(row.counter), *_mean(row), *_more(pair))
            rows.append(Row(row.configuration, group.light, group.dark, "", cells))
        if rows:
            tables.append(Compared(load.label, tuple(rows)))
    return tuple(tables)


def _mean(row: Counted) -> Iterator[Cell]:
    values = ", ".join(number_text(value, 4) for value in row.values)
    yield Cell(number_text(row.mean, 4), "" if row.mean else "zero", f"Repeats: {values}")
    yield Cell(DASH if row.deviation is None else number_text(row.deviation, 2))
    yield Cell(str(len(row.values)))


def _more(pair: CounterPair | None) -> tuple[Cell, Cell]:
    if pair is None or pair.difference is None:
        return Cell(DASH), Cell(DASH)
    look = "zero" if pair.answer == "not shown" else ""
    bounds = ""
    if pair.difference_low is not None and pair.difference_high is not None:
        low, high = (
            number_text(value, signed=True) for value in (pair.difference_low, pair.difference_high)
        )
        bounds = f" ({low} to {high})"
    hint = (
        f"p = {pair.p:.2g} before the correction; so many repeats reach "
        f"{pair.smallest_p:.2g} at best"
    )
    return (
        Cell(number_text(pair.difference, signed=True) + bounds, look),
        Cell(f"{pair.p_corrected:.2g}", look, hint),
    )


def counters(groups: list[Configuration]) -> Table:
    """What the processors counted, of the runs where they did."""
    return Table(["when", "where", *counter_heads(groups)], counter_rows(groups))


def counter_heads(groups: list[Configuration]) -> list[str]:
    """The events that the processors of any run counted, in the order of the request."""
    runs = [member.run for group in groups for member in group.members]
    windows = (run.counters["run"] for run in runs if "run" in run.counters)
    return list(dict.fromkeys(name for window in windows for name in window.events))


def counter_rows(groups: list[Configuration]) -> list[Row]:
    """What processors counted, a row for each of `COUNTER_WINDOWS`; a dash where nothing counts."""
    heads = counter_heads(groups)
    rows = []
    for group in groups:
        for member in group.members:
            for name, words in COUNTER_WINDOWS.items():
                window = member.run.counters.get(name)
                if window is None:
                    continue
                cpus = ", ".join(map(str, window.cpus))
                cells = [Cell(words), Cell(f"{COUNTER_SCOPES[window.scope]}: {cpus}")]
                for head in heads:
                    text, look = count_look(window.events.get(head), False)
                    estimated = head in window.estimated
                    cells.append(Cell(f"about {text}" if estimated else text, look))
                rows.append(Row(member.label, group.light, group.dark, "", tuple(cells)))
    return rows


def _self_cells(run: Run) -> Iterator[Cell]:
    """The cells of one run under `TAP_HEADS`."""
    texts: list[tuple[str, str]] = []
    for side in SIDES:
        tap = run.taps.get(side, Tap())
        texts += [count_look(getattr(tap, name), name == "lost") for name in TAP_COUNTS]
    generator = run.generator or Generator()
    texts.append((_generator_text(generator), ""))
    texts += [count_look(generator.sent, False), count_look(generator.failed, True)]
    slip = generator.slip_ns or Slip()
    values = {row.p: row.value for row in slip.percentiles}
    for value in (values.get(0.5), values.get(0.999), slip.max):
        texts.append((DASH if value is None else time_text(value), ""))
    steal = time_text(sum(run.steal_ns.values())) if run.steal_ns else DASH
    texts.append((steal, ""))
    for text, look in texts:
        yield Cell(text, look)
    yield _backlog_cell(run, "dropped", "alarm")
    yield _backlog_cell(run, "squeezed", "")


def _backlog_cell(run: Run, name: str, look: str) -> Cell:
    """A counter of softnet over all CPUs, and how much of it came on which one."""
    softnet = run.record.softnet if run.record else {}
    known = {cpu: counts[name] for cpu, counts in softnet.items() if name in counts}
    if not known:
        return Cell(DASH)
    total = sum(known.values())
    hint = ", ".join(f"CPU {cpu}: {count_text(count)}" for cpu, count in known.items() if count)
    return Cell(count_text(total), look if total else "zero", hint)


def _generator_text(generator: Generator) -> str:
    """What sent the packets, and in which mode: ``af_xdp, generic``."""
    return ", ".join(part for part in (generator.generator, generator.mode) if part) or DASH
