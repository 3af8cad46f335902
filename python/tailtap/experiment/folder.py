"""The folders of an experiment: what is stored where, and nothing half written.

Every JSON file appears whole or not at all. A run folder is written by the runner until its
status is final; later steps only add files to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

from tailtap.errors import InputError

Status = Literal["running", "done", "failed", "interrupted"]


def write_json(path: Path, content: object) -> None:
    """Write `content` to `path`, whole or not at all, and on the disk when this returns."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of ours. Raises `InputError` naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read it: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: this is no JSON file: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: this is no file of tailtap: it holds no JSON object")
    return cast("dict[str, Any]", content)


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
