"""The folders of an experiment: what is stored where, and nothing half written.

Every JSON file appears whole or not at all. A run folder is written by the runner until its
status is final, which is written last, when everything else is on the disk; later steps only add
files to it. What was measured is never removed: a run that is made again is put aside.

Runs of servers: which of the transactions that their captures hold is the run's result.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tailtap.base.errors import InputError, NothingBegun, Occupied
from tailtap.base.files import make_folder, move, path_within, remove_tree, sync_tree, write_json
from tailtap.base.locks import lock
from tailtap.records.record import as_json, read, read_if_there
from tailtap.records.run import EvaluationSettings, PlanRow, RunRecord

if TYPE_CHECKING:
    from tailtap.analysis.evaluation.evaluate import Settings
    from tailtap.analysis.evaluation.model import Evaluation
    from tailtap.analysis.evaluation.transactions import Transactions
    from tailtap.analysis.evaluation.values import HopCaptures


STAMP_HEADER = 64
"""Bytes of a stamp file without a stamp; `tailtap.records.stamps` has it, too, and loads NumPy."""
SUFFIXES = (
    "pcap", "marks", "pcap.zst", "pcapng", "pcapng.zst", "mscap", "mscap.zst", "stamps"
)  # fmt: skip
"""What captures are called: those of taps, and those that were imported."""
CAPTURES = tuple(f"*.{suffix}" for suffix in SUFFIXES)
RAW = (*CAPTURES, "trace*.events", "interrupts.csv")
"""Files of measurements: as large as they are long, and published as they are or not at all."""
EVALUATION = "evaluation.json"
EARLIER = "earlier"
"""The folder beside that of the runs, with what earlier attempts at runs measured."""


def hop_captures(record: RunRecord | None, folder: Path) -> list[HopCaptures]:
    """The captures of each hop of a run in `folder`, by its record.

    Empty where packets were stamped at the ends only.
    """
    from tailtap.analysis.evaluation.values import NODE, QUEUE, HopCaptures

    taps = record.instruments.get("taps") if record else None
    points = (taps.points if taps else None) or []
    if len(points) <= 2:
        return []
    source = f"{folder / 'run.json'}: instruments.taps.points.file"
    files = [folder / path_within(point.file, source) for point in points]
    return [
        HopCaptures(point.before or "", before, behind, QUEUE if after.received else NODE)
        for (point, before), (after, behind) in pairwise(zip(points, files, strict=True))
    ]


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, top: Path | None = None) -> None:
        """The run folder at `path`, existing or not, in the folder `top` that the user named."""
        self.path = path
        self.top = top or path
        self.generator = path / "generator.json"
        self.evaluation = path / "evaluation"
        self.transactions = path / "transactions"
        self.record = path / "run.json"

    @property
    def ingress(self) -> Path:
        """What the tap before the DuT wrote: stamps or, where these were asked for, a pcap."""
        return self._capture("ingress")

    @property
    def egress(self) -> Path:
        """The same of the tap behind it."""
        return self._capture("egress")

    def _capture(self, name: str) -> Path:
        known = [self.path / f"{name}.{suffix}" for suffix in SUFFIXES]
        return next((path for path in known if path.exists()), known[-1])

    def read(self) -> RunRecord:
        """``run.json``. Raises `InputError`."""
        return read(self.record, RunRecord)

    def write(self, record: RunRecord) -> None:
        """Replace ``run.json``. When it says ``done``, all else is on the disk before."""
        if record.status == "done":
            sync_tree(self.path)
        content = as_json(record)
        first = {name: content[name] for name in ("schema", *PlanRow.__struct_fields__)}
        write_json(self.record, first | content, below=self.top)

    @property
    def done(self) -> bool:
        """Whether the run was finished; a missing or damaged record is not.

        One of others is where its captures are there.
        """
        try:
            status = self.read().status
        except InputError:
            return False
        return status == "done" or (status == "imported" and self.ingress.exists())

    @property
    def damage(self) -> str:
        """Why a run that is not whole has to be made again though it had come to an end, or nobody
        can say whether it had; empty where it had not.
        """
        try:
            record = read_if_there(self.record, RunRecord)
        except InputError as error:
            return str(error)
        done = record is not None and record.status == "done"
        return "some of its files are empty or missing" if done else ""

    @property
    def whole(self) -> bool:
        """Whether the run is done and has its results: what `--resume` keeps.

        Files of runs that were made before those were synchronised can be empty after a power cut.
        Stamps that somebody took away are no reason to measure again.
        """
        if not self.done:
            return False
        files = [self.generator, self.evaluation / EVALUATION, *self.stamps]
        try:
            files += self.evaluation.iterdir()
            return all(path.stat().st_size for path in files)
        except OSError:
            return False

    @property
    def stamps(self) -> list[Path]:
        """The files of taps that are there, those between the nodes of a line included."""
        return sorted(path for kind in CAPTURES for path in self.path.glob(kind))

    @property
    def measured(self) -> bool:
        """Whether packets were stamped, whatever became of the run."""
        return any(path.stat().st_size > STAMP_HEADER for path in self.stamps)

    def put_aside(self) -> None:
        """Move what an earlier attempt measured, if it did, to where its experiment keeps such."""
        if not self.measured:
            return
        earlier = self.path.parent.with_name(EARLIER)
        top = earlier.parent if self.top == self.path else self.top
        make_folder(earlier, below=top)
        names = (earlier / f"{self.path.name}-{number}" for number in itertools.count(1))
        target = next(path for path in names if not os.path.lexists(path))
        move(self.path, target, below=top)

    def start_anew(self) -> None:
        """Make the folder, empty, whatever an earlier attempt left in it."""
        make_folder(self.path.parent, below=self._above)
        remove_tree(self.path, below=self._above)
        make_folder(self.path, below=self._above)

    @property
    def _above(self) -> Path:
        """The folder that the user named, or that of a run folder which was named itself."""
        return self.path.parent if self.top == self.path else self.top


def resumed(folder: Path) -> str:
    """What makes the missing runs of a folder, behind a sentence; nothing where no experiment file
    says what they would be: runs that were observed or imported.
    """
    if not (folder / "experiment.yaml").is_file():
        return ""
    return "; `tailtap run --resume` goes on"


class ExperimentFolder:
    """The folder that ``tailtap run --out DIR`` fills."""

    def __init__(self, path: Path, top: Path | None = None) -> None:
        """The experiment folder at `path`, existing or not, in the folder that the user named."""
        self.path = path
        self.top = top or path
        self.experiment = path / "experiment.yaml"
        self.testbed = path / "testbed.yaml"
        self.plan = path / "plan.json"
        self.runs = path / "runs"
        self.earlier = path / EARLIER
        self.database = path / "results.duckdb"

    def run(self, slug: str) -> RunFolder:
        """The folder of the run called `slug`, existing or not."""
        return RunFolder(self.runs / slug, self.top)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out of the folder. Raises `InputError` when one is at work."""
        with locked(self.path):
            yield


def require_folder(out: Path, *, resume: bool) -> None:
    """Make the folder `out` of an experiment or a search, unless it is to be resumed.

    Nothing is written into it: that takes a lock first. Raises `Occupied` for what is no folder,
    and `NothingBegun` where nothing is.
    """
    if out.exists() and not out.is_dir():
        raise Occupied("this is a file, not a folder", place=str(out))
    if resume and not out.exists():
        raise NothingBegun("there is nothing to resume", place=str(out))
    make_folder(out)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of `folder`. Raises `InputError` when one is at work."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock(held, folder, seconds=0):
            raise InputError(
                "another tailtap is writing into this folder: wait for it or choose another folder"
            ).at(folder)
        yield
    finally:
        os.close(held)


MATCH = "transactions"
"""`evaluation.match` of an experiment whose DuT answers."""


def are_requests(asked: EvaluationSettings | None) -> bool:
    """Whether the captures of a run hold requests and answers, and not the same packets twice."""
    return asked is not None and asked.match == MATCH


def evaluate_requests(folder: RunFolder, settings: Settings, kind: str | None) -> Evaluation:
    """How long the requests of a run waited for their answers: the `kind` of `main_kind`.

    All kinds are written into the run's folder. Raises `InputError` when no request was answered,
    or none of the kind that is asked for.
    """
    from tailtap.analysis.evaluation.sources import source_of
    from tailtap.analysis.evaluation.transactions import transactions_by

    found = transactions_by(settings, source_of(folder.ingress), source_of(folder.egress))
    make_folder(folder.transactions, below=folder.top)
    found.write(folder.transactions)
    return main_kind(found, kind)


def main_kind(found: Transactions, wanted: str | None) -> Evaluation:
    """The transactions of the kind, or else of the one with most requests; of equal ones the first.

    Raises `InputError` where no request of the kind was answered.
    """
    if wanted is None:
        answered = [one for one in found.kinds if one.evaluation is not None]
        wanted = max(answered, key=lambda one: one.counts.requests).name
    if wanted not in found:
        there = ", ".join(found.answered)
        raise InputError(
            f"no request of kind {wanted} was answered, and there are {there}: take one of these "
            "in evaluation.transaction"
        )
    return found[wanted]
