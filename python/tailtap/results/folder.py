"""The folders of an experiment: what is stored where, and nothing half written.

Every JSON file appears whole or not at all. A run folder is written by the runner until its
status is final, which is written last, when everything else is on the disk; later steps only add
files to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

from tailtap.errors import InputError
from tailtap.evaluation.values import NODE, QUEUE, HopCaptures
from tailtap.files import make_folder, read_json, sync_tree, write_json

Status = Literal["running", "done", "failed", "interrupted"]


class RunStore(Protocol):
    """Where runs are kept besides their folders; the module `tailtap.store` is one."""

    def begin_anew(self, database: Path) -> bool:
        """Leave only imported runs in the database; False when it was damaged and they are gone."""

    def add_runs(self, database: Path, folders: Sequence[Path]) -> None:
        """Put run folders into the database, in place of what it held of these runs."""


def hop_captures(record: Mapping[str, Any], folder: Path) -> list[HopCaptures]:
    """The captures of each hop of a run in `folder`, by its record.

    Empty where packets were stamped at the ends only, and of runs of earlier versions.
    """
    taps = (record.get("instruments") or {}).get("taps") or {}
    points = taps.get("points") or ()
    if len(points) <= 2:
        return []
    return [
        HopCaptures(
            point["before"],
            folder / point["file"],
            folder / after["file"],
            QUEUE if after.get("received") else NODE,
        )
        for point, after in pairwise(points)
    ]


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
        """Replace ``run.json``. When it says ``done``, all else is on the disk before."""
        if content["status"] == "done":
            sync_tree(self.path)
        write_json(self.record, content)

    @property
    def done(self) -> bool:
        """Whether the run was finished; a missing or damaged record is not."""
        try:
            return self.read().get("status") == "done"
        except InputError:
            return False

    @property
    def whole(self) -> bool:
        """Whether the run is done and has its results: what `--resume` keeps.

        Files of runs that were made before those were synchronised can be empty after a power cut.
        Stamps that somebody took away are no reason to measure again.
        """
        if not self.done:
            return False
        files = [self.generator, self.evaluation / "evaluation.json", *self.stamps]
        try:
            files += self.evaluation.iterdir()
            return all(path.stat().st_size for path in files)
        except OSError:
            return False

    @property
    def stamps(self) -> list[Path]:
        """The stamp files that are there, those between the nodes of a line included."""
        return sorted(self.path.glob("*.stamps"))

    def start_anew(self) -> None:
        """Make the folder, empty, whatever an earlier attempt left in it."""
        if self.path.exists():
            shutil.rmtree(self.path)
        make_folder(self.path)


class ExperimentFolder:
    """The folder that ``tailtap run --out DIR`` fills."""

    def __init__(self, path: Path) -> None:
        """The experiment folder at `path`, existing or not."""
        self.path = path
        self.experiment = path / "experiment.yaml"
        self.testbed = path / "testbed.yaml"
        self.plan = path / "plan.json"
        self.runs = path / "runs"
        self.database = path / "results.duckdb"

    def run(self, slug: str) -> RunFolder:
        """The folder of the run called `slug`, existing or not."""
        return RunFolder(self.runs / slug)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out of the folder. Raises `InputError` when one is at work."""
        with locked(self.path):
            yield


def require_folder(out: Path, *, resume: bool) -> None:
    """Make the folder `out` of an experiment or a search, unless it is to be resumed.

    Nothing is written into it: that takes a lock first. Raises `InputError` for what is no folder,
    or is not there.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: this is a file, not a folder: choose another --out")
    if resume and not out.exists():
        raise InputError(f"{out}: there is nothing to resume: check --out or omit --resume")
    make_folder(out)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of `folder`. Raises `InputError` when one is at work."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise InputError(
            f"{folder}: another tailtap is writing into this folder: wait for it or "
            "choose another folder"
        ) from error
    try:
        yield
    finally:
        os.close(lock)
