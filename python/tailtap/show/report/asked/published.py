"""The published runs that a figure is shown beside: found, imported, and put next to ours."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tailtap.analysis.figures.arranging import Arranged, Layout
from tailtap.analysis.figures.beside import set_beside
from tailtap.analysis.figures.model import Figure
from tailtap.analysis.runs.reader import read_runs, run_folders
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.base.errors import InputError
from tailtap.base.foreign import within
from tailtap.results.importers.importer import import_tree


class Published:
    """Trees of published results, each read once."""

    def __init__(self, experiment: Experiment, *, anywhere: bool) -> None:
        """Those that figures of this experiment name; `anywhere`, where the user named their file.

        The experiment's own file may be a stranger's: it names what is in its folder.
        """
        self._experiment, self._anywhere = experiment, anywhere
        self._read: dict[str | None, Sequence[Run]] = {}

    def beside(self, figure: Figure, layout: Layout, arranged: Arranged) -> Arranged:
        """A figure with the published runs that it names; a tree that cannot be read is a note."""
        asked = figure.beside
        if asked is None:
            return arranged
        try:
            if asked.path not in self._read:
                self._read[asked.path] = self._runs(asked.path)
            return set_beside(figure, layout, arranged, self._read[asked.path])
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
        with tempfile.TemporaryDirectory(prefix="tailtap-") as folder:
            import_tree(tree, Path(folder))
            return read_runs(Path(folder)).imported
