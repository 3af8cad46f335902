"""What can be exported: run folders, experiment folders and bare evaluations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tailtap.errors import InputError
from tailtap.evaluation import Evaluation
from tailtap.files import read_json


@dataclass(frozen=True)
class StoredRun:
    """A finished run, or an evaluation that belongs to no run: its `record` is then empty."""

    number: int
    slug: str
    experiment: str
    record: Mapping[str, Any]
    #: The folder of its evaluation.
    folder: Path

    @property
    def repeat(self) -> int:
        """Which repeat it is, from 1."""
        return int(self.record.get("repeat") or 1)

    @property
    def variables(self) -> Mapping[str, Any]:
        """What the experiment varied, as written."""
        return cast("Mapping[str, Any]", self.record.get("variables") or {})

    @property
    def rate(self) -> int | None:
        """The rate that was asked for in pkt/s, where the run says."""
        traffic = (self.record.get("parameters") or {}).get("traffic") or {}
        rate = traffic.get("rate")
        return int(rate) if isinstance(rate, int | float) else None

    def evaluation(self) -> Evaluation:
        """The evaluation. Raises `InputError` when it is missing or damaged."""
        return Evaluation.load(self.folder)

    def meta(self) -> dict[str, Any]:
        """The content of `evaluation.json`. Raises `InputError`."""
        return read_json(self.folder / "evaluation.json")

    def table(self, name: str) -> pa.Table:
        """The table `name` of the evaluation. Raises `InputError`."""
        path = self.folder / f"{name}.parquet"
        try:
            return pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"{path}: cannot read it: {str(error).splitlines()[0]}; "
                "run tailtap evaluate --out again"
            ) from error


def find_runs(path: Path) -> list[StoredRun]:
    """The finished runs of an experiment folder, a run folder or a folder with an evaluation.

    Runs come in the order of their numbers. Raises `InputError` when `path` is none of these, or
    when no run of it was finished.
    """
    if (path / "runs").is_dir():
        folders = [record.parent for record in path.glob("runs/*/run.json")]
        runs = [run for folder in folders if (run := _run(folder))]
        if not runs:
            raise InputError(f"{path}: no run of it was finished; tailtap run --resume goes on")
        return sorted(runs, key=lambda run: (run.number, run.slug))
    if (path / "run.json").is_file():
        found = _run(path)
        if found is None:
            raise InputError(f"{path}: this run was not finished; tailtap run --resume goes on")
        return [found]
    if (path / "evaluation.json").is_file():
        name = path.resolve().name
        return [StoredRun(1, name, name, {}, path)]
    raise InputError(
        f"{path}: neither a run nor an experiment (no run.json, no runs/*/run.json, no "
        "evaluation.json); give a folder that tailtap run or tailtap evaluate --out wrote"
    )


def find_unfinished(path: Path) -> list[tuple[str, dict[str, Any], str]]:
    """The runs of an experiment or run folder that were not finished: name, record and reason.

    Raises `InputError` when a record is damaged.
    """
    folders = sorted(record.parent for record in path.glob("runs/*/run.json"))
    if not folders and (path / "run.json").is_file():
        folders = [path]
    found = []
    for folder in folders:
        record = read_json(folder / "run.json")
        status = record.get("status")
        if status != "done":
            reason = str(record.get("error") or f"its status is {status}")
            found.append((str(record.get("slug") or folder.name), record, reason))
    return found


def slugify(text: str) -> str:
    """`text` as part of a file's name: only ``a-z0-9.-``; ``10 kpkt/s`` becomes ``10kpkt-s``."""
    joined = re.sub(r"(?<=\d)\s+(?=[a-z])", "", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", joined).strip("-.")


def _run(folder: Path) -> StoredRun | None:
    record = read_json(folder / "run.json")
    if record.get("status") != "done":
        return None
    try:
        return StoredRun(
            int(record["number"]),
            str(record["slug"]),
            str(record["name"]),
            record,
            folder / "evaluation",
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder}/run.json: not a whole run record: {error!r}") from error
