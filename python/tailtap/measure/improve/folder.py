"""The folder of an improvement: ``improve.json``, and an ordinary folder of runs."""

from __future__ import annotations

from pathlib import Path

from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.base.files import write_json
from tailtap.records.record import as_json
from tailtap.records.search import ImproveRecord


class ImproveFolder(ExperimentFolder):
    """The folder that ``tailtap improve --out DIR`` fills."""

    def __init__(self, path: Path) -> None:
        """The folder at `path`, existing or not."""
        super().__init__(path)
        self.record = path / "improve.json"

    def write(self, record: ImproveRecord) -> None:
        """Replace ``improve.json``."""
        write_json(self.record, as_json(record), below=self.path)
