"""The run of one flow while it is made, by traffic of ours or by observing a device."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.analysis.evaluation.clocks import clocks_of
from tailtap.analysis.evaluation.evaluate import Settings, evaluate_by, of_run
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.runs.folder import RunFolder, are_requests, evaluate_requests
from tailtap.base.bugs import STORAGE, kept
from tailtap.measure.campaign import now
from tailtap.records.run import RunRecord, Status


@dataclass
class FlowRun:
    """What is known of a run, and where it is kept."""

    folder: RunFolder
    record: RunRecord

    def begin(self) -> None:
        """Have its folder, with nothing but its record."""
        self.folder.start_anew()
        self.store()

    def store(self) -> None:
        """Replace its record's file."""
        self.folder.write(self.record)

    def end(self, status: Status, error: str | None = None) -> None:
        """Store how it ended."""
        self.record.status, self.record.error, self.record.finished = status, error, now()
        self.store()

    def evaluated(self) -> tuple[Evaluation, Settings]:
        """The evaluation of its stamps, and by which settings. Raises `TailtapError`."""
        asked = self.record.parameters.known.evaluation
        settings = of_run(asked, clocks=clocks_of(self.record.taps))
        if asked is not None and are_requests(asked):
            return evaluate_requests(self.folder, settings, asked.transaction), settings
        return evaluate_by(settings, self.folder.ingress, self.folder.egress), settings


def why_failed(error: Exception, folder: RunFolder) -> str:
    """What a run's record says of an error; a bug of ours is told in full in its folder.

    Raises what the disk is to blame for: it is of the results of other runs as well.
    """
    if isinstance(error, OSError) and error.errno in STORAGE:
        raise error
    return kept(error, folder.path)
