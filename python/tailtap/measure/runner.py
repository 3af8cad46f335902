"""`tailtap run`: the runs of an experiment, one after the other, into run folders.

A run that fails is recorded with its reason, and the others go on; an interrupted experiment
keeps what was finished and can be resumed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import yaml
from msgspec.structs import asdict, replace

from tailtap.analysis.evaluation.evaluate import evaluate_by
from tailtap.analysis.evaluation.settings import of_run
from tailtap.analysis.runs.folder import (
    ExperimentFolder,
    RunFolder,
    hop_captures,
    require_folder,
)
from tailtap.analysis.runs.requests import are_requests, evaluate_requests
from tailtap.base.bugs import STORAGE, kept
from tailtap.base.document import MAX_BYTES, dotted, load
from tailtap.base.errors import Interrupted, NothingBegun, Occupied, TailtapError
from tailtap.base.files import copy, make_folder, remove, slugify, write_json, write_text
from tailtap.base.foreign import read_bytes
from tailtap.base.writing import writing
from tailtap.experiment.plan import PlannedRun, make_plan, plan_record
from tailtap.experiment.reading import CheckedExperiment
from tailtap.host.changes import clean
from tailtap.host.changes.privileges import require_root
from tailtap.measure.beside import Beside
from tailtap.measure.beside import warnings as warnings_beside
from tailtap.measure.boots import Boots, asks, grouped, wanted_of
from tailtap.measure.preconditions import require_events, require_here, require_room, stamp_bytes
from tailtap.measure.progress import Reporting, Silent
from tailtap.measure.quality import (
    Measured,
    Sent,
    external_rate,
    lost_heavily,
    warnings_of,
)
from tailtap.measure.roles.here import Here
from tailtap.measure.run import (
    DUT,
    Guard,
    Stations,
    StillWarmingUp,
    Tick,
    everywhere,
    measure,
)
from tailtap.records.generator import Generator, GeneratorRecord
from tailtap.records.record import Open, as_json, opened
from tailtap.records.run import Instrument, RunRecord, Status
from tailtap.records.taps import Tap
from tailtap.records.warnings import is_valid, notices

WRITTEN = (
    "the taps wrote every {} while packets were sent, so that the run could be watched: each time "
    "woke up a CPU that is not the device's"
)
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which a user, a service manager or a closing terminal ends the experiment."""


def default_folder(name: str) -> Path:
    """Where an experiment goes when nobody says: its name and the time of day."""
    return Path(f"{slugify(name) or 'experiment'}-{datetime.now():%Y%m%d-%H%M%S}")


def run_experiment(
    checked: CheckedExperiment,
    source: Path,
    out: Path,
    *,
    resume: bool,
    reporting: Reporting = Silent,
    stations: Stations | None = None,
    testbed: Path | None = None,
    boots: Boots | None = None,
    flush: str | None = None,
) -> list[RunFolder]:
    """Make all runs of the experiment read from `source` into the folder `out`, and into `store`.

    Roles are on their `stations`; without any they are on this machine, which is asked first
    whether it can have them. `testbed` is the file that says where the stations are, and `boots`
    boots the DuT's, if any run asks for that: then runs of one boot follow each other. Returns the
    run folders in the order of the plan, failed ones included. With `resume`, runs that are done
    and whole already stay as they are. `reporting`
    makes who is told how it goes on, and taps write as often as `flush` says, for who looks
    meanwhile. Raises
    `InputError` for a folder that does not fit, `MachineError` when nothing can run here,
    `Interrupted` when the user stopped it.
    """
    plan = make_plan(checked)
    if boots is not None and not asks(plan):
        boots = None
    if stations is None:
        require_root()
        require_here(plan)
        require_events(checked)
    folder = ExperimentFolder(out)
    with storage_errors(out):
        require_room(out, stamp_bytes([run for run in plan if not _is_whole(folder, run)]))
        require_folder(out, resume=resume)
        with folder.locked(), interruptible():
            _prepare(folder, checked, source, plan, resume)
            if testbed is not None:
                copy(testbed, folder.testbed, below=out)
            try:
                return _run_all(folder, plan, reporting, stations, boots, flush)
            except KeyboardInterrupt:
                remove_own_leftovers()
                done = sum(_is_whole(folder, run) for run in plan)
                raise Interrupted(
                    f"interrupted: {done} of {len(plan)} runs are kept; "
                    f"`tailtap run {source} --out {out} --resume` makes the rest"
                ) from None


def _run_all(
    folder: ExperimentFolder,
    plan: list[PlannedRun],
    reporting: Reporting,
    stations: Stations | None,
    boots: Boots | None,
    flush: str | None,
) -> list[RunFolder]:
    pending = [run for run in plan if not _is_whole(folder, run)]
    if boots is not None:
        pending = grouped(pending)
    reporter = reporting(pending, sum(len(run.group) for run in plan))
    for run in pending:
        if why := folder.run(run.slug).damage:
            reporter.noted(f"{run.slug}: {why}: measuring it again")
        for one in run.group:
            if folder.run(one.slug).measured:
                reporter.noted(f"{one.slug}: what was measured before goes to {folder.earlier}")
    for sentence in Beside.look().sentences if stations is None else ():
        reporter.noted(f"note: {sentence}")
    with reporter:
        for run in pending:
            reporter.started(run)
            tick = reporter.tick if reporter.wants_ticks else None
            record = make_run(
                run, folder.run(run.slug), tick, stations=stations, boots=boots, flush=flush
            )
            reporter.finished(run, record)
    return [folder.run(one.slug) for run in plan for one in run.group]


def _is_whole(folder: ExperimentFolder, run: PlannedRun) -> bool:
    return all(folder.run(one.slug).whole for one in run.group)


def make_run(
    run: PlannedRun,
    folder: RunFolder,
    tick: Tick | None = None,
    guard: Guard | None = None,
    *,
    keep_stamps: bool = True,
    stations: Stations | None = None,
    boots: Boots | None = None,
    flush: str | None = None,
) -> RunRecord:
    """Make one run and evaluate it; its record, with the reason when it failed.

    Each flow is evaluated as a run of its own: those of `together` go into folders beside this one.
    When one of them fails, all do. A run that the `guard` ended is done all the same; its
    ``generator`` says `interrupted`. With `flush` taps write so often. With `keep_stamps` false
    its stamps are removed when it has ended.
    """
    here = stations is None
    stations = stations or everywhere(Here())
    flows = [_Flow(one, beside(folder, one), _first_record(one)) for one in run.group]
    for flow in flows:
        if keep_stamps:
            flow.folder.put_aside()
        flow.folder.start_anew()
        flow.store()

    def end(status: Status, error: str | None) -> None:
        # The first one last: when it is done, so are the others.
        for flow in reversed(flows):
            for stamps in flow.folder.stamps if not keep_stamps else ():
                remove(stamps, below=flow.folder.top)
            flow.record.status, flow.record.error, flow.record.finished = status, error, _now()
            flow.store()

    try:
        if boots is not None:
            booted = boots.bring(wanted_of(run.experiment), run.repeat)
            for flow in flows:
                flow.record.boot = booted
        # For each run: tuning may have changed since the last one.
        surroundings = stations[DUT].environment()
        for flow in flows:
            flow.record.environment = surroundings
            flow.store()
        folders = {flow.run.flow: flow.folder for flow in flows}
        before = Beside.look()
        measured = measure(run.experiment, folders, tick, guard, stations=stations, flush=flush)
        others = list(warnings_beside(before, Beside.look())) if here else []
        if flush is not None:
            others.append({"code": "written-meanwhile", "message": WRITTEN.format(flush)})
        for flow in flows:
            flow.keep(measured)
            flow.record.warnings += notices(others)
            flow.share(flows[0].folder, measured)
        for flow in flows:
            flow.evaluate(measured.sent[flow.run.flow])
        # The load is that of all flows.
        valid = all(is_valid(flow.record.warnings) for flow in flows)
        for flow in flows:
            flow.record.valid = valid
    except Exception as error:
        if isinstance(error, OSError) and error.errno in STORAGE:
            raise  # of the results of the others as well
        if isinstance(error, StillWarmingUp):
            for flow in flows:
                flow.record.generator = _of_any(error.sent[flow.run.flow])
        # Whatever else happened in it, a bug of ours included, costs this run and no other one.
        end("failed", kept(error, folder.path))
        _clean(stations)
    except KeyboardInterrupt:
        end("interrupted", "stopped by the user")
        raise
    else:
        end("done", None)
    return flows[0].record


def beside(folder: RunFolder, run: PlannedRun) -> RunFolder:
    """The folder of a run that is stored in the same place as `folder`."""
    return RunFolder(folder.path.with_name(run.slug), folder.top)


@dataclass
class _Flow:
    """One flow of a measurement: what is known of its run, and where it is kept."""

    run: PlannedRun
    folder: RunFolder
    record: RunRecord

    def store(self) -> None:
        self.folder.write(self.record)

    def keep(self, measured: Measured) -> None:
        """Enter what was measured into the record."""
        sent = measured.sent[self.run.flow]
        stamped = sent.stamped
        taps = Instrument(
            facts=["taps"], files=stamped.files, cpus=sent.cpus, points=stamped.points
        )
        brought = {
            name: Instrument(facts=one.facts, files=one.files)
            for name, one in measured.brought.items()
        }
        self.record = replace(
            self.record,
            **asdict(measured.found),
            generator=_of_any(sent.generator),
            taps={name: opened(name, tap.whole, Tap) for name, tap in stamped.taps.items()},
            instruments={"taps": taps, **brought},
            warnings=warnings_of(self.run.experiment, measured, self.run.flow),
        )

    def share(self, first: RunFolder, measured: Measured) -> None:
        """Have the files that instruments left in the folder of the first flow in this one too."""
        if self.folder.path == first.path:
            return
        for brought in measured.brought.values():
            for name in brought.files:
                (self.folder.path / name).hardlink_to(first.path / name)

    def evaluate(self, sent: Sent) -> None:
        """Evaluate the stamps and enter the warnings about them. Raises `TailtapError`."""
        experiment = self.run.experiment
        asked = self.record.parameters.known.evaluation
        settings = of_run(asked)
        if asked is not None and are_requests(asked):
            evaluation = evaluate_requests(self.folder, settings, asked.transaction)
        else:
            evaluation = evaluate_by(settings, self.folder.ingress, self.folder.egress)
        hops = hop_captures(self.record, self.folder.path)
        if hops:
            from tailtap.analysis.evaluation.hops import evaluate_hops  # `--check` needs no arrays

            evaluation = evaluate_hops(evaluation, hops, settings)
        if self.record.events:
            from tailtap.analysis.evaluation.around import around

            self.record.events, self.record.beside_events = around(
                self.record.events,
                self.folder.ingress,
                self.folder.egress,
                trim_ns=settings.trim_ns,
                window_ns=settings.window_ns,
            )
        lost = sum(one.around.lost for one in self.record.events if one.around is not None)
        evaluation.write(self.folder.evaluation, below=self.folder.top)
        self.record.warnings += notices(
            [
                *external_rate(
                    experiment.traffic_of(self.run.flow),
                    evaluation.inputs.ingress,
                    evaluation.counts.ingress if experiment.answers else None,
                ),
                *lost_heavily(
                    experiment,
                    sent,
                    evaluation.counts,
                    evaluation.loss_patterns,
                    self.record.softnet,
                    lost,
                ),
            ]
        )


def _of_any(told: Open[GeneratorRecord]) -> Open[Generator]:
    """What a generator says, as a run has it of any."""
    return opened("the generator", told.whole, Generator)


def _clean(stations: Stations) -> None:
    """Have the stations undo what a failed run left, as far as they can be reached."""
    for station in {id(one): one for one in stations.values()}.values():
        with contextlib.suppress(TailtapError):  # the next run says why
            station.clean()


def _first_record(run: PlannedRun) -> RunRecord:
    row, graph = run.row(), run.experiment.graph()
    return RunRecord(
        number=row.number,
        slug=row.slug,
        repeat=row.repeat,
        variables=row.variables,
        parameters=row.parameters,
        name=run.experiment.name,
        status="running",
        started=_now(),
        warnings=[],
        traits=run.experiment.traits,
        nodes=[node.record() for node in graph.nodes],
        links=[link.record() for link in graph.links],
        flows=[flow.record() for flow in graph.flows],
    )


def _prepare(
    folder: ExperimentFolder,
    checked: CheckedExperiment,
    source: Path,
    plan: list[PlannedRun],
    resume: bool,
) -> None:
    """Fill the experiment's folder, or make sure that what is there fits. It is ours alone."""
    out = folder.path
    if resume and folder.experiment.exists():
        _refuse_another(folder, checked, source)
    elif resume:
        raise NothingBegun("there is no experiment.yaml in it to resume", place=str(out))
    elif any(out.iterdir()):
        raise Occupied("the folder is not empty", place=str(out), begun="the experiment")
    else:
        make_folder(folder.runs, below=out)
        write_text(folder.experiment, experiment_text(checked, source), below=out)
    write_json(folder.plan, as_json(plan_record(checked.name, plan)), below=out)


def experiment_text(checked: CheckedExperiment, source: Path) -> str:
    """The file as it was given, or what it amounts to when options or this machine changed it."""
    said = [f"--set {override!r}" for override in checked.overrides]
    said += ["ablation written out for this machine"] if checked.expanded else []
    if not said:
        return read_bytes(source, None, MAX_BYTES).decode()
    content = yaml.safe_dump(dict(checked.document.data), sort_keys=False, allow_unicode=True)
    return f"# {source.name} with {' '.join(said)}\n{content}"


def _refuse_another(folder: ExperimentFolder, checked: CheckedExperiment, source: Path) -> None:
    """Raises `Occupied` when the folder belongs to a different experiment."""
    stored = load(folder.experiment).data
    difference = first_difference(stored, checked.document.data, ())
    if difference is not None:
        raise Occupied(
            f"this differs from {source} in {difference}",
            place=str(folder.experiment),
            remedy=f"resume with {folder.experiment}",
        )


def first_difference(one: object, other: object, path: tuple[str, ...]) -> str | None:
    """The first place at which two experiments differ; None when they do not."""
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


def remove_own_leftovers() -> None:
    """Whatever the interruption left of this process's lab, had it come during the removal."""
    clean.remove([item for item in clean.find() if item.pid == os.getpid()])


@contextlib.contextmanager
def storage_errors(out: Path) -> Iterator[None]:
    """Turn an `OSError` about the folder `out` into a `MachineError`."""
    with writing(out, doing="store the results"):
        yield


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
