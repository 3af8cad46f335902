"""How far an experiment has come, told to a person on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tailtap.cli.terminal import folded, printable, warn, width_of
from tailtap.experiment.plan import PlannedRun
from tailtap.measure.campaign import Listener, complaints, reasons, seconds_of
from tailtap.records.run import RunRecord


class Reasons(Listener):
    """Only why runs gave no result that counts: one line for each reason."""

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        """A run has ended."""
        for reason in reasons(record):
            warn(f"{run.slug}: {reason}")


class Lines(Listener):
    """One plain line when a run begins and one when it did not go well, for logs."""

    _total = 0

    def begun(self, runs: Sequence[PlannedRun], total: int) -> None:
        """These of `total` runs are made now."""
        self._total = total

    def noted(self, sentence: str) -> None:
        """Something is worth a word."""
        warn(sentence)

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        warn(f"run {run.number} of {self._total}: {run.slug}")

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        """A run has ended."""
        for line in complaints(record):
            warn(f"{run.slug}: {line}")


class Bar(Listener):
    """A progress bar with the time left, for a terminal."""

    wants_ticks = True

    def begun(self, runs: Sequence[PlannedRun], total: int) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(stderr=True, width=width_of(sys.stderr))
        # Refreshed by hand: a thread that redraws ten times a second would disturb the DuT.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._total = sum(seconds_of(run.experiment) for run in runs)
        self._done = 0.0
        self._bar = self._progress.add_task("", total=self._total, left="")
        self._progress.start()

    def ended(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def noted(self, sentence: str) -> None:
        """Something is worth a word."""
        warn(sentence)

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        self._progress.update(self._bar, description=run.slug)
        self._show(0.0)

    def tick(self, seconds: float) -> None:
        """Time passes."""
        self._show(seconds)

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        """A run has ended."""
        self._done += seconds_of(run.experiment)
        for line in complaints(record):
            said = folded(printable(f"{run.slug}: {line}"), self._console.width)
            self._console.print(said, markup=False, highlight=False, soft_wrap=True)
        self._show(0.0)

    def _show(self, seconds: float) -> None:
        now = min(self._total, self._done + seconds)
        left = max(0, round(self._total - now))
        text = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        self._progress.update(self._bar, completed=now, left=text, refresh=True)


def listener(*, quiet: bool, watched: bool = False) -> Listener:
    """The listener that fits standard error: a bar only on a terminal, only reasons if `quiet`.

    Where the numbers are `watched`, the terminal shows these in place of a bar.
    """
    if quiet:
        return Reasons()
    return Bar() if not watched and sys.stderr.isatty() else Lines()
