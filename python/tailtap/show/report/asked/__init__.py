"""The figures that the experiment file asks for: read, drawn, and written with their data."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.analysis.figures.arranging import Arranged, Grid, arrange, values_of
from tailtap.analysis.figures.model import Figure, file_names
from tailtap.analysis.figures.reading import figures_in
from tailtap.analysis.runs.run import Experiment
from tailtap.base.errors import InputError
from tailtap.base.files import drafted, make_folder
from tailtap.show.report.asked.published import Published

KINDS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Asked:
    """A figure that was asked for; what is drawn, or why nothing can be."""

    figure: Figure
    name: str
    title: str
    arranged: Arranged | None
    reason: str = ""


def asked_figures(
    experiment: Experiment, file: Path | None, progress: Callable[[str], None] = lambda _: None
) -> list[Asked]:
    """The figures of `file`, or of the experiment's own file, of its runs.

    Runs of one's own or, where there are none, imported ones. A figure that these runs cannot fill
    says why. Raises `InputError` with the line where the file asks for what is not there.
    """
    own = experiment.folder / "experiment.yaml"
    if file is None and not own.is_file():
        return []
    runs = [run for run in experiment.finished if run.origin is None] or list(experiment.finished)
    figures = figures_in(file or own, values_of(runs), named=file is not None)
    published = Published(experiment, anywhere=file is not None)
    found = []
    for figure, name in zip(figures, file_names(figures), strict=True):
        progress(f"arranging {name}")
        try:
            arranged = arrange(figure, name, runs, published.beside)
        except InputError as error:
            found.append(Asked(figure, name, figure.heading, None, str(error)))
        else:
            found.append(Asked(figure, name, figure.heading, arranged))
    return found


def write_asked(every: Sequence[Asked], folder: Path, *, below: Path | None) -> list[Path]:
    """Write what was drawn, in three formats, and its data; returns the paths.

    Raises `OSError` when the folder cannot be written, and `InputError` when one from `below` on is
    a link.
    """
    import matplotlib as mpl

    from tailtap.show.report.asked.drawing import drawn
    from tailtap.show.report.figures import SETTINGS, save_figure

    if every:
        make_folder(folder, below=below)
    written: list[Path] = []
    for one in every:
        if one.arranged is None:
            continue
        if one.arranged.panels:
            with mpl.rc_context(SETTINGS):
                written += save_figure(drawn(one.arranged), folder, one.name, KINDS, below=below)
            written.append(_write(folder / f"{one.name}.csv", _data(one.arranged), below))
        for number, grid in enumerate(one.arranged.tables, 1):
            many = len(one.arranged.tables) > 1 or bool(one.arranged.panels)
            name = f"{one.name}-table{number if number > 1 else ''}" if many else one.name
            written.append(_write(folder / f"{name}.csv", _table(grid), below))
    return written


def _write(path: Path, rows: Sequence[Sequence[object]], below: Path | None) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    with drafted(path, below=below) as file:
        file.write(text.getvalue().encode("utf-8", "backslashreplace"))
    return path


def _data(arranged: Arranged) -> list[list[object]]:
    """All that is drawn, a row for each point; x and y in the base units of their heads."""
    x, y = arranged.x.quantity.column, arranged.y.quantity.column
    rows: list[list[object]] = [
        ["panel", "series", "role", "run", "what", f"x_{x}", f"y_{y}", f"low_{y}", f"high_{y}"]
    ]
    for panel in arranged.panels:
        for mark in panel.marks:
            label = arranged.series[mark.series].label
            places = range(len(mark.x))
            for at in places:
                where = float(mark.x[at])
                named = arranged.categories and mark.form != "dots" and where == round(where)
                what = arranged.categories[round(where)] if named else mark.test
                bounds = [
                    _cell(None if side is None else side[at]) for side in (mark.low, mark.high)
                ]
                rows.append(
                    [
                        panel.title,
                        label,
                        mark.role,
                        mark.run,
                        what,
                        _cell(where),
                        _cell(mark.y[at]),
                        *bounds,
                    ]
                )
    return rows


def _cell(value: float | None) -> object:
    """A number as short as it can be; nothing for none."""
    if value is None or math.isnan(value):
        return ""
    whole = round(float(value)) if abs(value) < 2**53 else value
    return whole if whole == value else repr(float(value))


def _table(grid: Grid) -> list[list[object]]:
    heads, rows = (grid.data_heads, grid.data) if grid.data_heads else (grid.heads, grid.rows)
    return [list(heads), *(list(row) for row in rows)]
