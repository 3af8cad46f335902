"""The worst packets over the counters of interrupts, for print; figure 8 of the papers, tested."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tailtap.analysis.figures.specification import BEFORE
from tailtap.analysis.interrupts.analysis import Finding
from tailtap.analysis.runs.text import broken, count_text
from tailtap.base.writing import writing
from tailtap.records.interrupts import CounterRow
from tailtap.show.report.printing import SETTINGS, TIMES, WIDTH, log_ticks, write_figure

COLOR = "#1f5fa8"
MARK = "#c0392b"
ROWS = 6
"""Counters in the figure: the associated ones first, then those that come closest."""
NAME_LETTERS = 30


def write_interrupt_figures(
    finding: Finding, folder: Path, *, below: Path | None = None
) -> list[Path]:
    """Write `interrupts.png`, `.svg` and `.pdf` of one run into `folder`; returns the paths.

    Raises `MachineError` when the folder cannot be written, and `InputError` when one from `below`
    on is a link.
    """
    with writing(folder, doing="write the figures"), mpl.rc_context(SETTINGS):
        return write_figure(interrupts_figure(finding), folder, "interrupts", below=below)


def interrupts_figure(finding: Finding) -> Figure:
    """The late packets over time, and below them each counter's increments from 0 to its most."""
    shown = finding.counters[:ROWS]
    heights = [2.4, *(1.0 for _ in shown)]
    figure = Figure(figsize=(WIDTH, 1.7 + 0.42 * len(shown)), layout="constrained")
    top, *rows = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, height_ratios=heights
    )[:, 0]
    late, windows = finding.late, finding.windows
    top.plot((late.ingress_ns - late.first_ns) / 1e9, late.latency_ns, ".", color=COLOR,
             markersize=1.8, markeredgewidth=0, alpha=0.7, rasterized=True)  # fmt: skip
    top.set_yscale("log")
    top.yaxis.set_major_formatter(TIMES)
    log_ticks(top.yaxis)
    top.set_ylabel("Latency")
    top.set_title(_title(finding), loc="left", pad=3)
    bounds = (windows.bounds_ns - late.first_ns) / 1e9
    for axes, row in zip(rows, shown, strict=True):
        rises = windows.increments[windows.names.index(row.name)]
        color = MARK if row.associated else BEFORE
        axes.stairs(rises / max(int(rises.max()), 1), bounds, color=color, linewidth=0.6,
                    fill=True, alpha=0.35)  # fmt: skip
        axes.stairs(rises / max(int(rises.max()), 1), bounds, color=color, linewidth=0.5)
        axes.set_ylim(0, 1.08)
        axes.set_yticks([0, 1], labels=["0", count_text(int(rises.max()))])
        axes.set_ylabel(_label(row), rotation=0, ha="left", va="center", labelpad=4, fontsize=6)
        axes.yaxis.set_label_position("right")
        axes.grid(visible=False)
    last = rows[-1] if rows else top
    for axes in (top, *rows[:-1]):
        axes.tick_params(axis="x", length=0)
    last.set_xlabel("Time since the first packet (s)")
    last.set_xlim(0, max(float(bounds[-1]), float(np.ptp([late.first_ns, late.last_ns])) / 1e9))
    return figure


def _title(finding: Finding) -> str:
    period = TIMES(finding.windows.period_ns)
    many = f"{count_text(len(finding.late.ingress_ns))} worst packets, and increments in {period}"
    if finding.answer == "cannot-tell":
        return f"{many} (normalised): cannot tell whether they belong together"
    return f"{many} (normalised; red: associated)"


def _label(row: CounterRow) -> str:
    name = broken(row.name.replace("_", " "), NAME_LETTERS)
    return name if row.p_value is None else f"{name}\np = {row.p_value:.3f}"
