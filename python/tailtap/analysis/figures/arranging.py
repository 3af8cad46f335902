"""Runs put into the panels and lines of a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from tailtap.analysis.figures.kinds import BINS, Axis, Trace
from tailtap.analysis.figures.model import Along, Figure
from tailtap.analysis.figures.quantities import CATEGORY, NUMBER, RATE, Quantity
from tailtap.analysis.figures.specification import (
    BEFORE,
    Entry,
    Mark,
    Panel,
    Role,
    Series,
    Specification,
)
from tailtap.analysis.runs.groups import SHADES, Colours, common_percentile, grouped, with_name
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import as_words, count_text
from tailtap.base.errors import InputError
from tailtap.base.units import format_rate, parse_size, parse_time

SIZE = Quantity("bytes", parse_size, lambda size: f"{count_text(round(size))}\u00a0B", "64 B")
LENGTH = Quantity("ns", parse_time, lambda ns: f"{ns / 1e9:g}\u00a0s", "1 s")
MOST_NAMES = 12
"""Kinds of interrupts, or causes, that a figure has room for; the others are summed up."""
OTHERS = "others"
LABELS = {
    "traffic.rate": "Packet rate",
    "traffic.size": "Packet size",
    "dut.line": "Nodes in a row",
    "dut.cgroup": "Version of control groups",
    "case": "Case",
}
"""What variables are called on an axis."""


@dataclass(frozen=True)
class Placed:
    """A run and where it is drawn: its panel's row and column, its series, its value at x."""

    run: Run
    row: int
    column: int
    series: int
    over: str = ""

    @property
    def line(self) -> tuple[int, int, int]:
        """Its panel and series: what is one row of a table, and one line without an axis."""
        return self.row, self.column, self.series


@dataclass(frozen=True)
class Layout:
    """The runs of a figure in their places."""

    placed: tuple[Placed, ...]
    titles: Mapping[tuple[int, int], str]
    series: tuple[Series, ...]
    columns: tuple[str, ...] = ("",)
    """The names of the columns of panels, and those of the rows."""
    rows: tuple[str, ...] = ("",)
    over: tuple[str, ...] = ()
    """The values at x in their order."""
    notes: tuple[str, ...] = ()

    def groups(self) -> list[list[Placed]]:
        """The runs that differ in nothing that is drawn: repeats, in the order of their numbers."""
        return list(grouped(self.placed, lambda one: (*one.line, one.over)).values())


def value_of(run: Run, variable: str) -> str | None:
    """The value of a variable in a run, as text; None where it has none."""
    found = run.variables.get(variable)
    if found is not None:
        return found
    known: dict[str, str | None] = {
        "traffic.rate": None if run.rate is None else format_rate(run.rate),
        "dut.platform": run.platform or None,
    }
    if run.origin is not None:
        known["folder"] = run.origin.short or run.origin.place
        known |= {f"folder.{n}": part for n, part in enumerate(PurePath(run.origin.place).parts, 1)}
    return known.get(variable)


def values_of(runs: Iterable[Run]) -> dict[str, list[str]]:
    """The values of each variable of some runs, in the order in which they come."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        parts = PurePath(run.origin.place).parts if run.origin else ()
        pseudo = ["folder", *(f"folder.{n}" for n in range(1, len(parts) + 1))] if parts else []
        for variable in (*run.variables, "traffic.rate", "dut.platform", *pseudo):
            value = value_of(run, variable)
            if value is not None:
                found.setdefault(variable, {})[value] = None
    return {variable: list(values) for variable, values in found.items()}


def matches(run: Run, wanted: Mapping[str, object]) -> bool:
    """Whether a run has all of these values, of which a list stands for any."""
    return all(
        value_of(run, variable)
        in [as_words(one) for one in (value if isinstance(value, list) else [value])]
        for variable, value in wanted.items()
    )


def lay_out(figure: Figure, runs: Sequence[Run]) -> Layout:
    """Put runs with a result into panels and series. Raises `InputError` where none is left."""
    chosen = [run for run in runs if matches(run, figure.runs)]
    valid = [run for run in chosen if run.valid is not False]
    notes = []
    if len(valid) < len(chosen):
        notes.append(
            f"{_runs(len(chosen) - len(valid))} left out: the generator did not send what "
            "was asked of it."
        )
    if not valid:
        raise InputError("no valid run with a result has these values")
    columns, rows = ((figure.panels or []) + [None, None])[:2]
    named = {variable for _, one in figure.along for variable in one.by}
    varied = values_of(valid)
    rest: list[str] = []
    for variable in dict.fromkeys(name for run in valid for name in _own_variables(run)):
        told = [*named, *rest]
        if variable in figure.made.sums_up or len(varied.get(variable, ())) < 2:
            continue
        if not follows(variable, told, valid):
            rest.append(variable)
    if "folder" in named:
        rest = [variable for variable in rest if not variable.startswith("folder.")]
    if figure.made.of in ("models", "table") and (figure.series or figure.made.pools):
        rest = []  # what varies besides is summed up
    by_column, by_row = _keys(columns, valid), _keys(rows, valid)
    lines = _keys(figure.series, valid, rest)
    over = _keys(figure.over, valid)
    titles = {
        (row, column): " · ".join(filter(None, (_name(columns, key), _name(rows, other))))
        for column, key in enumerate(by_column)
        for row, other in enumerate(by_row)
    }
    placed = tuple(
        Placed(
            run,
            by_row.index(_key(rows, run)),
            by_column.index(_key(columns, run)),
            lines.index(_key(figure.series, run, rest)),
            " · ".join(_key(figure.over, run)),
        )
        for run in valid
    )
    colours, series = Colours(), []
    for place, key in enumerate(lines):
        label = _name(figure.series, key, rest) or figure.title or ""
        light, dark = colours.next(wire=_is_wire(placed, place))
        series.append(Series(label, light, dark, dash=place // SHADES))
    return Layout(
        placed,
        titles,
        tuple(series),
        tuple(_name(columns, key) for key in by_column),
        tuple(_name(rows, key) for key in by_row),
        tuple(" · ".join(key) for key in over),
        tuple(notes),
    )


def follows(variable: str, named: Iterable[str], runs: Sequence[Run]) -> bool:
    """Whether the values of what is named, such as `case`, leave only one of a variable."""
    found: dict[tuple[str | None, ...], str | None] = {}
    return all(
        found.setdefault(tuple(value_of(run, name) for name in named), value) == value
        for run in runs
        for value in [value_of(run, variable)]
    )


def _own_variables(run: Run) -> list[str]:
    """What tells a run from others: its varied values or, imported, rate and folders, too."""
    parts = PurePath(run.origin.place).parts if run.origin else ()
    folders = [f"folder.{n}" for n in range(1, len(parts) + 1)]
    return [*run.variables, *(["traffic.rate"] if folders else []), *folders]


def _runs(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"


def _is_wire(placed: Sequence[Placed], series: int) -> bool:
    traits = [one.run.traits for one in placed if one.series == series]
    return all(one is not None and not one.has_dut for one in traits)


def _key(along: Along | None, run: Run, more: Sequence[str] = ()) -> tuple[str, ...]:
    by = (*(along.by if along else ()), *more)
    values = (value_of(run, variable) for variable in by)
    return tuple("–" if value is None else value for value in values)


def _keys(
    along: Along | None, runs: Sequence[Run], more: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """The values that runs have, in the order that is asked for, else as they come."""
    found = list(dict.fromkeys(_key(along, run, more) for run in runs))
    return sorted(found, key=along.place) if along is not None and along.order else found


def _name(along: Along | None, key: tuple[str, ...], more: Sequence[str] = ()) -> str:
    """What values are called: with their variables where these are needed and none is given."""
    by = (*(along.by if along else ()), *more)
    names = {} if along is None else along.names
    told = (
        names.get(value) or (with_name(variable, value) if value else "–")
        for variable, value in zip(by, key, strict=False)
    )
    return " · ".join(told)


def scale_of(along: Along | None, values: Sequence[str]) -> tuple[Axis, list[float]]:
    """The axis of a varied parameter and where each of its values lies.

    Several that are all numbers, or quantities of one kind, lie at these; others beside each other.
    """
    label = LABELS.get(along.by[0], along.by[0]) if along else ""
    if along is not None and not along.names and not along.order and len(set(values)) > 1:
        for quantity in (RATE, SIZE, LENGTH, NUMBER):
            try:
                places = [quantity.parse(value) for value in values]
            except InputError:
                continue
            spread = max(places) / max(min(places), 1e-12)
            return Axis(label, quantity, log=spread > 20 and min(places) > 0), places
    return Axis(label, CATEGORY), [float(place) for place in range(len(values))]


def worst_of(group: Sequence[Placed], p: float | None) -> Placed:
    """The worst repeat: the highest at the percentile `p`, then by its maximum."""

    def badness(one: Placed) -> tuple[int, int]:
        row = one.run.percentile(p) if p is not None else None
        return (row.value if row else 0, one.run.maximum or 0)

    return max(group, key=badness)


def common(layout: Layout) -> float | None:
    """The percentile by which the worst repeat is chosen."""
    return common_percentile(one.run.evaluation for one in layout.placed if one.run.evaluation)


def curves(figure: Figure, layout: Layout) -> list[tuple[Placed, Mark]]:
    """The marks of a kind with curves of each run."""
    assert figure.made.curves is not None
    p = common(layout)
    shown: list[tuple[Placed, bool]] = []
    for group in layout.groups():
        worst = worst_of(group, p)
        shown += [(one, one is worst) for one in group if one is worst or figure.repeats == "all"]
    return [
        (one, _mark(figure, one, trace, worst=worst))
        for one, worst in shown
        if one.run.evaluation is not None
        for trace in figure.made.curves(one.run.evaluation, BINS)
        if worst or not (trace.before or trace.low is not None)
    ]


def _mark(figure: Figure, one: Placed, trace: Trace, *, worst: bool) -> Mark:
    role: Role = "before" if trace.before else "main" if worst else "repeat"
    return Mark(
        one.series,
        "dots" if figure.made.dots else "line",
        role,
        trace.x,
        trace.y,
        trace.low,
        trace.high,
        supported=trace.supported,
        run=one.run.slug,
    )


def points(
    figure: Figure, layout: Layout, places: Mapping[str, float]
) -> list[tuple[Placed, Mark]]:
    """The marks of a kind with one value of each run: all repeats, and a line through one value."""
    value = figure.made.value
    assert value is not None
    lines: dict[tuple[int, int, int], list[tuple[float, Placed, float, float, float]]] = {}
    found: list[tuple[Placed, Mark]] = []
    for group in layout.groups():
        known = [(one, told) for one in group if (told := value(one.run, figure)) is not None]
        if not known:
            continue
        x = places[group[0].over]
        if figure.repeats == "all" and len(known) > 1:
            y = np.array([told.y for _, told in known])
            found.append(
                (group[0], Mark(group[0].series, "points", "repeat", np.full(y.size, x), y))
            )
        one, told = max(known, key=lambda pair: pair[1].y)
        low, high = told.low, told.high
        y_main = told.y
        if not figure.made.worst:
            every = [told.y for _, told in known]
            y_main = float(np.mean(every))
            low, high = min(every), max(every)
        nan = float("nan")
        bounds = (nan if low is None else low, nan if high is None else high)
        lines.setdefault(one.line, []).append((x, one, y_main, *bounds))
    for row in lines.values():
        row.sort(key=lambda entry: entry[0])
        x_of, y_of, low_of, high_of = (
            np.array([entry[place] for entry in row], float) for place in (0, 2, 3, 4)
        )
        names = ", ".join(entry[1].run.slug for entry in row)
        mark = Mark(row[0][1].series, "points", "main", x_of, y_of, low_of, high_of, run=names)
        found.append((row[0][1], mark))
    return found


def bars(figure: Figure, layout: Layout) -> tuple[list[tuple[Placed, Mark]], tuple[str, ...]]:
    """The marks of a kind with named values, and the names: the largest first."""
    named = figure.made.named
    assert named is not None
    told = [(group, [named(one.run, figure) for one in group]) for group in layout.groups()]
    sums: dict[str, float] = {}
    for _, every in told:
        for one in every:
            for name, value in one.items():
                sums[name] = sums.get(name, 0.0) + value
    names = sorted(sums, key=lambda name: (-sums[name], name))
    kept = names if len(names) <= MOST_NAMES else [*names[: MOST_NAMES - 1], OTHERS]
    found = []
    for group, every in told:
        rows = [_gathered(one, kept) for one in every if one]
        if not rows:
            continue
        values = np.array(rows)
        mark = Mark(
            group[0].series,
            "bars",
            "main",
            np.arange(len(kept), dtype=float),
            values.mean(axis=0),
            values.min(axis=0),
            values.max(axis=0),
            run=", ".join(one.run.slug for one in group),
        )
        found.append((group[0], mark))
    return found, tuple(kept)


def _gathered(values: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """The values under `names`, of which `OTHERS` has those that are not named."""
    rest = sum(value for name, value in values.items() if name not in names)
    return [rest if name == OTHERS else values.get(name, 0.0) for name in names]


def in_panels(layout: Layout, marks: Iterable[tuple[Placed, Mark]]) -> tuple[Panel, ...]:
    """The panels with their marks; one without any stays empty."""
    found: dict[tuple[int, int], list[Mark]] = {place: [] for place in layout.titles}
    for one, mark in marks:
        found[one.row, one.column].append(mark)
    return tuple(
        Panel(layout.titles[place], *place, tuple(marks)) for place, marks in found.items()
    )


def arrange(
    figure: Figure,
    name: str,
    runs: Sequence[Run],
    others: Callable[[Figure, Layout, Specification], Specification] | None = None,
) -> Specification:
    """A figure of runs. `others` adds what was published.

    Raises `InputError` where there is nothing to draw, or samples of counters cannot be read.
    """
    layout = lay_out(figure, runs)
    kind = figure.made
    base = Specification(
        name,
        figure.heading,
        kind.x,
        kind.y,
        series=layout.series,
        notes=(*_about(figure, layout), *layout.notes),
        required=tuple(figure.required),
    )
    if kind.of == "run":
        marks = curves(figure, layout)
        found = replace(base, panels=in_panels(layout, marks))
    elif kind.of == "value":
        axis, places = scale_of(figure.over, layout.over)
        by_text = dict(zip(layout.over, places, strict=True))
        shown = tuple(figure.over.name(value) if figure.over else value for value in layout.over)
        marks = points(figure, layout, by_text)
        known = {x for _, mark in marks for x in mark.x}
        without = [name for name, x in zip(shown, places, strict=True) if x not in known]
        found = replace(
            base,
            x=axis,
            y=_value_axis(figure),
            panels=in_panels(layout, marks),
            categories=shown if axis.quantity is CATEGORY else (),
            notes=(*base.notes, *([f"Without a value: {', '.join(without)}."] if without else [])),
        )
    elif kind.of == "names":
        marks, names = bars(figure, layout)
        found = replace(
            base, y=_value_axis(figure), panels=in_panels(layout, marks), categories=names
        )
    elif kind.of == "models":
        from tailtap.analysis.figures.tails import ensemble

        found = ensemble(figure, layout, base)
    else:
        from tailtap.analysis.figures.tables import table

        return table(figure, layout, base)
    if not any(panel.marks for panel in found.panels):
        raise InputError(_nothing(figure, layout))
    if others is not None:
        found = others(figure, layout, found)
    found = replace(found, x=figure.axes.x.of(found.x), y=figure.axes.y.of(found.y))
    return replace(found, legend=_legend(figure, found), measured=_measured(figure, found))


def _legend(figure: Figure, found: Specification) -> tuple[Entry, ...]:
    """What colours, dots and dashes stand for; nothing where there is one unnamed line."""
    marks = [mark for panel in found.panels for mark in panel.marks]
    entries = []
    for place, one in enumerate(found.series if len(found.series) > 1 else ()):
        form = next((mark.form for mark in marks if mark.series == place), None)
        if form is not None:
            apart = form == "points" and found.x.quantity is CATEGORY
            entries.append(Entry(one.label, one.light, "dots" if apart else form, one.dash))
    entries += [Entry(test, BEFORE, "dots", test=place) for place, test in enumerate(found.tests)]
    if figure.beside is not None and any(mark.role == "published" for mark in marks):
        entries.append(Entry(figure.beside.name, BEFORE, "line", role="published"))
    return tuple(entries)


def _measured(figure: Figure, found: Specification) -> tuple[float, ...]:
    """The values of a varied number, where these are few: nothing was measured between them."""
    if found.x.quantity is not NUMBER or figure.made.of != "value":
        return ()
    places = sorted({float(x) for panel in found.panels for mark in panel.marks for x in mark.x})
    return tuple(places) if len(places) <= 8 else ()


def _value_axis(figure: Figure) -> Axis:
    """The axis of values, named by what is asked for."""
    axis = figure.made.y
    if figure.kind == "percentile":
        return replace(axis, label=f"Latency, {figure.percentile or 'max'}")
    if figure.kind == "counter":
        per = figure.per or "packet"
        return replace(axis, label=f"{figure.counter} per {per}")
    if figure.kind == "interrupts":
        return replace(axis, label=f"Interrupts per {figure.per or 'second'}")
    return axis


def _about(figure: Figure, layout: Layout) -> list[str]:
    """What of the repeats is shown, where there are several."""
    if figure.kind == "highest-rate":
        return ["Bars end at the next rate that was found not to hold."]
    most = max((len(group) for group in layout.groups()), default=1)
    if most < 2 or figure.made.of not in ("run", "value", "names"):
        return []
    if figure.made.of == "names" or not (figure.made.worst or figure.made.of == "run"):
        return [f"Means of up to {most} repeats; bars from the least to the most."]
    p = common(layout)
    rule = "the largest latency" if p is None else f"the highest p{100 * p:.10g}"
    if figure.made.of == "value":
        rule = "the highest value"
    rest = "it alone is shown" if figure.repeats == "worst" else "the others are faint"
    return [f"Of up to {most} repeats, that with {rule} is drawn strong; {rest}."]


def _nothing(figure: Figure, layout: Layout) -> str:
    """Why a figure has nothing to draw."""
    if figure.kind == "highest-rate":
        return "no run is of a search: `tailtap search` finds what this figure shows"
    if figure.kind == "counter":
        from tailtap.analysis.interrupts.runs import EACH, known

        names = dict.fromkeys(name for one in layout.placed for name in known(one.run))
        told = ", ".join(names)
        wanted = [figure.counter, *({figure.per} - {None, *EACH})]
        return f"no run counted {' and '.join(map(repr, wanted))}" + (
            f"; they counted {told}" if told else ""
        )
    return "no run has what this kind of figure shows"
