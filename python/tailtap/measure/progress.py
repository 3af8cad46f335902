"""How far an experiment has come, told to a person on standard error."""

from __future__ import annotations

import sys
from typing import Any, Protocol, Self

from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun

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

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        ...

    def tick(self, seconds: float) -> None:
        """`seconds` of the running run's traffic have passed."""
        ...

    def finished(self, run: PlannedRun, record: dict[str, Any]) -> None:
        """A run has ended, with this content of ``run.json``."""
        ...


class Silent:
    """Tells nothing."""

    wants_ticks = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """End."""

    def started(self, run: PlannedRun) -> None:
        """A run begins."""

    def tick(self, seconds: float) -> None:
        """Time passes."""

    def finished(self, run: PlannedRun, record: dict[str, Any]) -> None:
        """A run has ended."""


class Lines(Silent):
    """One plain line when a run begins and one when it did not go well, for logs."""

    def __init__(self, total: int) -> None:
        """For an experiment of `total` runs."""
        self._total = total

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        print(f"run {run.number} of {self._total}: {run.slug}", file=sys.stderr, flush=True)

    def finished(self, run: PlannedRun, record: dict[str, Any]) -> None:
        """A run has ended."""
        for line in complaints(record):
            print(f"{run.slug}: {line}", file=sys.stderr, flush=True)


class Bar(Silent):
    """A progress bar with the time left, for a terminal."""

    wants_ticks = True

    def __init__(self, runs: list[PlannedRun]) -> None:
        """For the runs that are still to be made."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(stderr=True)
        # Refreshed by hand: a thread that redraws ten times a second would disturb the DuT.
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._total = sum(seconds_of(run.experiment) for run in runs)
        self._done = 0.0
        self._bar = self._progress.add_task("", total=self._total, left="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar."""
        self._progress.stop()

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        self._progress.update(self._bar, description=run.slug)
        self._show(0.0)

    def tick(self, seconds: float) -> None:
        """Time passes."""
        self._show(seconds)

    def finished(self, run: PlannedRun, record: dict[str, Any]) -> None:
        """A run has ended."""
        self._done += seconds_of(run.experiment)
        for line in complaints(record):
            self._console.print(f"{run.slug}: {line}", markup=False, highlight=False)
        self._show(0.0)

    def _show(self, seconds: float) -> None:
        now = min(self._total, self._done + seconds)
        left = max(0, round(self._total - now))
        text = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        self._progress.update(self._bar, completed=now, left=text, refresh=True)


def make_reporter(runs: list[PlannedRun], total: int, quiet: bool) -> Reporter:
    """The reporter that fits standard error: a bar only on a terminal, nothing when `quiet`."""
    if quiet:
        return Silent()
    return Bar(runs) if sys.stderr.isatty() else Lines(total)


def seconds_of(experiment: Experiment) -> float:
    """How long a run takes, about."""
    return experiment.seconds + OVERHEAD_SECONDS


def complaints(record: dict[str, Any]) -> list[str]:
    """What a person should know about an ended run: its error and its warnings."""
    lines = [] if record["error"] is None else [f"{record['status']}: {record['error']}"]
    return lines + [f"warning: {warning['message']}" for warning in record["warnings"]]
