"""`tailtap search`: make the trials that a method asks for, and measure latency at its rates.

Every trial is a run like any other, in a folder of its own. ``search.json`` is written after each
trial, so that an interrupted search continues there: the method starts again and is sent the
results of the trials that were made.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tailtap.analysis.runs.folder import RunFolder, require_folder
from tailtap.analysis.runs.searched import in_words
from tailtap.analysis.runs.summary import summarize
from tailtap.base.document import load
from tailtap.base.errors import (
    InputError,
    Interrupted,
    MachineError,
    NothingBegun,
    Occupied,
    TailtapError,
)
from tailtap.base.files import copy, make_folder, write_text
from tailtap.base.units import exact_rate, format_rate, format_time
from tailtap.experiment.combinations import CASES, EXCLUDE, VARY, where_varied
from tailtap.experiment.matching import Matching
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun, name_of, plan_run
from tailtap.experiment.reading import CheckedExperiment, read_experiment
from tailtap.host.changes.privileges import require_root
from tailtap.lab.generators.model import MAX_PACKETS
from tailtap.lab.generators.pattern import Ramp
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.measure.boots import Boots, Wanted, asks
from tailtap.measure.preconditions import require_here
from tailtap.measure.progress import Reporting
from tailtap.measure.quality import shortfall, slipped, too_slow
from tailtap.measure.run import Stations
from tailtap.measure.runner import (
    beside,
    experiment_text,
    first_difference,
    interruptible,
    make_run,
    remove_own_leftovers,
    run_experiment,
    storage_errors,
)
from tailtap.measure.search import METHODS
from tailtap.measure.search.answer import Answer, answer
from tailtap.measure.search.folder import Made, SearchFolder, made_of, settings_record
from tailtap.measure.search.guard import LossGuard
from tailtap.measure.search.trial import Bounds, Result, Settings, Trial
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import ExperimentRecord
from tailtap.records.machine import Booted
from tailtap.records.record import as_json, read
from tailtap.records.run import RunRecord
from tailtap.records.search import Ended, SearchedRecord, SearchRecord
from tailtap.records.warnings import invalidating

MOST_TRIALS = 500
"""A search that needs more trials than this follows noise."""
SHARES = (1.0, 0.9, 0.5, 0.1)
"""Latency is measured at these shares of the rates found, unless others are asked for."""
UNREACHED = "the generator did not reach it: it was still busy with the warm-up when it was ended"
RATE, DURATION = "traffic.rate", "traffic.duration"
"""What a search chooses for its trials."""

Combination = tuple[Mapping[str, Any], Experiment]
"""The varied values of a configuration as written, and the experiment with them in place."""
PrintLine = Callable[[str], object]
"""Called with a line about each trial."""


@dataclass(frozen=True)
class Plan:
    """A search, or one for each combination of what varies, whose experiment and settings are
    valid.
    """

    checked: CheckedExperiment
    source: Path
    settings: Settings
    method: str
    keep_stamps: bool = False
    shares: Sequence[float] = SHARES
    """Where latency is measured then, as shares of the rates found; nowhere without any."""

    def __post_init__(self) -> None:
        """Raise `InputError` for an experiment or settings that no search can use."""
        if any(not 0 < share <= 1 for share in self.shares):
            raise InputError(
                "--latency-at must be above 0 and at most 100 %: it is a share of the rate"
            )
        chosen = [said.partition("=")[0].strip() for said in self.checked.overrides]
        varied = self.checked.combinations[0][0]
        for key, remedy in (
            (RATE, "--from and --to"),
            (DURATION, "--trial and --short"),
        ):
            if key in varied:
                place = self.checked.document.place(where_varied(self.checked.document, key) or ())
                raise InputError(f"the search chooses it: give {remedy}").at(key).at(place)
        if RATE in chosen:
            raise InputError(
                "--set traffic.rate: the search chooses the rate: give --from and --to"
            )
        for _, experiment in self.checked.combinations:
            self._require_searchable(experiment)

    def _require_searchable(self, experiment: Experiment) -> None:
        document = self.checked.document
        for name, flow in experiment.dut.flows.items():
            if "rate" in flow:
                why = "the search sets one rate for all flows: leave it out"
                raise document.wrong(("dut", "flows", name, "rate"), why)
        if isinstance(experiment.traffic.pattern, Ramp):
            raise document.wrong(("traffic", "pattern"), "a ramp has no rate to search for")
        replay = experiment.traffic.replay
        if replay is not None and (replay.pace == "own" or replay.ids == "keep"):
            raise document.wrong(
                ("traffic", "replay"),
                "a search needs {pace: rate, ids: stamp}, as it sends the capture at many rates",
            )
        least = Trial(self.settings.low, self.settings.short)
        if trial_of(experiment, least).traffic.packets < 1:
            raise InputError(
                f"not a single packet fits in --short {format_time(least.duration)} at "
                f"--from {format_rate(least.rate)}: raise one of them"
            )
        most = Trial(self.settings.high, self.settings.trial)
        if trial_of(experiment, most).traffic.packets >= MAX_PACKETS:
            raise InputError(
                f"--to {format_rate(most.rate)} for --trial "
                f"{format_time(most.duration)} are more packets than the 32-bit ids can tell "
                "apart: lower one of them"
            )


def trial_of(base: Experiment, trial: Trial) -> Experiment:
    """The experiment of one trial, in which loss is counted from the first packet on."""
    traffic = base.traffic.model_copy(update={"rate": trial.rate, "duration": trial.duration})
    evaluation = base.evaluation.model_copy(update={"trim": 0})
    assert isinstance(evaluation, Matching)
    return base.model_copy(update={"traffic": traffic, "evaluation": evaluation})


def search_experiment(
    plan: Plan,
    out: Path,
    *,
    resume: bool,
    reporting: Reporting,
    print_line: PrintLine,
    stations: Stations | None = None,
    testbed: Path | None = None,
    boots: Boots | None = None,
) -> Search:
    """Search in the folder `out` and, if the plan says so, measure latency at what was found.

    Roles are on their `stations`, as in `run_experiment`. With `resume`, trials and runs that were
    made already stay as they are. Raises `InputError` for
    a folder that does not fit, `MachineError` when a trial cannot be made, `Interrupted` when the
    user stopped it: what was made until then is kept.
    """
    most = Trial(plan.settings.high, plan.settings.trial)
    planned = [_planned(one, 1, 1, most) for one in plan.checked.combinations]
    if stations is None:
        require_root()
        require_here(planned)
    at = At(stations, testbed, boots if asks(planned) else None)
    search = Search(plan, SearchFolder(out), print_line, at)
    with storage_errors(out):
        require_folder(out, resume=resume)
        with search.folder.locked(), interruptible():
            search.prepare(resume=resume)
            try:
                with search.folder.trials.locked():
                    search.make_trials()
                search.measure_latency(resume=resume, reporting=reporting)
                search.end("done", None)
            except (KeyboardInterrupt, Interrupted):
                remove_own_leftovers()
                search.end("interrupted", "stopped by the user")
                kept = f"{len(search.record.trials)} trials are kept"
                raise Interrupted(
                    f"interrupted: {'the rates are known' if search.answers else kept}; "
                    f"`tailtap search {plan.source} --out {out} --resume` with "
                    "the same options goes on"
                ) from None
            except (TailtapError, OSError) as error:
                with contextlib.suppress(OSError):  # the first error tells more
                    search.end("failed", str(error))
                raise
    return search


@dataclass(frozen=True)
class At:
    """Where it is measured: on this machine, or on a testbed."""

    stations: Stations | None = None
    testbed: Path | None = None
    boots: Boots | None = None


@dataclass(frozen=True)
class _Kept:
    """Boots for trials: one for all that want the same, however often a rate is tried."""

    boots: Boots

    def foresee(self, wanted: Wanted) -> str:
        """As `Boots` says."""
        return self.boots.foresee(wanted)

    def bring(self, wanted: Wanted | None, repeat: int) -> Booted | None:
        """As `Boots` says, of the first repeat."""
        return self.boots.bring(wanted, 1)


@dataclass
class Search:
    """A search in progress."""

    plan: Plan
    folder: SearchFolder
    print_line: PrintLine
    at: At
    made: list[Made] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    latency: ExperimentRecord | None = None
    """The runs at the rates found, as ``tailtap run --json`` prints runs."""
    _kept: list[Made] = field(default_factory=list)
    _runs: int = 0
    """How many runs the trials are until now: one for each flow."""
    record: SearchRecord = field(init=False)
    """``search.json``."""

    def prepare(self, *, resume: bool) -> None:
        """Fill the folder, or check that its content belongs to this search. Call it locked."""
        out, plan = self.folder.path, self.plan
        settings = settings_record(plan.settings, plan.method)
        if resume:
            if not self.folder.record.exists():
                raise NothingBegun("there is no search to resume", place=str(out))
            self.record = self.folder.read()
            found = first_difference(
                as_json(self.record.settings), as_json(settings), ()
            ) or first_difference(load(self.folder.experiment).data, plan.checked.document.data, ())
            if found is not None:
                raise Occupied(
                    f"this search differs in {found}",
                    place=str(out),
                    remedy="resume it with the options that it was begun with",
                )
            self._kept = [made_of(row) for row in self.record.trials]
            self.record.status, self.record.error = "running", None
        else:
            if any(out.iterdir()):
                raise Occupied("the folder is not empty", place=str(out), begun="the search")
            make_folder(self.folder.trials.runs, below=out)
            text = experiment_text(plan.checked, plan.source)
            write_text(self.folder.experiment, text, below=out)
            if self.at.testbed is not None:
                copy(self.at.testbed, self.folder.testbed, below=out)
            self.record = SearchRecord(
                name=plan.checked.name,
                status="running",
                error=None,
                settings=settings,
                parameters=plan.checked.combinations[0][1].parameters(),
                started=_now(),
                finished=None,
                answers=[],
                trials=[],
            )
        self._store()

    def make_trials(self) -> None:
        """Make trials until the method has found its bounds, for each combination."""
        for combination in self.plan.checked.combinations:
            self._search(combination)

    def _search(self, combination: Combination) -> None:
        steps = METHODS[self.plan.method](self.plan.settings)
        found: list[Bounds] = []
        results: list[Result] = []
        try:
            trial = next(steps)
            while len(results) < MOST_TRIALS:
                made = self._again(trial, combination)
                if made is None:
                    made = self._make(trial, combination, results)
                    self.print_line(_line(made))
                self.made.append(made)
                self._runs += len(combination[1].flows)
                results.append(made.result)
                self._store()
                trial = steps.send(made.result)
            raise MachineError(
                f"{MOST_TRIALS} trials did not settle it: the loss here depends on chance more "
                "than on the rate; longer trials (--trial) or a coarser "
                "--precision may"
            )
        except StopIteration as end:
            found = end.value
        self.answers += [
            answer(self.plan.settings, bounds, results, combination[0]) for bounds in found
        ]
        self._store()

    def measure_latency(self, *, resume: bool, reporting: Reporting) -> None:
        """Measure latency at shares of the rates found, as an experiment of its own."""
        cases = latency_cases(self.answers, self.plan.shares)
        if not cases:
            return
        folder = self.folder.latency
        values = {CASES: cases, VARY: {}, EXCLUDE: []}
        overrides = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        cables = self.plan.checked.combinations[0][1].testbed_cables
        checked = read_experiment(self.folder.experiment, overrides, on_testbed=bool(cables))
        checked.wire(cables)
        resume = resume and folder.experiment.exists()
        runs = run_experiment(
            checked,
            self.folder.experiment,
            folder.path,
            resume=resume,
            reporting=reporting,
            stations=self.at.stations,
            testbed=self.at.testbed,
            boots=self.at.boots,
        )
        self.latency = summarize(folder.path, runs)

    def end(self, status: Ended, error: str | None) -> None:
        """Record how it ended."""
        self.record.status, self.record.error, self.record.finished = status, error, _now()
        self._store()

    def printed(self) -> SearchedRecord:
        """What ``--json`` prints."""
        whole = asdict(self.record)
        return SearchedRecord(**whole, folder=str(self.folder.path), latency=self.latency)

    def _store(self) -> None:
        self.record.answers = [found.record() for found in self.answers]
        kept = [*self.made, *self._kept[len(self.made) :]]
        self.record.trials = [made.record() for made in kept]
        self.folder.write(self.record)

    def _again(self, trial: Trial, combination: Combination) -> Made | None:
        """The trial as it was made before the interruption, if it was."""
        place = len(self.made)
        kept = self._kept[place] if place < len(self._kept) else None
        if kept is not None and (kept.result.trial, kept.variables) == (trial, combination[0]):
            return kept
        del self._kept[place:]
        return None

    def _make(self, trial: Trial, combination: Combination, results: Sequence[Result]) -> Made:
        earlier = sum(result.trial.rate == trial.rate for result in results)
        run = _planned(combination, self._runs + 1, earlier + 1, trial)
        folder = self.folder.trials.run(run.slug)
        sent = [run.experiment.traffic_of(flow) for flow in run.experiment.flows]
        warm_up = sum(one.warm_up * one.rate // 1_000_000_000 + one.warm_up_packets for one in sent)
        # Where all flows together have lost so much, one of them has lost so much of its own.
        packets = sum(one.packets for one in sent)
        allowed = float("inf") if trial.give_up is None else trial.give_up * packets
        guard = LossGuard(allowed, warm_up, run.experiment.seconds)
        keep = self.plan.keep_stamps
        boots = None if self.at.boots is None else _Kept(self.at.boots)
        record = make_run(
            run, folder, None, guard, keep_stamps=keep, stations=self.at.stations, boots=boots
        )
        told = []
        for one in run.group:
            there = beside(folder, one)
            told.append(_result(one, there, there.read(), trial, guard))
        codes = tuple(warning.code for warning in record.warnings)
        return Made(run.number, run.slug, _worse(told), codes, combination[0])


def _planned(combination: Combination, number: int, repeat: int, trial: Trial) -> PlannedRun:
    variables = {**combination[0], RATE: exact_rate(trial.rate)}
    experiment = trial_of(combination[1], trial)
    return plan_run(number, name_of(variables), repeat, variables, experiment)


def _worse(results: Sequence[Result]) -> Result:
    """The result of all flows: a rate must hold for each of them."""
    doubted = [result for result in results if not result.valid]
    return doubted[0] if doubted else max(results, key=lambda result: result.loss)


def _result(
    run: PlannedRun, folder: RunFolder, record: RunRecord, trial: Trial, guard: LossGuard
) -> Result:
    """The result that a trial's record gives. Raises `MachineError` for a run that failed."""
    if record.taps is None:
        if record.generator is None:
            raise MachineError(f"trial {run.number} failed: {record.error}")
        # Of a run that has no more than this, a generator was ended in its warm-up.
        return Result(trial, packets=0, lost=0, achieved=0.0, doubt=UNREACHED)
    traffic = run.experiment.traffic_of(run.flow)
    taps = {side: tap.known for side, tap in (record.taps or {}).items()}
    came = taps[INGRESS].seen or 0
    lost = max(0, came - (taps[EGRESS].seen or 0))
    if record.status == "done" and not any(tap.lost for tap in taps.values()):
        # Matched packet by packet: duplicates do not make up for losses.
        lost = read(folder.evaluation / "evaluation.json", EvaluationRecord).counts.lost
    generator = record.generator.known if record.generator else None
    achieved = generator.achieved_rate if generator else None
    achieved = trial.rate if achieved is None else achieved
    return Result(
        trial,
        packets=traffic.packets if guard.gave_up else came,
        lost=lost,
        achieved=achieved,
        doubt=_doubt(record, came, trial, guard, achieved, traffic.slip_limit),
        given_up=guard.gave_up,
    )


def _doubt(
    record: RunRecord,
    came: int,
    trial: Trial,
    guard: LossGuard,
    achieved: float,
    slip_limit: int,
) -> str | None:
    """Why the generator did not send what was asked of it; None when it did."""
    if guard.overtime:
        return (
            f"the generator took far longer than {format_time(trial.duration)}, at "
            f"{format_rate(achieved)}"
        )
    if not came:
        return "no packet with an id came to the ingress tap"
    # What follows from these for a search is not what follows for a run, which the warnings say.
    if record.generator is not None:
        generator = record.generator.known
        if too_slow(generator):
            return shortfall(generator)
        if slip := slipped(generator, slip_limit):
            return slip
    for warning in invalidating(record.warnings):
        return warning.message
    return None


def latency_cases(answers: Sequence[Answer], shares: Sequence[float]) -> list[dict[str, Any]]:
    """Where latency is measured: at shares of each rate found, with the values that varied."""
    found: list[dict[str, Any]] = []
    for one in answers:
        for share in shares if one.rate is not None else ():
            rate = exact_rate(max(1, round((one.rate or 0) * share)))
            case = {**one.variables, RATE: rate}
            found += [] if case in found else [case]
    return found


def _line(made: Made) -> str:
    result = made.result
    text = f"{in_words(made.variables)}trial {made.number}: {format_rate(result.trial.rate)} for "
    text += f"{format_time(result.trial.duration)}: "
    if not result.valid:
        return f"{text}invalid: {result.doubt}"
    if result.given_up:
        return f"{text}more than {100 * (result.trial.give_up or 0):g} % lost, given up"
    return f"{text}{result.lost:,} of {result.packets:,} lost"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
