"""The tail on a terminal: latency over percentile in a few lines, both axes logarithmic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.base.units import format_time
from tailtap.cli.terminal import say, width_of

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.model import Latencies

LINES = 10
"""Those of the figure, the ticks below it among them."""
WIDEST = 100
FEWEST = 100
"""Of fewer packets there is no tail to draw."""
READABLE = 2
"""With fewer ticks nobody reads how high a curve is: all packets took the same, or, of two clocks,
less than nothing."""


def print_spectrum(found: Latencies, title: str = "") -> None:
    """Draw the percentiles of an evaluation below a title; nothing where standard output is no
    terminal.
    """
    room = width_of(sys.stdout)
    if room is None or (found.packets or 0) < FEWEST:
        return
    import numpy as np
    import plotext

    from tailtap.analysis.figures.curves import (
        curve_of,
        tick_label,
        ticks_between,
        ticks_of_percentiles,
    )

    curve = curve_of(found)
    times = [] if curve is None else ticks_between(float(curve.y[0]), float(curve.y[-1]))
    if curve is None or len(times) < READABLE:
        return
    if title:
        say(title)
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(room, WIDEST), LINES)
    plotext.frame(False)
    plotext.plot(np.log10(curve.x).tolist(), np.log10(curve.y).tolist(), marker="braille")
    shares = [x for x in ticks_of_percentiles(float(curve.x[-1])) if x != 4]
    plotext.xticks(np.log10(shares).tolist(), [tick_label(x) for x in shares])
    plotext.yticks(np.log10(times).tolist(), [format_time(round(time)) for time in times])
    for line in plotext.uncolorize(plotext.build()).splitlines():
        print(line.rstrip())


def print_worst(folder: Path) -> None:
    """Draw the tail of the worst valid run of an experiment; of no device where none has one."""
    if width_of(sys.stdout) is None:
        return
    from dataclasses import replace

    from tailtap.analysis.runs.groups import configurations
    from tailtap.analysis.runs.reader import read_runs

    groups = configurations(read_runs(folder))
    chosen = [one for one in groups if not one.wire] or groups
    runs = tuple(member for one in chosen for member in one.members)
    worst = replace(chosen[0], members=runs).worst if chosen else None
    if worst is not None:
        title = f"the tail of {worst.run.slug}" + ", the worst run" * bool(runs[1:])
        print_spectrum(worst.evaluation, title)
