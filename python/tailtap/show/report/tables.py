"""The tables of the page as rows of finished text; the template only lays them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from tailtap.analysis.evaluation import Percentile
from tailtap.analysis.evaluation.percentiles import label as percentile_label
from tailtap.analysis.runs.groups import Configuration, Member, floor_of, listed
from tailtap.analysis.runs.run import Experiment, Origin, Run, RunEvaluation
from tailtap.analysis.runs.text import (
    count_text,
    percent_text,
    rate_text,
    share_text,
    time_text,
)
from tailtap.records.evaluation import Counts
from tailtap.records.record import as_json, meanings
from tailtap.records.warnings import NOTES
from tailtap.show.report.loss import LossCurve, Point, loss_curves, lossless, rate_curves
from tailtap.show.report.wiring import topology

DASH = "–"
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


@dataclass(frozen=True)
class Cell:
    """One cell: its text, a class for its look, and what a pointer resting on it reads."""

    text: str
    look: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: a run or, in the summary, the floor beside it."""

    label: str
    light: str
    dark: str
    look: str
    cells: tuple[Cell, ...]
    source: str = ""
    """Where an imported run comes from."""


class Head(NamedTuple):
    """The head of a column: its name, what a pointer resting on it reads, its group's name."""

    name: str
    hint: str = ""
    group: str = ""
    first: bool = False
    """Whether it begins a group."""


@dataclass(frozen=True)
class Sheet:
    """A table without the columns that are the same zero or dash for all runs."""

    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    zero: tuple[str, ...]
    """The names of columns that are zero for every run."""
    unknown: tuple[str, ...]
    """The names of columns that nothing is known in."""

    @property
    def names(self) -> list[str]:
        """What the columns are called where a row stands alone."""
        return [f"{head.group} {head.name}".strip() for head in self.heads]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The groups of columns, and how many each has."""
        return [(name, len(list(heads))) for name, heads in groupby(self.heads, _group)]


def _group(head: Head) -> str:
    return head.group


def shed(heads: Sequence[Head], rows: Sequence[Row], keep: int = 0) -> Sheet:
    """A table without the columns that hold only zeros, or only dashes; the first `keep` stay."""
    texts = [{row.cells[at].text for row in rows} for at in range(len(heads))]
    shown = [at for at in range(len(heads)) if at < keep or texts[at] not in ({"0"}, {DASH})]
    before = [None, *(heads[at].group for at in shown)]
    kept = tuple(
        heads[at]._replace(first=bool(heads[at].group) and heads[at].group != group)
        for at, group in zip(shown, before, strict=False)
    )

    def cell(row: Row, at: int, first: bool) -> Cell:
        found = row.cells[at]
        return replace(found, look=f"{found.look} first".strip()) if first else found

    def names(text: str) -> tuple[str, ...]:
        left = (at for at in range(len(heads)) if at not in shown and texts[at] == {text})
        return tuple(f"{heads[at].group} {heads[at].name}".strip() for at in left)

    return Sheet(
        kept,
        tuple(
            replace(row, cells=tuple(cell(row, at, head.first)
                                     for at, head in zip(shown, kept, strict=True)))
            for row in rows
        ),
        names("0"),
        names(DASH),
    )  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table with a column for what a row is of, and one below each head."""

    heads: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Grouped:
    """A table whose rows belong together by configurations."""

    heads: Sequence[str]
    groups: Sequence[Sequence[Row]]


def percentile_columns(groups: list[Configuration]) -> list[float]:
    """Every percentile that some run lists, ascending."""
    return sorted({row.p for g in groups for m in g.members for row in m.evaluation.percentiles})


def summary(groups: list[Configuration]) -> Grouped:
    """The latency of every run."""
    return Grouped(summary_heads(groups), list(summary_rows(groups)))


def summary_rows(groups: list[Configuration]) -> Iterator[list[Row]]:
    """For each configuration its runs, and the floor (`wire`) under them."""
    columns = percentile_columns(groups)
    for group in groups:
        rows = []
        for member in group.members:
            look = _look(group, member)
            rows.append(
                _summary_row(
                    group, member.label, look, member.evaluation, columns, member.run.origin
                )
            )
            below = "floor invalid" if look == "invalid" else "floor"
            if member.undisturbed:
                rows.append(_summary_row(group, UNDISTURBED, below, member.undisturbed, columns))
            elif member.left_out:
                empty = Cell(DASH, "", member.left_out)
                cells = (empty,) * (len(columns) + 3)
                rows.append(Row(f"{UNDISTURBED}: not shown", group.light, group.dark, below, cells))
        floor = floor_of(group, groups)
        if floor and floor.worst:
            label, found = f"floor: {floor.worst.label}", floor.worst.evaluation
            origin = floor.worst.run.origin
            rows.append(_summary_row(floor, label, "floor", found, columns, origin))
        yield rows


def _look(group: Configuration, member: Member) -> str:
    """How a repeat stands out: the worst one, and those that do not count."""
    if member not in group.leading:
        return "invalid"
    return "worst" if member is group.worst and group.members[1:] else ""


def _summary_row(
    group: Configuration,
    label: str,
    look: str,
    evaluation: RunEvaluation,
    columns: list[float],
    origin: Origin | None = None,
) -> Row:
    packets = evaluation.packets
    cells = [Cell(DASH if packets is None else count_text(packets)), _loss_cell(evaluation)]
    for p in columns:
        row = listed(evaluation, p)
        if row is None:
            cells.append(Cell(DASH, "", "not published" if origin else ""))
            continue
        if packets is None:
            hint = "unsupported: how many packets lie above is not published"
            cells.append(Cell(time_text(row.value), "unsupported", hint))
            continue
        if evaluation.lost_heavily and p > 1 - (evaluation.loss or 0):
            hint = "more packets were lost than lie above it, so the value is unknown"
            cells.append(Cell(time_text(row.value), "unsupported", hint))
        else:
            cells.append(
                percentile_cell(row, "; no confidence interval is published" * bool(origin))
            )
    slowest = evaluation.maximum
    cells.append(Cell(DASH if slowest is None else time_text(slowest), "max"))
    if evaluation.within_ns:
        off = f" ±\u00a0{time_text(evaluation.within_ns)}"
        cells[2:] = [replace(cell, text=cell.text + off) for cell in cells[2:]]
    source = origin.source if origin else ""
    return Row(label, group.light, group.dark, look, tuple(cells), source)


def percentile_cell(row: Percentile, without_interval: str = "") -> Cell:
    """A percentile with its interval, or what is said where there is none."""
    above = f"{count_text(row.above)} packets above"
    if not row.supported:
        hint = f"unsupported: only {above}; one more slow packet would change it"
        return Cell(time_text(row.value), "unsupported", hint)
    hint = f"{percent_text(row.p)}: {above}{without_interval}"
    if row.low is not None and row.high is not None:
        hint = f"{percent_text(row.p)}: {above}; 95 % confidence {time_text(row.low)} to "
        hint += time_text(row.high)
    return Cell(time_text(row.value), "", hint)


def _loss_cell(evaluation: RunEvaluation, look: str = "alarm") -> Cell:
    """The loss of a run; `look` is that of a loss which is not zero."""
    if evaluation.loss is None:
        return Cell(DASH, "", "not published")
    if evaluation.lost_heavily:
        hint = "nobody knows how late the lost packets would have been"
        return Cell(share_text(evaluation.loss), look, hint)
    share = share_text(evaluation.loss)
    if evaluation.counts.get("lost", 0) > (evaluation.lost_at_least or 0):
        hint = "packets after the device were not matched or not read, and may be these"
        return Cell(f"at most {share}", look, hint)
    return Cell(share, look if evaluation.loss else "")


def summary_heads(groups: list[Configuration]) -> list[str]:
    """The heads of the summary table's columns of numbers."""
    names = [percentile_label(p) for p in percentile_columns(groups)]
    return ["packets", "loss", *names, "max"]


def counted(groups: list[Configuration]) -> Sheet:
    """Loss and counts of every run, without the columns that tell nothing."""
    loss = Head("loss", "lost / (lost + matched)")
    hints = meanings(Counts)
    heads = [loss, *(Head(head, hints[name]) for name, head in COUNTS.items())]
    return shed(heads, count_rows(groups), keep=5)


def count_rows(groups: list[Configuration]) -> list[Row]:
    """The counts of every run, in the order of `COUNTS`."""
    rows = []
    for group in groups:
        for member in group.members:
            counts = member.evaluation.counts
            cells = [_loss_cell(member.evaluation, "")]
            looks = (count_look(counts.get(name), name in ALARMING) for name in COUNTS)
            cells += [Cell(*look) for look in looks]
            source = member.run.origin.source if member.run.origin else ""
            rows.append(Row(member.label, group.light, group.dark, "", tuple(cells), source))
    return rows


LOSS_HEADS = ("asked for", "sent", "came out", "packets", "lost", "loss", "")
"""Heads of the table of loss against rate; rates in packets a second."""


@dataclass(frozen=True)
class Losses:
    """The section about loss against the rate."""

    curves: Sequence[LossCurve]
    """Those that are drawn."""
    table: Grouped
    lossless: str
    """What lost nothing, in a sentence; empty where there is nothing of the kind."""


def losses(groups: list[Configuration], curves: Sequence[LossCurve]) -> Losses:
    """Losses of all runs, and the curves that are drawn of them."""
    table = Grouped(LOSS_HEADS, list(loss_rows(loss_curves(groups))))
    return Losses(curves, table, lossless(rate_curves(groups)))


def loss_rows(curves: list[LossCurve]) -> Iterator[list[Row]]:
    """For each curve its runs by ascending rate, repeats one below the other.

    A curve without loss is a sentence (`loss.lossless`), unless one of its runs is invalid.
    """
    for curve in curves:
        if curve.lossy or not all(point.valid for point in curve.points):
            yield [_loss_row(curve, point) for point in curve.points]


def _loss_row(curve: LossCurve, point: Point) -> Row:
    evaluation = point.member.evaluation
    offered = evaluation.offered or 0
    hint = "" if point.valid else "the generator did not send the rate"
    notes = [] if point.valid else ["invalid"]
    patterns = (evaluation.stored and evaluation.stored.loss_patterns) or []
    notes += ["with load"] if any(one.kind == "load" for one in patterns) else []
    cells = (
        Cell(rate_text(point.asked)),
        Cell(rate_text(point.rate), "" if point.valid else "alarm", hint),
        Cell(rate_text(point.rate * (1 - point.loss))),
        Cell(count_text(offered)),
        Cell(*count_look(evaluation.counts.get("lost"), True)),
        Cell(share_text(point.loss), "alarm" if point.loss else "zero"),
        Cell(", ".join(notes), "alarm" if notes else "", hint),
    )
    source = point.member.run.origin.source if point.member.run.origin else ""
    return Row(point.member.label, curve.light, curve.dark, "", cells, source)


PUBLISHED = {
    "hdr": "percentiles",
    "latency": "histogram",
    "worst": "worst packets",
    "gaps": "gaps",
    "rates": "packet rates",
}
"""The content of result files, by the figure that shows it."""


@dataclass(frozen=True)
class Imported:
    """An imported run: its origin, and what its files do not contain."""

    row: Row
    number: int
    source: str
    missing: str


def imported_rows(groups: list[Configuration]) -> list[Imported]:
    """Every imported run."""
    rows = []
    for group in groups:
        for member in group.members:
            if member.run.origin is None:
                continue
            lacks = [name for kind, name in PUBLISHED.items() if not member.evaluation.shows(kind)]
            if member.evaluation.loss is None:
                lacks.append("counts")
            source = member.run.origin.source
            row = Row(member.label, group.light, group.dark, "", (), source)
            rows.append(Imported(row, member.run.number, source, ", ".join(lacks)))
    return rows


def count_look(value: int | None, alarming: bool) -> tuple[str, str]:
    """The text of a count, and its look: zeros recede, what should be zero and is not alarms."""
    if value is None:
        return DASH, ""
    return count_text(value), "zero" if value == 0 else "alarm" if alarming else ""


@dataclass(frozen=True)
class Warnings:
    """One warning and the runs that have it, as a text."""

    code: str
    message: str
    runs: str


@dataclass(frozen=True)
class Told:
    """What is said against the runs, and what else they have to tell."""

    failed: Sequence[Run]
    doubts: Sequence[Warnings]
    notes: Sequence[Warnings]
    """Warnings that put no number in doubt."""
    remedies: Sequence[tuple[str, str]]
    """What to type for candidate remedies of late packets, and in which runs these are late."""


def told(
    experiment: Experiment, groups: list[Configuration], remedies: Mapping[str, list[Run]]
) -> Told:
    """What stands above all numbers, and the notes below them."""
    rows = warning_rows(experiment, groups)
    return Told(
        experiment.failed,
        [row for row in rows if row.code not in NOTES],
        [row for row in rows if row.code in NOTES],
        [(line, runs_text(runs, experiment, groups)) for line, runs in remedies.items()],
    )


def warning_rows(experiment: Experiment, groups: list[Configuration]) -> list[Warnings]:
    """All warnings of runs and evaluations; equal ones are one row with all their runs."""
    found: dict[tuple[str, str], list[Run]] = {
        (notice.code, notice.message): [] for notice in experiment.warnings
    }
    for run in experiment.runs:
        for notice in run.all_warnings:
            found.setdefault((notice.code, notice.message), []).append(run)
    return [
        Warnings(code, message, runs_text(runs, experiment, groups))
        for (code, message), runs in found.items()
    ]


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
    return ", ".join([*texts, *(run.slug for run in left.values())])


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
    by_value: dict[str, list[str]] = {}
    for slug, value in values.items():
        by_value.setdefault(value, []).append(slug)
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
