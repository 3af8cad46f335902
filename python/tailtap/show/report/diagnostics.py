"""Figures that commands draw of one run: diagnostics of a tail model, and what interrupts did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tailtap.analysis.figures.kinds import KINDS, Axis
from tailtap.analysis.figures.quantities import NUMBER, RATIO, SECONDS, TIME
from tailtap.analysis.figures.specification import BEFORE, Mark, Panel, Series, Specification
from tailtap.analysis.interrupts.runs import Sampled
from tailtap.analysis.runs.tail import SECOND_NS
from tailtap.analysis.runs.text import broken, count_text, time_text
from tailtap.analysis.tail import diagnostics
from tailtap.analysis.tail.analysis import TailModel
from tailtap.analysis.tail.assessment import Assessment
from tailtap.base.writing import writing
from tailtap.show.report.printing import write_figure

SERIES = tuple(Series("", color, color) for color in ("#1f5fa8", BEFORE, "#c0392b"))
SHOWN, OTHER, CHOSEN = range(3)
COUNTERS = 6
"""Counters in a figure: the associated ones first, then those that come closest."""
NAME_LETTERS = 30
UNFITTED = "No threshold gives a fit."


def write_diagnostics(
    figure: Specification, folder: Path, *, below: Path | None = None
) -> list[Path]:
    """Write a figure into `folder` as PNG, SVG and PDF; returns the paths.

    Raises `MachineError` when the folder cannot be written, and `InputError` when one from `below`
    on is a link.
    """
    with writing(folder, doing="write the figures"):
        return write_figure(figure, folder, figure.name, below=below)


def tail_figure(model: TailModel) -> Specification:
    """Six plots: stability of xi and scale, mean excess, quantiles, probabilities, levels.

    The latter three show the chosen threshold or, where none passes, the one with most clusters.
    For a threshold without a model, the levels are those of the data alone.
    """
    found, excess = diagnostics.stability(model.fitted), diagnostics.mean_excess(model.fitted)
    thresholds = [
        Mark(CHOSEN if one is model.chosen else OTHER, "span", "main", np.full(2, one.latency),
             np.array([0.0, 1.0]))
        for one in model.assessments
        if one.latency is not None
    ]  # fmt: skip
    above = (
        ("Stability of ξ", RATIO, found.u, found.xi, found.xi_low, found.xi_high),
        ("Stability of σ − ξu", TIME, found.u, found.scale, found.scale_low, found.scale_high),
        ("Mean excess", TIME, excess.u, excess.mean, excess.low, excess.high),
    )
    panels = [
        Panel(title, 0, place,
              (Mark(SHOWN, "area", "main", x, y, low, high), Mark(SHOWN, "points", "main", x, y),
               *thresholds),
              x=Axis("Threshold u", TIME), y=Axis("", quantity))
        for place, (title, quantity, x, y, low, high) in enumerate(above)
    ]  # fmt: skip
    fitted = [one for one in model.assessments if one.fit is not None]
    most = max(fitted, key=lambda one: one.fit.n if one.fit else 0, default=None)
    if (shown := model.chosen or most) is None:
        panels.append(Panel("", 1, 0, (), x=Axis("", TIME), y=Axis("", TIME), empty=UNFITTED))
    else:
        panels += [*_fit_panels(shown), _levels_panel(model, shown)]
    return _figure("tail", "Tail model", panels)


def _fit_panels(shown: Assessment) -> Iterator[Panel]:
    """What the model says beside what was observed."""
    for place, (title, quantity, points) in enumerate(
        (
            ("Quantiles", TIME, diagnostics.quantiles(shown)),
            ("Probabilities", RATIO, diagnostics.probabilities(shown)),
        )
    ):
        marks: tuple[Mark, ...] = ()
        low = None
        if points is not None:
            low = float(points.low.min(initial=points.model[0]))
            marks = (
                Mark(SHOWN, "area", "main", points.model, points.model, points.low, points.high),
                Mark(SHOWN, "line", "main", points.model, points.model),
                Mark(SHOWN, "dots", "main", points.model, points.observed),
            )
        yield Panel(f"{title}, over {shown.threshold.text}", 1, place, marks,
                    x=Axis("Model", quantity), y=Axis("Observed", quantity, low=low))  # fmt: skip


def _levels_panel(model: TailModel, shown: Assessment) -> Panel:
    """Return levels over the return period, and what was seen."""
    longest = max(
        [float(model.rest.packets), float(model.fitted.packets)]
        + [entry.horizon_ns / SECOND_NS * model.tail.rate for entry in model.levels]
    )
    marks, wide = [], False
    if (levels := diagnostics.levels(shown, longest)) is not None:
        per_second = model.tail.rate or 1.0
        seconds = levels.packets / per_second
        if not shown.refused:
            if levels.low.size:
                marks.append(Mark(SHOWN, "area", "main", seconds, levels.level,
                                  levels.low, levels.high))  # fmt: skip
                wide = bool(levels.high[-1] > 10 * levels.level[0])
            marks.append(Mark(SHOWN, "line", "main", seconds, levels.level))
        marks.append(Mark(SHOWN, "dots", "main", levels.seen_packets / per_second, levels.seen))
    title = "Levels seen: no model holds" if shown.refused else "Return levels"
    return Panel(title, 1, 2, tuple(marks), x=Axis("Return period (s)", SECONDS, log=True),
                 y=Axis("", TIME, log=wide))  # fmt: skip


def interrupts_figure(found: Sampled) -> Specification:
    """The late packets over time, and below them each counter's increments from 0 to its most."""
    late, windows, worst = found.late, found.windows, KINDS["worst"]
    bounds = (windows.bounds_ns - late.first_ns) / 1e9
    end = max(float(bounds[-1]), (late.last_ns - late.first_ns) / 1e9)
    time = Axis(worst.x.label, SECONDS, low=0, high=end)
    dots = Mark(SHOWN, "dots", "main", (late.ingress_ns - late.first_ns) / 1e9,
                late.latency_ns.astype(float))  # fmt: skip
    marks, names = [], {}
    for place, row in enumerate(found.record.counters[:COUNTERS], 1):
        rises = windows.increments[windows.names.index(row.name)]
        most = int(rises.max())
        foot = np.full(rises.size, -float(place))
        top = foot + 0.9 * rises / max(most, 1)
        color = CHOSEN if row.associated else OTHER
        marks.append(Mark(color, "boxes", "main", bounds[:-1], top, foot, top, bounds[1:]))
        name = broken(row.name.replace("_", " "), NAME_LETTERS)
        p = "" if row.p_value is None else f", p = {row.p_value:.3f}"
        names[0.45 - place] = f"{name}\nat most {count_text(most)}{p}"
    ranked = Axis("", NUMBER, low=-float(len(names) or 1), high=0, ticks=names)
    period = time_text(windows.period_ns)
    said = "red: associated"
    if found.record.answer == "cannot-tell":
        said = "cannot tell whether they belong together"
    panels = [
        Panel(f"{count_text(late.ingress_ns.size)} worst packets", 0, 0, (dots,), y=worst.y),
        Panel(f"Increments in {period} ({said})", 1, 0, tuple(marks), y=ranked),
    ]
    return _figure("interrupts", "Interrupts where packets are late", panels, time)


def _figure(name: str, title: str, panels: list[Panel], x: Axis | None = None) -> Specification:
    axis = Axis("", TIME)
    common = "" if x is None else "x"
    return Specification(
        name, title, x or axis, axis, tuple(panels), SERIES, common=common, wide=True
    )
