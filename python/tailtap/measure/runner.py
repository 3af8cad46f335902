"""`tailtap run`: the runs of an experiment, one after the other, into run folders.

A run that fails is recorded with its reason, and the others go on; an interrupted experiment
keeps what was finished and can be resumed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from tailtap.document import dotted, load
from tailtap.errors import InputError, Interrupted, MachineError, TailtapError
from tailtap.evaluation import evaluate
from tailtap.evaluation.evaluate import Settings
from tailtap.experiment.plan import PlannedRun, make_plan, plan_as_json
from tailtap.experiment.reading import CheckedExperiment
from tailtap.files import make_folder, slugify, write_json, write_text
from tailtap.machine import clean
from tailtap.machine.privileges import require_root
from tailtap.measure.boots import Boots, asks, grouped, wanted_of
from tailtap.measure.preconditions import require_clock, require_cpus, require_room
from tailtap.measure.progress import make_reporter
from tailtap.measure.quality import (
    Measured,
    Sent,
    external_rate,
    overloaded,
    warnings_of,
)
from tailtap.measure.run import DUT, Guard, Stations, Tick, everywhere, measure
from tailtap.results.folder import (
    ExperimentFolder,
    RunFolder,
    RunStore,
    Status,
    hop_captures,
    require_folder,
)
from tailtap.results.warnings import is_valid
from tailtap.roles.here import Here

SCHEMA = "tailtap.run/1"
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
    store: RunStore,
    resume: bool,
    quiet: bool,
    stations: Stations | None = None,
    testbed: Path | None = None,
    boots: Boots | None = None,
) -> list[RunFolder]:
    """Make all runs of the experiment read from `source` into the folder `out`, and into `store`.

    Roles are on their `stations`; without any they are on this machine, which is asked first
    whether it can have them. `testbed` is the file that says where the stations are, and `boots`
    boots the DuT's, if any run asks for that: then runs of one boot follow each other. Returns the
    run folders in the order of the plan, failed ones included. With `resume`, runs that are done
    and whole already stay as they are. Raises `InputError` for a folder that does not fit,
    `MachineError` when nothing can run here, `Interrupted` when the user stopped it.
    """
    plan = make_plan(checked)
    if boots is not None and not asks(plan):
        boots = None
    if stations is None:
        require_root()
        require_cpus(plan)
        require_clock(plan)
    folder = ExperimentFolder(out)
    with storage_errors(out):
        require_room(out, [run for run in plan if not _is_whole(folder, run)])
        require_folder(out, resume=resume)
        with folder.locked(), interruptible():
            _prepare(folder, checked, source, plan, resume)
            if testbed is not None:
                write_text(folder.testbed, testbed.read_text(encoding="utf-8"))
            try:
                return _run_all(folder, plan, store, quiet, stations, boots)
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
    store: RunStore,
    quiet: bool,
    stations: Stations | None,
    boots: Boots | None,
) -> list[RunFolder]:
    pending = [run for run in plan if not _is_whole(folder, run)]
    if boots is not None:
        pending = grouped(pending)
    if not quiet:
        for run in pending:
            if folder.run(run.slug).done:
                print(f"{run.slug}: some of its files are empty or missing: measuring it again",
                      file=sys.stderr)  # fmt: skip
    if not store.begin_anew(folder.database) and not quiet:
        print(
            f"{folder.database}: it is damaged and is written anew; imported runs in it are "
            "lost: import them again",
            file=sys.stderr,
        )
    for run in plan:
        if run not in pending:
            store.add_runs(folder.database, [folder.run(one.slug).path for one in run.group])
    with make_reporter(pending, sum(len(run.group) for run in plan), quiet) as reporter:
        for run in pending:
            reporter.started(run)
            tick = reporter.tick if reporter.wants_ticks else None
            record = make_run(run, folder.run(run.slug), tick, stations=stations, boots=boots)
            store.add_runs(folder.database, [folder.run(one.slug).path for one in run.group])
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
) -> dict[str, Any]:
    """Make one run and evaluate it; its record, with the reason when it failed.

    Each flow is evaluated as a run of its own: those of `together` go into folders beside this one.
    When one of them fails, all do. A run that the `guard` ended is done all the same; its
    ``generator`` says `interrupted`. With `keep_stamps` false its stamps are removed when it has
    ended.
    """
    stations = stations or everywhere(Here())
    flows = [_Flow(one, beside(folder, one), _first_record(one)) for one in run.group]
    for flow in flows:
        flow.folder.start_anew()
        flow.store()

    def end(status: Status, error: str | None) -> None:
        # The first one last: when it is done, so are the others.
        for flow in reversed(flows):
            for stamps in flow.folder.stamps if not keep_stamps else ():
                stamps.unlink(missing_ok=True)
            flow.record.update(status=status, error=error, finished=_now())
            flow.store()

    try:
        if boots is not None:
            booted = boots.bring(wanted_of(run.experiment), run.repeat)
            for flow in flows:
                flow.record["boot"] = booted or None
        # For each run: tuning may have changed since the last one.
        surroundings = stations[DUT].environment()
        for flow in flows:
            flow.record["environment"] = dict(surroundings)
            flow.store()
        folders = {flow.run.flow: flow.folder for flow in flows}
        measured = measure(run.experiment, folders, tick, guard, stations=stations)
        for flow in flows:
            flow.keep(measured)
            flow.share(flows[0].folder, measured)
        for flow in flows:
            flow.evaluate(measured.sent[flow.run.flow])
        # The load is that of all flows.
        valid = all(is_valid(flow.record["warnings"]) for flow in flows)
        for flow in flows:
            flow.record["valid"] = valid
    except TailtapError as error:
        end("failed", str(error))
        _clean(stations)
    except KeyboardInterrupt:
        end("interrupted", "stopped by the user")
        raise
    else:
        end("done", None)
    return flows[0].record


def beside(folder: RunFolder, run: PlannedRun) -> RunFolder:
    """The folder of a run that is stored in the same place as `folder`."""
    return RunFolder(folder.path.with_name(run.slug))


@dataclass(frozen=True)
class _Flow:
    """One flow of a measurement: what is known of its run, and where it is kept."""

    run: PlannedRun
    folder: RunFolder
    record: dict[str, Any]

    def store(self) -> None:
        self.folder.write(self.record)

    def keep(self, measured: Measured) -> None:
        """Enter what was measured into the record."""
        sent = measured.sent[self.run.flow]
        stamps = {
            "taps": {
                "facts": ["taps"],
                "files": list(sent.files),
                "cpus": sent.cpus,
                "points": list(sent.points),
            }
        }
        self.record.update(
            measured.facts,
            generator=sent.generator,
            taps=sent.taps,
            instruments={**stamps, **measured.brought},
            warnings=warnings_of(self.run.experiment, measured, self.run.flow),
        )

    def share(self, first: RunFolder, measured: Measured) -> None:
        """Have the files that instruments left in the folder of the first flow in this one too."""
        if self.folder.path == first.path:
            return
        for brought in measured.brought.values():
            for name in brought["files"]:
                (self.folder.path / name).hardlink_to(first.path / name)

    def evaluate(self, sent: Sent) -> None:
        """Evaluate the stamps and enter the warnings about them. Raises `TailtapError`."""
        experiment, settings = self.run.experiment, self.run.experiment.evaluation
        evaluation = evaluate(
            self.folder.ingress,
            self.folder.egress,
            key=settings.key,
            trim_ns=settings.trim,
            window_ns=settings.window,
        )
        hops = hop_captures(self.record, self.folder.path)
        if hops:
            from tailtap.evaluation.hops import evaluate_hops  # `--check` needs no arrays

            how = Settings(settings.key, settings.trim, settings.window)
            evaluation = evaluate_hops(evaluation, hops, how)
        evaluation.write(self.folder.evaluation)
        self.record["warnings"] += external_rate(
            experiment.traffic_of(self.run.flow), evaluation.inputs["ingress"]
        )
        self.record["warnings"] += overloaded(experiment, sent, evaluation.counts)


def _clean(stations: Stations) -> None:
    """Have the stations undo what a failed run left, as far as they can be reached."""
    for station in {id(one): one for one in stations.values()}.values():
        with contextlib.suppress(TailtapError):  # the next run says why
            station.clean()


def _first_record(run: PlannedRun) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "number": run.number,
        "slug": run.slug,
        "repeat": run.repeat,
        "status": "running",
        "error": None,
        "name": run.experiment.name,
        "variables": dict(run.variables),
        "parameters": run.experiment.parameters(run.flow),
        "traits": run.experiment.traits.as_json(),
        **run.experiment.graph().as_json(),
        "started": _now(),
        "finished": None,
        "generator": None,
        "taps": None,
        "forwarder": None,
        "platform": None,
        "tuning": None,
        "stations": {},
        "boot": None,
        "counters": None,
        "interrupts": None,
        "softnet": {},
        "steal_ns": {},
        "cpu_ns": {},
        "forwarder_memory": None,
        "elapsed_ns": None,
        "neighbours": {},
        "instruments": {},
        "warnings": [],
        "valid": None,
        "environment": {},
    }


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
        raise InputError(f"{out}: there is no experiment.yaml in it to resume: check --out")
    elif any(out.iterdir()):
        raise InputError(
            f"{out}: the folder is not empty: add --resume to finish the experiment in it, "
            "or choose another --out"
        )
    else:
        make_folder(folder.runs)
        write_text(folder.experiment, experiment_text(checked, source))
    write_json(folder.plan, plan_as_json(checked.name, plan))


def experiment_text(checked: CheckedExperiment, source: Path) -> str:
    """The file as it was given, or what it amounts to when options or this machine changed it."""
    said = [f"--set {override!r}" for override in checked.overrides]
    said += ["ablation written out for this machine"] if checked.expanded else []
    if not said:
        return source.read_text(encoding="utf-8")
    content = yaml.safe_dump(dict(checked.document.data), sort_keys=False, allow_unicode=True)
    return f"# {source.name} with {' '.join(said)}\n{content}"


def _refuse_another(folder: ExperimentFolder, checked: CheckedExperiment, source: Path) -> None:
    """Raises `InputError` when the folder belongs to a different experiment."""
    stored = load(folder.experiment).data
    difference = first_difference(stored, checked.document.data, ())
    if difference is not None:
        raise InputError(
            f"{folder.experiment} differs from {source} in {difference}: resume with "
            f"`tailtap run {folder.experiment} --out {folder.path} --resume`, "
            "or choose another --out"
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
    stops = [one for one in STOPS
             if one != signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]  # fmt: skip
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
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"{out}: cannot store the results: {error.strerror or error}: "
            "make room or choose another --out"
        ) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
