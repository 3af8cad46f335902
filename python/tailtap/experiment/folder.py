"""The folders of an experiment: what is stored where, and nothing half written.

Every JSON file appears whole or not at all. A run folder is written by the runner until its
status is final; later steps only add files to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tailtap.errors import InputError
from tailtap.files import read_json, write_json

Status = Literal["running", "done", "failed", "interrupted"]


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        """The run folder at `path`, existing or not."""
        self.path = path
        self.ingress = path / "ingress.stamps"
        self.egress = path / "egress.stamps"
        self.generator = path / "generator.json"
        self.evaluation = path / "evaluation"
        self.record = path / "run.json"

    def read(self) -> dict[str, Any]:
        """The content of ``run.json``. Raises `InputError`."""
        return read_json(self.record)

    def write(self, content: dict[str, Any]) -> None:
        """Replace ``run.json``."""
        write_json(self.record, content)

    @property
    def done(self) -> bool:
        """Whether the run was finished; a missing or damaged record is not."""
        try:
            return self.read().get("status") == "done"
        except InputError:
            return False

    def start_anew(self) -> None:
        """Make the folder, empty, whatever an earlier attempt left in it."""
        if self.path.exists():
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)


class ExperimentFolder:
    """The folder that ``tailtap run --out DIR`` fills."""

    def __init__(self, path: Path) -> None:
        """The experiment folder at `path`, existing or not."""
        self.path = path
        self.experiment = path / "experiment.yaml"
        self.plan = path / "plan.json"
        self.runs = path / "runs"
        self.database = path / "results.duckdb"

    def run(self, slug: str) -> RunFolder:
        """The folder of the run called `slug`, existing or not."""
        return RunFolder(self.runs / slug)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out of the folder. Raises `InputError` when one is at work."""
        lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise InputError(
                f"{self.path}: another tailtap is writing into this folder: wait for it or "
                "choose another folder"
            ) from error
        try:
            yield
        finally:
            os.close(lock)
