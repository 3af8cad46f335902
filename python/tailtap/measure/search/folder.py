"""The folder of a search: ``search.json``, the trials, and the latencies at the rates found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailtap.analysis.runs.folder import ExperimentFolder, locked
from tailtap.base.files import file_name, write_json
from tailtap.measure.search.trial import Result, Settings, Trial
from tailtap.records.record import as_json, read
from tailtap.records.search import SearchRecord, SearchSettings, TrialRow


class SearchFolder:
    """The folder that ``tailtap search --out DIR`` fills."""

    def __init__(self, path: Path) -> None:
        """The folder at `path`, existing or not."""
        self.path = path
        self.record = path / "search.json"
        self.experiment = path / "experiment.yaml"
        self.testbed = path / "testbed.yaml"
        self.trials = ExperimentFolder(path / "trials", path)
        self.latency = ExperimentFolder(path / "latency", path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out of the folder. Raises `InputError` when one is at work."""
        with locked(self.path):
            yield

    def read(self) -> SearchRecord:
        """``search.json``. Raises `InputError`."""
        return read(self.record, SearchRecord)

    def write(self, record: SearchRecord) -> None:
        """Replace ``search.json``."""
        write_json(self.record, as_json(record), below=self.path)


@dataclass(frozen=True)
class Made:
    """A finished trial: its result and where it is stored."""

    number: int
    slug: str
    result: Result
    warnings: tuple[str, ...]
    """Codes of the warnings of the run."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The varied values of the configuration that was tried, as written."""

    def record(self) -> TrialRow:
        """A row of ``search.json``."""
        result, trial = self.result, self.result.trial
        return TrialRow(
            variables=dict(self.variables),
            number=self.number,
            slug=self.slug,
            rate=trial.rate,
            duration_ns=trial.duration,
            give_up=trial.give_up,
            packets=result.packets,
            lost=result.lost,
            loss=result.loss,
            achieved_rate=result.achieved,
            doubt=result.doubt,
            given_up=result.given_up,
            warnings=list(self.warnings),
        )


def made_of(row: TrialRow) -> Made:
    """A trial from its row in ``search.json``. Raises `InputError` for a slug that is no name."""
    slug = file_name(row.slug, "search.json: trials.slug")
    trial = Trial(row.rate, row.duration_ns, row.give_up)
    result = Result(trial, row.packets, row.lost, row.achieved_rate, row.doubt, row.given_up)
    return Made(row.number, slug, result, tuple(row.warnings), row.variables)


def settings_record(settings: Settings, method: str) -> SearchSettings:
    """The settings of a search, for ``search.json``."""
    return SearchSettings(
        method=method,
        losses=list(settings.losses),
        low=settings.low,
        high=settings.high,
        precision=settings.precision,
        trial_ns=settings.trial,
        trials=settings.trials,
        exceed=settings.exceed,
        short_ns=settings.short,
        tries=settings.tries,
    )
