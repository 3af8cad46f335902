"""Who is told how far an experiment has come, and what there is to tell of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.records.run import RunRecord
from tailtap.records.warnings import invalidating

OVERHEAD_SECONDS = 1.5
"""What a run takes besides its traffic: building the lab, evaluating."""


class Reporter(Protocol):
    """Is told what the runner does."""

    wants_ticks: bool
    """Whether to tell it about the passing of time: that wakes up the machine."""

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(self, *error: object) -> None:
        """End."""
        ...

    def noted(self, sentence: str) -> None:
        """Something is worth a word before the first run."""
        ...

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        ...

    def tick(self, seconds: float) -> None:
        """`seconds` of the running run's traffic have passed."""
        ...

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        """A run has ended, with this ``run.json``."""
        ...


class Silent:
    """Tells nothing."""

    wants_ticks = False

    def __init__(self, runs: list[PlannedRun], total: int) -> None:
        """For these of `total` runs."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def noted(self, sentence: str) -> None:
        """Something is worth a word."""

    def started(self, run: PlannedRun) -> None:
        """A run begins."""

    def tick(self, seconds: float) -> None:
        """Time passes."""

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        """A run has ended."""


Reporting = Callable[[list[PlannedRun], int], Reporter]
"""Makes a reporter for the runs that are still to be made, of so many in all."""


def seconds_of(experiment: Experiment) -> float:
    """How long a run takes, about."""
    return experiment.seconds + OVERHEAD_SECONDS


def reasons(record: RunRecord) -> list[str]:
    """Why an ended run has no result that counts: its error, or what makes it invalid."""
    if record.error is not None:
        return [f"{record.status}: {record.error}"]
    if record.valid is not False:
        return []
    return [f"invalid: {warning.message}" for warning in invalidating(record.warnings)]


def complaints(record: RunRecord) -> list[str]:
    """What a person should know about an ended run: its error and its warnings."""
    lines = [] if record.error is None else [f"{record.status}: {record.error}"]
    return lines + [f"warning: {warning.message}" for warning in record.warnings]
