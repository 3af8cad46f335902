"""The diagnostic plots of a tail model, for print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tailtap.analysis.runs.tail import SECOND_NS
from tailtap.analysis.tail import diagnostics
from tailtap.analysis.tail.analysis import TailModel
from tailtap.analysis.tail.assessment import Assessment
from tailtap.base.writing import writing
from tailtap.show.report.printing import SETTINGS, TIMES, WIDTH, write_figure

COLOR = "#1f5fa8"
MARK = "#c0392b"


def write_tail_figures(model: TailModel, folder: Path, *, below: Path | None = None) -> list[Path]:
    """Write `tail.png`, `tail.svg` and `tail.pdf` of one run into `folder`; returns the paths.

    Raises `MachineError` when the folder cannot be written, and `InputError` when one from `below`
    on is a link.
    """
    with writing(folder, doing="write the plots"), mpl.rc_context(SETTINGS):
        return write_figure(tail_figure(model), folder, "tail", below=below)


def tail_figure(model: TailModel) -> Figure:
    """Six plots: stability of xi and scale, mean excess, quantiles, probabilities, levels.

    The latter three show the chosen threshold or, where none passes, the one with most clusters.
    For a threshold without a model, the levels are those of the data alone.
    """
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axes = figure.subplots(2, 3)
    stability = diagnostics.stability(model.fitted)
    excess = diagnostics.mean_excess(model.fitted)
    _band(axes[0, 0], stability.u, stability.xi, stability.xi_low, stability.xi_high)
    axes[0, 0].set_title("Stability of ξ", loc="left")
    _band(axes[0, 1], stability.u, stability.scale, stability.scale_low, stability.scale_high)
    axes[0, 1].set_title("Stability of σ − ξu", loc="left")
    axes[0, 1].yaxis.set_major_formatter(TIMES)
    _band(axes[0, 2], excess.u, excess.mean, excess.low, excess.high)
    axes[0, 2].set_title("Mean excess", loc="left")
    axes[0, 2].yaxis.set_major_formatter(TIMES)
    for panel in axes[0]:
        panel.set_xlabel("Threshold u")
        panel.xaxis.set_major_formatter(TIMES)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        for found in model.assessments:
            if found.latency is not None:
                mine = found is model.chosen
                panel.axvline(found.latency, color=MARK if mine else "#8a929a",
                              linewidth=0.8 if mine else 0.4, linestyle=(0, (4, 2)))  # fmt: skip
    shown = model.chosen or _most_bursts(model)
    if shown is None:
        for panel in axes[1]:
            panel.set_axis_off()
        axes[1, 0].text(0, 0.5, "No threshold has enough clusters for a fit.", fontsize=7)
        return figure
    _fit_panels(axes[1], model, shown)
    return figure


def _fit_panels(axes: Any, model: TailModel, shown: Assessment) -> None:
    for panel, points, title in (
        (axes[0], diagnostics.quantiles(shown), "Quantiles"),
        (axes[1], diagnostics.probabilities(shown), "Probabilities"),
    ):
        if points is not None:
            panel.fill_between(
                points.model, points.low, points.high, color=COLOR, alpha=0.14, linewidth=0
            )
            panel.plot(points.model, points.model, color=COLOR, linewidth=0.6)
            panel.plot(
                points.model, points.observed, ".", color=COLOR, markersize=2.2, markeredgewidth=0
            )
        panel.set_title(f"{title}, over {shown.threshold.text}", loc="left")
        panel.set_xlabel("Model")
        panel.set_ylabel("Observed")
    for axis in (axes[0].xaxis, axes[0].yaxis):
        axis.set_major_formatter(TIMES)
        axis.set_major_locator(MaxNLocator(4))
    longest = max(
        [float(model.rest.packets), float(model.fitted.packets)]
        + [entry.horizon_ns / SECOND_NS * model.tail.rate for entry in model.levels]
    )
    levels = diagnostics.levels(shown, longest)
    panel = axes[2]
    if levels is not None:
        per_second = model.tail.rate or 1.0
        seconds = levels.packets / per_second
        if levels.low.size and not shown.refused:
            panel.fill_between(
                seconds, levels.low, levels.high, color=COLOR, alpha=0.14, linewidth=0
            )
        if not shown.refused:
            panel.plot(seconds, levels.level, color=COLOR, linewidth=1)
        panel.plot(levels.seen_packets / per_second, levels.seen, ".", color=COLOR, markersize=2.2,
                   markeredgewidth=0)  # fmt: skip
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        if levels.high.size and not shown.refused and levels.high[-1] > 10 * levels.level[0]:
            panel.set_yscale("log")
        for axis in (panel.xaxis, panel.yaxis):
            if axis.get_scale() == "log":
                axis.set_major_locator(LogLocator(numticks=6))
                axis.set_minor_locator(NullLocator())
    panel.set_title("Levels seen: no model holds" if shown.refused else "Return levels", loc="left")
    panel.set_xlabel("Return period (s)")
    panel.yaxis.set_major_formatter(TIMES)


def _most_bursts(model: TailModel) -> Assessment | None:
    fitted = [found for found in model.assessments if found.fit is not None]
    return max(fitted, key=lambda found: found.fit.n if found.fit else 0, default=None)


def _band(axes: Any, x: Any, y: Any, low: Any, high: Any) -> None:
    axes.fill_between(x, low, high, color=COLOR, alpha=0.14, linewidth=0)
    axes.plot(x, y, color=COLOR, linewidth=1, marker=".", markersize=2.5)
    if np.size(y):
        axes.margins(x=0.02)
