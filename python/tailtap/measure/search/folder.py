"""The folder of a search: ``search.json``, the trials, and the latencies at the rates found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailtap.analysis.runs.folder import ExperimentFolder, locked
from tailtap.measure.search.trial import Result, Settings, Trial
from tailtap.records.errors import InputError
from tailtap.records.files import file_name, read_json, write_json

SCHEMA = "tailtap.search/1"


class SearchFolder:
    """The folder that ``tailtap search --out DIR`` fills."""

    def __init__(self, path: Path) -> None:
        """The folder at `path`, existing or not."""
        self.path = path
        self.record = path / "search.json"
        self.experiment = path / "experiment.yaml"
        self.trials = ExperimentFolder(path / "trials", path)
        self.latency = ExperimentFolder(path / "latency", path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out of the folder. Raises `InputError` when one is at work."""
        with locked(self.path):
            yield

    def read(self) -> dict[str, Any]:
        """The content of ``search.json``. Raises `InputError`."""
        content = read_json(self.record)
        if content.get("schema") != SCHEMA:
            raise InputError(f"{self.record}: this is no search: its schema is not {SCHEMA}")
        return content

    def write(self, content: Mapping[str, Any]) -> None:
        """Replace ``search.json``."""
        write_json(self.record, content, below=self.path)


@dataclass(frozen=True)
class Made:
    """A finished trial: its result and where it is stored."""

    number: int
    slug: str
    result: Result
    warnings: tuple[str, ...]
    """Codes of the warnings of the run."""

    def as_json(self) -> dict[str, Any]:
        """A row of ``search.json``."""
        result, trial = self.result, self.result.trial
        return {
            "number": self.number,
            "slug": self.slug,
            "rate": trial.rate,
            "duration_ns": trial.duration,
            "give_up": trial.give_up,
            "packets": result.packets,
            "lost": result.lost,
            "loss": result.loss,
            "achieved_rate": result.achieved,
            "doubt": result.doubt,
            "given_up": result.given_up,
            "warnings": list(self.warnings),
        }


def made_of(row: Mapping[str, Any]) -> Made:
    """A trial from its row in ``search.json``. Raises `InputError` for a slug that is no name."""
    slug = file_name(row["slug"], "search.json: trials.slug")
    trial = Trial(row["rate"], row["duration_ns"], row["give_up"])
    result = Result(trial, row["packets"], row["lost"], row["achieved_rate"], row["doubt"],
                    row["given_up"])  # fmt: skip
    return Made(row["number"], slug, result, tuple(row["warnings"]))


def settings_as_json(settings: Settings, method: str) -> dict[str, Any]:
    """The settings of a search, for ``search.json``."""
    names = {"low": "from", "high": "to", "trial": "trial_ns", "short": "short_ns"}
    content = {names.get(name, name): value for name, value in asdict(settings).items()}
    return {"method": method, **content, "losses": list(settings.losses)}
