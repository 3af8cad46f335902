"""Evaluating runs again that were made before, perhaps with other settings or elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.clocks import clocks_of
from tailtap.analysis.evaluation.evaluate import Settings, of_run
from tailtap.analysis.evaluation.executors import Executor
from tailtap.analysis.evaluation.hops import settings_of_hop, with_hops
from tailtap.analysis.evaluation.many import Captures, Progress, evaluate_many
from tailtap.analysis.evaluation.values import HopCaptures
from tailtap.analysis.runs.flows import summarize_run
from tailtap.analysis.runs.folder import (
    EVALUATION,
    ExperimentFolder,
    RunFolder,
    are_requests,
    evaluate_requests,
    hop_captures,
    require_folder,
    resumed,
)
from tailtap.analysis.runs.reader import home_of, require_own, run_folders
from tailtap.base.errors import InputError, Interrupted, MachineError, Occupied, TailtapError
from tailtap.base.files import copy, make_folder, path_within
from tailtap.base.units import format_time
from tailtap.base.writing import writing
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import EvaluationsRecord
from tailtap.records.record import opened, read_if_there
from tailtap.records.run import EvaluationSettings, Parameters

Changes = Mapping[str, Any]
"""Fields of `Settings` by name: what takes the place of a run's own settings."""
OPTIONS: Mapping[str, tuple[str, Callable[[int], str]]] = {
    "trim_ns": ("trim", format_time),
    "window_ns": ("window", format_time),
    "bucket_ns": ("bucket", format_time),
    "worst": ("worst", str),
}
"""What an evaluation says of its settings, and how people call it."""
PrintLine = Callable[[str], object]
"""Called with a line about each run that has come to its end."""


@dataclass(frozen=True)
class Runs:
    """Runs in the order of their numbers, and the experiment that they are, if they are one."""

    path: Path
    folders: list[RunFolder]
    experiment: ExperimentFolder | None


def find(path: Path) -> Runs:
    """The runs of an experiment folder, of a folder of run folders, or a run folder alone.

    Raises `InputError` when there is none.
    """
    found = [RunFolder(folder, path) for folder in run_folders(path)]
    if not found:
        raise InputError(
            "there are no runs in it (no runs/*/run.json, no */run.json): give the "
            "folder of an experiment, or two captures"
        ).at(path)
    for run in found:
        require_own(run.path)
    numbers = {run.path: run.read().number for run in found}
    found.sort(key=lambda run: (numbers[run.path], run.path.name))
    return Runs(path, found, _experiment_of(path))


def _experiment_of(path: Path) -> ExperimentFolder | None:
    """The experiment that a folder is, or that its runs belong to."""
    if (path / "runs").is_dir():
        return ExperimentFolder(path)
    for runs in (path.absolute(), path.absolute().parent):
        if runs.name == "runs" and (runs.parent / "experiment.yaml").is_file():
            return ExperimentFolder(runs.parent)
    return None


def evaluate_again(
    runs: Runs,
    executor: Executor,
    changes: Changes,
    *,
    chunk_bytes: int,
    percentiles: Sequence[float],
    print_line: PrintLine,
    progress: Progress | None = None,
    replace: bool = False,
) -> Outcome:
    """Evaluate all finished runs and put the results in place of those that they had.

    Each run is evaluated as its ``run.json`` says, but for `changes`. Unless told to `replace`
    them, results with other settings stay. A run that cannot be evaluated keeps what it had, and
    the others go on.

    Raises `InputError` when no run is finished, another tailtap writes into the folder, or results
    with other settings would be replaced,
    `MachineError` when the executor cannot go on or results cannot be written, `Interrupted` when
    the user stopped it. Whatever was evaluated until then is kept.
    """
    pending = [run for run in runs.folders if run.done]
    if not pending and all(run.read().status == "imported" for run in runs.folders):
        raise InputError("its runs were imported without captures, which this needs").at(runs.path)
    if not pending:
        raise InputError(f"no run of it was finished{resumed(runs.path)}").at(runs.path)
    if not replace:
        require_same(runs.path, pending, changes, print_line)
    for run in pending:
        if not os.access(run.evaluation if run.evaluation.exists() else run.path, os.W_OK):
            raise MachineError(
                "its results could not be written: this needs the user who made it"
            ).at(run.path)
    requests = [run for run in pending if are_requests(_asked(run))]
    work = [_Work.of(run, changes) for run in pending if run not in requests]
    captures = [pair for one in work for pair in one.captures]
    owners = [one for one in work for _ in one.captures]
    places = [place for one in work for place in range(len(one.captures))]
    outcome = Outcome(runs)
    with runs.experiment.locked() if runs.experiment else contextlib.nullcontext():

        def ended(run: RunFolder, found: Evaluation | TailtapError) -> None:
            outcome.take(run, found, percentiles)
            print_line(f"{len(outcome.ended)} of {len(pending)}: {outcome.line(run)}")

        try:
            for run in requests:
                ended(run, _of_requests(run, changes))
            for index, found in evaluate_many(
                captures, executor, chunk_bytes=chunk_bytes, progress=progress
            ):
                one = owners[index]
                if one.take(places[index], found):
                    ended(one.run, one.result())
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted: {len(outcome.evaluations)} of {len(pending)} runs were evaluated; "
                "the others keep what they had"
            ) from None
    return outcome


@dataclass
class _Work:
    """A run on its way: its own captures, and those of its hops."""

    run: RunFolder
    hops: list[HopCaptures]
    captures: list[Captures]
    """Those at both ends first, then those of each hop."""
    found: dict[int, Evaluation | TailtapError] = field(default_factory=dict)
    """What has come of them, by their places."""

    @classmethod
    def of(cls, run: RunFolder, changes: Changes) -> _Work:
        settings = _settings(run, changes)
        hops = hop_captures(run.read(), run.path)
        own = settings_of_hop(settings)
        return cls(run, hops, [
            Captures(run.ingress, run.egress, settings),
            *(Captures(hop.ingress, hop.egress, own) for hop in hops),
        ])  # fmt: skip

    def take(self, place: int, found: Evaluation | TailtapError) -> bool:
        """Keep what has come of one pair; whether it was the last one."""
        self.found[place] = found
        return len(self.found) == len(self.captures)

    def result(self) -> Evaluation | TailtapError:
        """The evaluation of the run, or the error of the first pair that gave one."""
        evaluations: list[Evaluation] = []
        for place in range(len(self.captures)):
            one = self.found[place]
            if isinstance(one, TailtapError):
                return one
            evaluations.append(one)
        whole, *hops = evaluations
        try:
            return with_hops(whole, self.hops, hops) if hops else whole
        except TailtapError as error:
            return error


def require_same(
    path: Path, runs: Sequence[RunFolder], changes: Changes, print_line: Callable[[str], object]
) -> None:
    """Raise `InputError` when results would be replaced by those of other settings.

    Those that cannot be read are replaced, and `print_line` is told so.
    """
    found = []
    for run in runs:
        settings, with_key = _settings(run, changes), "key" in changes
        try:
            found.append((run, differences(run.evaluation, settings, with_key=with_key)))
        except InputError as error:
            print_line(f"{run.path.name}: {error}; it is evaluated anew")
    other = [(run, words) for run, words in found if words]
    if not other:
        return
    run, words = other[0]
    warm_up = warm_up_of(run) if any(one.startswith("trim") for one in words) else None
    raise InputError(
        f"{path}: {len(other)} of {len(runs)} runs have results with other settings "
        f"({run.path.name}: {', '.join(words)}), which would be replaced: give --out "
        "for a folder of its own, or --replace" + ("" if warm_up is None else f"; {warm_up}")
    )


def warm_up_of(run: RunFolder) -> str | None:
    """What trimming a run with a warm-up, of which nothing was stamped, does; None without any."""
    traffic = run.read().parameters.known.traffic
    if traffic is None or not (traffic.known.warm_up_packets or traffic.known.warm_up):
        return None
    packets = traffic.known.warm_up_packets
    warm_up = f"{packets} packets" if packets else format_time(traffic.known.warm_up)
    return (
        f"the stamps begin after the warm-up ({warm_up}), so that --trim leaves out what "
        "was measured"
    )


def differences(evaluation: Path, settings: Settings, *, with_key: bool) -> list[str]:
    """What the evaluation in a folder was made with, where that is not what `settings` say.

    Nothing where there is none. A key can be written in several ways:
    that of the run itself is not compared. Raises `InputError` when what is there cannot be read.
    """
    stored = read_if_there(evaluation / EVALUATION, EvaluationRecord)
    if stored is None:
        return []
    found = [
        f"{name} {show(before)}, now {show(getattr(settings, field))}"
        for field, (name, show) in OPTIONS.items()
        if (before := getattr(stored.options, field)) != getattr(settings, field)
    ]
    if with_key and settings.key not in ("auto", stored.key):
        found.append(f"key {stored.key}, now {settings.key}")
    return found


def copy_of(runs: Runs, out: Path, changes: Changes) -> Runs:
    """A new experiment folder `out` for results of these runs with other settings.

    It has the records of the runs with these settings, and what was measured, by hard links where
    there are such. Raises `InputError` for a folder that holds something, `MachineError` when it
    cannot be written.
    """
    with writing(out):
        require_folder(out, resume=False)
        if any(out.iterdir()):
            raise Occupied("the folder is not empty", place=str(out))
        made = ExperimentFolder(out)
        make_folder(made.runs, below=out)
        if runs.experiment is not None:
            for file in (runs.experiment.experiment, runs.experiment.plan):
                if not file.is_file():
                    continue
                copy(file, out / file.name, root=runs.experiment.path, below=out)
        for run in runs.folders:
            _copy(run, made.run(run.path.name), _settings(run, changes))
    return Runs(out, [made.run(run.path.name) for run in runs.folders], made)


def _copy(run: RunFolder, made: RunFolder, settings: Settings) -> None:
    record = run.read()
    parameters = record.parameters.whole
    evaluation = {**parameters.get("evaluation", {}), **settings.parameters}
    make_folder(made.path, below=made.top)
    brought = (one.files for one in record.instruments.values())
    names = {run.generator.name, *(path.name for path in run.stamps), *chain(*brought)}
    for name in sorted(names):
        file = path_within(name, f"{run.record}: instruments.files")
        if (run.path / file).exists():
            target = made.path / file
            make_folder(target.parent, below=made.top)
            copy(run.path / file, target, root=home_of(run.path), below=made.top, link=True)
    changed = {**parameters, "evaluation": evaluation}
    record.parameters = opened(made.record, changed, Parameters)
    made.write(record)


def _settings(run: RunFolder, changes: Changes) -> Settings:
    return of_run(_asked(run), clocks=clocks_of(run.read().taps), **changes)


def _asked(run: RunFolder) -> EvaluationSettings | None:
    return run.read().parameters.known.evaluation


def _of_requests(run: RunFolder, changes: Changes) -> Evaluation | TailtapError:
    """The evaluation of a run of a server, or why there is none."""
    asked = _asked(run)
    kind = None if asked is None else asked.transaction
    try:
        return evaluate_requests(run, _settings(run, changes), kind)
    except TailtapError as error:
        return error


@dataclass
class Outcome:
    """What has come of the runs so far."""

    runs: Runs
    evaluations: dict[str, EvaluationRecord] = field(default_factory=dict)
    """What `tailtap evaluate --json` prints, by the names of run folders."""
    errors: dict[str, TailtapError] = field(default_factory=dict)
    """Why runs could not be evaluated, by the names of their folders."""

    @property
    def ended(self) -> set[str]:
        """The names of the runs that have come to their end."""
        return {*self.evaluations, *self.errors}

    def take(
        self, run: RunFolder, found: Evaluation | TailtapError, percentiles: Sequence[float]
    ) -> None:
        """Keep the result of a run, on the disk first."""
        if isinstance(found, Evaluation):
            found.write(run.evaluation, below=run.top)
            self.evaluations[run.path.name] = found.record(percentiles)
        else:
            self.errors[run.path.name] = found

    def line(self, run: RunFolder) -> str:
        """The line about a run that has come to its end."""
        name = run.path.name
        if name in self.errors:
            return f"{name}: failed, its earlier evaluation stays: {self.errors[name]}"
        warnings = self.evaluations[name].warnings
        return "; ".join([name, *(f"warning: {warning.message}" for warning in warnings)])

    def summary(self) -> EvaluationsRecord:
        """What came of all runs."""
        experiment = self.runs.experiment
        rows = []
        for run in self.runs.folders:
            row = summarize_run(run, self.evaluations.get(run.path.name))
            if (error := self.errors.get(run.path.name)) is not None:
                row.status, row.error = "failed", str(error)
            rows.append(row)
        return EvaluationsRecord(
            folder=str(self.runs.path),
            database=str(experiment.database) if experiment else None,
            runs=rows,
        )
