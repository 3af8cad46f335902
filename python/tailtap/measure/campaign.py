"""A campaign: a folder that is ours alone while it is filled with runs, until its end.

`run`, `search`, `improve`, `--against` and `observe` are campaigns, and differ in who says which
run comes next. A run that fails is recorded with its reason, and the others go on; what was
finished before an interruption is kept, and can be resumed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import yaml

from tailtap.analysis.runs.folder import ExperimentFolder, require_folder
from tailtap.base.document import MAX_BYTES, dotted
from tailtap.base.errors import Interrupted, NothingBegun, Occupied, TailtapError
from tailtap.base.files import copy, make_folder, slugify, write_json, write_text
from tailtap.base.foreign import read_bytes
from tailtap.base.writing import writing
from tailtap.host.changes import clean
from tailtap.records.record import as_json
from tailtap.records.run import RunRecord
from tailtap.records.search import Course, Ended
from tailtap.records.warnings import invalidating

if TYPE_CHECKING:
    from tailtap.experiment.model import Experiment
    from tailtap.experiment.plan import PlannedRun
    from tailtap.experiment.reading import CheckedExperiment
    from tailtap.measure.boots import Boots
    from tailtap.measure.roles import Stations
    from tailtap.records.live import LiveRecord


OVERHEAD_SECONDS = 1.5
"""What a run takes besides its traffic: building the lab, evaluating."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a user, a service manager or a closing terminal ends a campaign."""

R = TypeVar("R", bound=Course)


class Listener:
    """Hears how a campaign goes on. This one says nothing of it."""

    wants_ticks = False
    """Whether it is told that time passes: that wakes up the machine."""
    wants_numbers = False
    """Whether what is observed is counted meanwhile."""

    def begun(self, runs: Sequence[PlannedRun], total: int) -> None:
        """These of `total` runs are made now."""

    def noted(self, sentence: str) -> None:
        """Something is worth a word: before a run, or of a trial."""

    def started(self, run: PlannedRun) -> None:
        """A run begins."""

    def tick(self, seconds: float) -> None:
        """`seconds` of the running run's traffic have passed."""

    def measured(self, numbers: LiveRecord) -> None:
        """So much is known of what is observed."""

    def finished(self, run: PlannedRun, record: RunRecord) -> None:
        """A run has ended, with this ``run.json``."""

    def ended(self) -> None:
        """No run is made any more, also because one was interrupted."""


@dataclass
class Campaign:
    """The folder of a campaign, who hears of it, and the machines that it is about."""

    out: Path
    resume: bool = False
    """Whether the folder was begun before: what is whole in it stays as it is."""
    listeners: Sequence[Listener] = ()
    stations: Stations | None = None
    """Where the roles are; None: on this machine."""
    testbed: Path | None = None
    boots: Boots | None = None
    flush: str | None = None
    """How often taps write, for who looks meanwhile; None: when they must."""

    @property
    def folder(self) -> ExperimentFolder:
        """The folder, as one of an experiment."""
        return ExperimentFolder(self.out)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Have the folder, which nobody else writes into meanwhile; the first signal interrupts.

        Raises `Occupied` for what is no folder, `NothingBegun` where nothing is to be resumed,
        `InputError` when another one is at work, `NotWritten` for what the disk refuses, and
        `Interrupted` where nobody caught the interruption.
        """
        with writing(self.out, doing="store the results"):
            require_folder(self.out, resume=self.resume)
            with self.folder.locked(), interruptible():
                try:
                    yield
                except KeyboardInterrupt:
                    raise Interrupted("interrupted before anything was measured") from None

    def require_empty(self, begun: str = "") -> None:
        """Raises `Occupied` for a folder with something in it, perhaps what was `begun` before."""
        if any(self.out.iterdir()):
            raise Occupied("the folder is not empty", place=str(self.out), begun=begun)

    def begun(self, name: str) -> Path:
        """The file of this name in a folder that is resumed. Raises `NothingBegun`."""
        if not (self.out / name).exists():
            raise NothingBegun(f"there is no {name} in it to resume", place=str(self.out))
        return self.out / name

    def prepare(
        self,
        begun: str,
        texts: Mapping[str, str],
        resume: Callable[[], object] | None = None,
        runs: Path | None = None,
    ) -> None:
        """Begin the folder with these `texts` by their files' names, or `resume` what it holds.

        `runs` is where its runs are, unless these are those of an experiment.
        """
        if resume is not None and self.resume:
            resume()
        else:
            self.require_empty(begun)
            make_folder(runs or self.folder.runs, below=self.out)
            for name, text in texts.items():
                write_text(self.out / name, text, below=self.out)
        if self.testbed is not None:
            copy(self.testbed, self.folder.testbed, below=self.out)

    @contextlib.contextmanager
    def ending(
        self, kept: Callable[[], str], end: Callable[[Ended, str | None], object] | None = None
    ) -> Iterator[None]:
        """Have it `end` whatever happens: as done, as failed, or as interrupted.

        Raises `Interrupted` with what is `kept` and how to go on.
        """
        end = end or (lambda *_: None)
        try:
            yield
        except (KeyboardInterrupt, Interrupted):
            # Whatever it left of this process's lab, had it come during the removal.
            clean.remove([item for item in clean.find() if item.pid == os.getpid()])
            end("interrupted", "stopped by the user")
            raise Interrupted(f"interrupted: {kept()}") from None
        except (TailtapError, OSError) as error:
            with contextlib.suppress(OSError):  # the first error tells more
                end("failed", str(error))
            raise
        end("done", None)

    def note(self, sentence: str) -> None:
        """Tell who listens."""
        for one in self.listeners:
            one.noted(sentence)

    def measured(self, numbers: LiveRecord) -> None:
        """Tell who listens how much is known meanwhile."""
        for one in self.listeners:
            one.measured(numbers)


@dataclass
class Recorded(Generic[R]):
    """A campaign whose course is in a record, which is stored after each step."""

    FILE: ClassVar[str]

    campaign: Campaign
    record: R

    def store(self) -> None:
        """Replace the record's file."""
        out = self.campaign.out
        write_json(out / self.FILE, as_json(self.record), below=out)

    def end(self, status: Ended, error: str | None = None) -> None:
        """Record how it ended."""
        self.record.status, self.record.error, self.record.finished = status, error, now()
        self.store()


def now() -> str:
    """The time of day, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def default_folder(name: str) -> Path:
    """Where runs go when nobody says: its name and the time of day."""
    return Path(f"{slugify(name) or 'experiment'}-{datetime.now():%Y%m%d-%H%M%S}")


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


def experiment_text(checked: CheckedExperiment, source: Path) -> str:
    """The file as it was given, or what it amounts to when options or this machine changed it."""
    said = [f"--set {override!r}" for override in checked.overrides]
    said += checked.expanded
    if not said:
        return read_bytes(source, None, MAX_BYTES).decode()
    content = yaml.safe_dump(dict(checked.document.data), sort_keys=False, allow_unicode=True)
    return f"# {source.name} with {' '.join(said)}\n{content}"


def first_difference(one: object, other: object, path: tuple[str, ...] = ()) -> str | None:
    """The first key in which two documents differ, with both values; None when they do not."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in [*one, *(key for key in other if key not in one)]:
            found = first_difference(one.get(key), other.get(key), (*path, str(key)))
            if found is not None:
                return found
        return None
    return None if one == other else f"{dotted(path)} ({one!r} there, {other!r} here)"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """The first of `STOPS` raises `KeyboardInterrupt`; more of them cannot stop the cleaning.

    Nothing changes within another such context. After nohup(1) a hangup stays without effect.
    """
    if signal.getsignal(signal.SIGTERM) is _interrupt:
        yield
        return
    stops = [
        one for one in STOPS if one != signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN
    ]
    before = {one: signal.signal(one, _interrupt) for one in stops}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for one in STOPS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt
