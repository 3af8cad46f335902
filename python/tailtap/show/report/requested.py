"""The figures that the experiment file asks for: read, drawn, written with their data, shown."""

from __future__ import annotations

import base64
import csv
import io
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tailtap.analysis.figures.arranging import Layout, arrange, values_of
from tailtap.analysis.figures.beside import set_beside
from tailtap.analysis.figures.model import Figure, figures_in, file_names
from tailtap.analysis.figures.specification import Grid, Specification
from tailtap.analysis.runs.reader import read_runs, run_folders
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.base.errors import InputError
from tailtap.base.files import drafted, make_folder
from tailtap.base.foreign import RECORD_BYTES, read_bytes, within


@dataclass(frozen=True)
class Requested:
    """A figure that the file asks for; what is drawn, or why nothing can be."""

    figure: Figure
    name: str
    title: str
    drawn: Specification | None
    reason: str = ""
    wide: str = ""
    """Its pictures for a wide and for a narrow page: addresses with everything in them."""
    narrow: str = ""

    @property
    def described(self) -> str:
        """What it shows, for who does not see it."""
        if self.drawn is None:
            return ""
        lines = ", ".join(series.label for series in self.drawn.series if series.label)
        axes = f"{self.drawn.y.label} over {self.drawn.x.label or 'kinds'}"
        return f"{self.title}: {axes}" + (f"; {lines}" if lines else "")


def requested_figures(
    experiment: Experiment, file: Path | None, progress: Callable[[str], None] = lambda _: None
) -> list[Requested]:
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
    made = []
    for figure, name in zip(figures, file_names(figures), strict=True):
        progress(f"arranging {name}")
        try:
            drawn = arrange(figure, name, runs, published.beside)
        except InputError as error:
            made.append(Requested(figure, name, figure.heading, None, str(error)))
        else:
            made.append(Requested(figure, name, figure.heading, drawn))
    return made


def write_requested(every: Sequence[Requested], folder: Path, *, below: Path | None) -> list[Path]:
    """Write what was drawn, in three formats, and its data; returns the paths.

    Raises `OSError` when the folder cannot be written, and `InputError` when one from `below` on is
    a link.
    """
    from tailtap.show.report.printing import write_figure

    if every:
        make_folder(folder, below=below)
    written: list[Path] = []
    for one in every:
        if one.drawn is None:
            continue
        if one.drawn.panels:
            written += write_figure(one.drawn, folder, one.name, below=below)
            written.append(_write(folder / f"{one.name}.csv", data_of(one.drawn), below))
        for number, grid in enumerate(one.drawn.tables, 1):
            many = len(one.drawn.tables) > 1 or bool(one.drawn.panels)
            name = f"{one.name}-table{number if number > 1 else ''}" if many else one.name
            written.append(_write(folder / f"{name}.csv", _table(grid), below))
    return written


def with_pictures(
    every: Sequence[Requested], printed: Mapping[str, Path] = MappingProxyType({})
) -> list[Requested]:
    """The same with pictures for the page.

    `printed` are the SVG files of those that were drawn for print already, by their names.
    """
    return [_with_picture(one, printed.get(one.name)) for one in every]


def _with_picture(one: Requested, file: Path | None) -> Requested:
    if one.drawn is None or not one.drawn.panels:
        return one
    wide = read_bytes(file, file.parent, RECORD_BYTES) if file else _picture(one.drawn)
    # One column is as wide as a narrow page.
    narrow = wide if one.drawn.shape[1] == 1 else _picture(one.drawn, narrow=True)
    return replace(one, wide=_address(wide), narrow=_address(narrow))


def picture(figure: Specification) -> str:
    """The address of a figure's picture, which holds all of it."""
    return _address(_picture(figure))


def _picture(figure: Specification, *, narrow: bool = False) -> bytes:
    from tailtap.show.report.printing import in_format

    return in_format(figure, "svg", narrow=narrow)


def _address(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"


def _write(path: Path, rows: Sequence[Sequence[object]], below: Path | None) -> Path:
    with drafted(path, below=below) as file:
        file.write(as_csv(rows))
    return path


def as_csv(rows: Sequence[Sequence[object]]) -> bytes:
    """Rows as a file has them."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def data_of(figure: Specification) -> list[list[object]]:
    """All that is drawn, a row for each point; x and y in the base units of their heads."""
    x, y = figure.x.quantity.column, figure.y.quantity.column
    heads = ["panel", "series", "role", "run", "what", f"x_{x}", f"y_{y}", f"low_{y}", f"high_{y}"]
    return [list(heads), *_rows(figure)]


def _rows(figure: Specification) -> Iterator[list[object]]:
    for panel in figure.panels:
        for mark in panel.marks:
            label = figure.series[mark.series].label
            for at, where in enumerate(mark.x.tolist()):
                named = figure.categories and mark.form != "dots" and where == round(where)
                what = figure.categories[round(where)] if named else mark.test
                values = (
                    where,
                    *(None if side is None else side[at] for side in (mark.y, mark.low, mark.high)),
                )
                yield [panel.title, label, mark.role, mark.run, what, *map(_cell, values)]


def _cell(value: float | None) -> object:
    """A number as short as it can be; nothing for none."""
    if value is None or math.isnan(value):
        return ""
    whole = round(float(value)) if abs(value) < 2**53 else value
    return whole if whole == value else repr(float(value))


def _table(grid: Grid) -> list[list[object]]:
    heads, rows = (grid.data_heads, grid.data) if grid.data_heads else (grid.heads, grid.rows)
    return [list(heads), *(list(row) for row in rows)]


class Published:
    """Trees of published results, each read once."""

    def __init__(self, experiment: Experiment, *, anywhere: bool) -> None:
        """Those that figures of this experiment name; `anywhere`, where the user named their file.

        The experiment's own file may be a stranger's: it names what is in its folder.
        """
        self._experiment, self._anywhere = experiment, anywhere
        self._read: dict[str | None, Sequence[Run]] = {}

    def beside(self, figure: Figure, layout: Layout, arranged: Specification) -> Specification:
        """A figure with the published runs that it names; a tree that cannot be read is a note."""
        named = figure.beside
        if named is None:
            return arranged
        try:
            if named.path not in self._read:
                self._read[named.path] = self._runs(named.path)
            return set_beside(figure, layout, arranged, self._read[named.path])
        except InputError as error:
            return replace(arranged, notes=(*arranged.notes, f"Not beside it: {error}."))

    def _runs(self, path: str | None) -> Sequence[Run]:
        if path is None:
            return self._experiment.imported
        tree = Path(path) if self._anywhere else self._experiment.folder / path
        if not self._anywhere and not within(tree, self._experiment.folder):
            raise InputError(
                f"{path!r} leads out of {self._experiment.folder}: give the file that names it by "
                "--figures-from"
            )
        if tree.is_file() or run_folders(tree):
            return read_runs(tree).imported
        from tailtap.results.importers.importer import import_tree

        with tempfile.TemporaryDirectory(prefix="tailtap-") as folder:
            import_tree(tree, Path(folder))
            runs = read_runs(Path(folder)).imported
            # Read while the folder is there.
            return [run for run in runs if run.evaluation is not None]
