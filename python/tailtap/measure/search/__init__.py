"""`tailtap search`: make the trials that a method asks for, and measure latency at its rates.

`methods.py` has the terms of a search, says what is tried next, and which bounds follow. Every
trial is a run like any other, in a folder of its own. ``search.json`` is written after each
trial, so that an interrupted search continues there: the method starts again and is sent the
results of the trials that were made.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tailtap.analysis.runs.flows import summarize
from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.analysis.runs.text import in_words
from tailtap.base.document import load
from tailtap.base.errors import InputError, MachineError, Occupied
from tailtap.base.units import exact_rate, format_rate, format_time
from tailtap.experiment.combinations import CASES, EXCLUDE, VARY, where_varied
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun, name_of, plan_run
from tailtap.experiment.reading import CheckedExperiment, read_experiment
from tailtap.experiment.sections import Matching
from tailtap.host.facts.needs import require_root
from tailtap.lab.generators.model import MAX_PACKETS
from tailtap.lab.generators.pattern import Ramp
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.measure.boots import asks
from tailtap.measure.campaign import (
    Campaign,
    Recorded,
    experiment_text,
    first_difference,
    now,
)
from tailtap.measure.preconditions import require_here
from tailtap.measure.quality import shortfall, slipped, too_slow
from tailtap.measure.runner import beside, make_run, run_experiment
from tailtap.measure.search.methods import METHODS, Trial, answer, result
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import ExperimentRecord
from tailtap.records.record import as_json, read
from tailtap.records.run import RunRecord
from tailtap.records.search import (
    SearchAnswer,
    SearchedRecord,
    SearchRecord,
    SearchSettings,
    TrialRow,
)
from tailtap.records.warnings import invalidating

MOST_TRIALS = 500
"""A search that needs more trials than this follows noise."""
SHARES = (1.0, 0.9, 0.5, 0.1)
"""Latency is measured at these shares of the rates found, unless others are asked for."""
UNREACHED = "the generator did not reach it: it was still busy with the warm-up when it was ended"
OVERTIME = 1.3
OVERTIME_SECONDS = 1.0
"""A generator that takes this much longer than the traffic lasts cannot send the rate."""
SEARCH = "search.json"
RATE, DURATION = "traffic.rate", "traffic.duration"
"""What a search chooses for its trials."""

Combination = tuple[Mapping[str, Any], Experiment]
"""The varied values of a configuration as written, and the experiment with them in place."""


@dataclass(frozen=True)
class Plan:
    """A search, or one for each combination of what varies, whose experiment and settings are
    valid.
    """

    checked: CheckedExperiment
    source: Path
    settings: SearchSettings
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
        least = Trial(self.settings.low, self.settings.short_ns)
        if trial_of(experiment, least).traffic.packets < 1:
            short = f"--short {format_time(least.duration_ns)}"
            raise InputError(
                f"not a single packet fits in {short} at --from "
                f"{format_rate(least.rate)}: raise one of them"
            )
        most = Trial(self.settings.high, self.settings.trial_ns)
        if trial_of(experiment, most).traffic.packets >= MAX_PACKETS:
            raise InputError(
                f"--to {format_rate(most.rate)} for --trial "
                f"{format_time(most.duration_ns)} are more packets than the 32-bit ids can tell "
                "apart: lower one of them"
            )


def trial_of(base: Experiment, trial: Trial) -> Experiment:
    """The experiment of one trial, in which loss is counted from the first packet on."""
    traffic = base.traffic.model_copy(update={"rate": trial.rate, "duration": trial.duration_ns})
    evaluation = base.evaluation.model_copy(update={"trim": 0})
    assert isinstance(evaluation, Matching)
    return base.model_copy(update={"traffic": traffic, "evaluation": evaluation})


def search_experiment(plan: Plan, campaign: Campaign) -> Search:
    """Search and, if the plan says so, measure latency at what was found.

    Trials and runs that were made already stay as they are. Raises what `Campaign.opened` raises,
    `InputError` for a folder that does not fit, and `MachineError` when a trial cannot be made.
    """
    most = Trial(plan.settings.high, plan.settings.trial_ns)
    planned = [_planned(one, 1, 1, most) for one in plan.checked.combinations]
    if campaign.stations is None:
        require_root()
        require_here(planned)
    if not asks(planned):
        campaign = replace(campaign, boots=None)
    search = Search.of(plan, campaign)
    with campaign.opened():
        search.prepare()
        with campaign.ending(search.kept, search.end):
            with search.trials.locked():
                for combination in plan.checked.combinations:
                    search.search(combination)
            search.measure_latency()
    return search


@dataclass
class Search(Recorded[SearchRecord]):
    """A search in progress."""

    FILE = SEARCH

    plan: Plan
    latency: ExperimentRecord | None = None
    """The runs at the rates found, as ``tailtap run --json`` prints runs."""
    _taken: int = 0
    """How many of the record's trials belong to this search until now; others were made before it
    was interrupted."""
    _runs: int = 0
    """How many runs these are: one for each flow."""

    @classmethod
    def of(cls, plan: Plan, campaign: Campaign) -> Search:
        """A search that has tried nothing."""
        record = SearchRecord(
            name=plan.checked.name,
            status="running",
            error=None,
            settings=plan.settings,
            parameters=plan.checked.combinations[0][1].parameters(),
            started=now(),
            finished=None,
            answers=[],
            trials=[],
        )
        return cls(campaign, record, plan)

    @property
    def trials(self) -> ExperimentFolder:
        """The folder of the trials."""
        return ExperimentFolder(self.campaign.out / "trials", self.campaign.out)

    def kept(self) -> str:
        """What an interruption leaves, and what goes on."""
        record, plan = self.record, self.plan
        kept = f"{len(record.trials)} trials are kept"
        return (
            f"{'the rates are known' if record.answers else kept}; `tailtap search {plan.source} "
            f"--out {self.campaign.out} --resume` with the same options goes on"
        )

    def prepare(self) -> None:
        """Fill the folder, or check that its content belongs to this search. Call it locked."""
        checked = self.plan.checked
        text = experiment_text(checked, self.plan.source)
        texts = {"experiment.yaml": text}
        self.campaign.prepare("the search", texts, self._resume, self.trials.runs)
        self.store()

    def _resume(self) -> None:
        out, checked = self.campaign.out, self.plan.checked
        self.record = read(self.campaign.begun(SEARCH), SearchRecord)
        found = first_difference(
            as_json(self.record.settings), as_json(self.plan.settings)
        ) or first_difference(load(out / "experiment.yaml").data, checked.document.data)
        if found is not None:
            raise Occupied(
                f"this search differs in {found}",
                place=str(out),
                remedy="resume it with the options that it was begun with",
            )
        self.record.status, self.record.error, self.record.answers = "running", None, []

    def search(self, combination: Combination) -> None:
        """Make trials until the method has found its bounds for a combination."""
        settings = self.plan.settings
        steps = METHODS[settings.method](settings)
        results: list[TrialRow] = []
        try:
            trial = next(steps)
            while len(results) < MOST_TRIALS:
                results.append(self._tried(trial, combination, results))
                self.store()
                trial = steps.send(results[-1])
        except StopIteration as end:
            self.record.answers += [
                answer(settings, bounds, results, combination[0]) for bounds in end.value
            ]
            self.store()
            return
        raise MachineError(
            f"{MOST_TRIALS} trials did not settle it: the loss here depends on chance more "
            "than on the rate; longer trials (--trial) or a coarser --precision may"
        )

    def _tried(
        self, trial: Trial, combination: Combination, results: Sequence[TrialRow]
    ) -> TrialRow:
        """The trial as it was made before an interruption, or made now."""
        rows, wanted = self.record.trials, (combination[0], trial)
        row = rows[self._taken] if self._taken < len(rows) else None
        if row is None or wanted != (
            row.variables,
            Trial(row.rate, row.duration_ns, row.give_up),
        ):
            del rows[self._taken :]
            row = self._make(trial, combination, results)
            rows.append(row)
            self.campaign.note(_line(row))
        self._taken += 1
        self._runs += len(combination[1].flows)
        return row

    def measure_latency(self) -> None:
        """Measure latency at shares of the rates found, as an experiment of its own."""
        cases = latency_cases(self.record.answers, self.plan.shares)
        if not cases:
            return
        campaign, checked = self.campaign, self.plan.checked
        source, folder = campaign.folder.experiment, ExperimentFolder(campaign.out / "latency")
        values = {CASES: cases, VARY: {}, EXCLUDE: []}
        overrides = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        cables = checked.combinations[0][1].testbed_cables
        checked = read_experiment(source, overrides, on_testbed=bool(cables))
        checked.wire(cables)
        resume = campaign.resume and folder.experiment.exists()
        runs = run_experiment(checked, source, replace(campaign, out=folder.path, resume=resume))
        self.latency = summarize(folder.path, runs)

    def printed(self) -> SearchedRecord:
        """What ``--json`` prints."""
        whole = asdict(self.record)
        return SearchedRecord(**whole, folder=str(self.campaign.out), latency=self.latency)

    def _make(
        self, trial: Trial, combination: Combination, results: Sequence[TrialRow]
    ) -> TrialRow:
        campaign = self.campaign
        earlier = sum(result.rate == trial.rate for result in results)
        run = _planned(combination, self._runs + 1, earlier + 1, trial)
        folder = self.trials.run(run.slug)
        sent = [run.experiment.traffic_of(flow) for flow in run.experiment.flows]
        warm_up = sum(one.warm_up * one.rate // 1_000_000_000 + one.warm_up_packets for one in sent)
        # Where all flows together have lost so much, one of them has lost so much of its own.
        packets = sum(one.packets for one in sent)
        allowed = float("inf") if trial.give_up is None else trial.give_up * packets
        guard = LossGuard(allowed, warm_up, run.experiment.seconds)
        record = make_run(
            run, folder, None, guard, keep_stamps=self.plan.keep_stamps,
            stations=campaign.stations, boots=campaign.boots, boot_each_repeat=False,
        )  # fmt: skip
        told = []
        for one in run.group:
            there = beside(folder, one)
            told.append(_result(one, there, there.read(), trial, guard))
        doubted = [one for one in told if not one.valid]
        # A rate must hold for each of the flows.
        row = doubted[0] if doubted else max(told, key=lambda one: one.loss)
        row.number, row.slug, row.variables = run.number, run.slug, dict(combination[0])
        row.warnings = [warning.code for warning in record.warnings]
        return row


class LossGuard:
    """Ends a trial that has lost more than allowed for certain, or whose generator is too slow.

    Packets are counted from the first look after the warm-up. A packet counts as lost when it had
    come to the device by an earlier look, has not come out, and is older than any packet that can
    still be in the device. Whatever is uncertain counts in favour of the device.
    """

    period = 0.2

    def __init__(self, allowed: float, warm_up: int, seconds: float) -> None:
        """For traffic of about `seconds`, `warm_up` packets first; `allowed` may be lost."""
        self.gave_up = False
        self.overtime = False
        self._allowed = allowed
        self._warm_up = warm_up
        self._longest = OVERTIME * seconds + OVERTIME_SECONDS
        self._sends_since: float | None = None
        self._first: int | None = None
        self._start: tuple[int, int] | None = None
        self._came: deque[tuple[float, int]] = deque()

    def over(self, seconds: float, ingress: int, egress: int, reach: float) -> bool:
        """See `tailtap.measure.run.Guard`; `egress` was read before `ingress`."""
        if self._first is None:
            self._first = ingress
        if self._sends_since is None:
            # Before it sends, a generator may not react to an interrupt.
            if ingress > self._first:
                self._sends_since = seconds
        elif seconds - self._sends_since > self._longest:
            self.overtime = True
            return True
        if self._start is None:
            if ingress - self._first >= max(1, self._warm_up):
                self._start = ingress, egress
            return False
        came = self._start[0]
        while self._came and self._came[0][0] <= seconds - reach:
            came = self._came.popleft()[1]
        if came != self._start[0]:
            self._came.appendleft((seconds - reach, came))
        self._came.append((seconds, ingress))
        left = egress - self._start[1]
        if came - self._start[0] - left > self._allowed:
            self.gave_up = True
        return self.gave_up


def _planned(combination: Combination, number: int, repeat: int, trial: Trial) -> PlannedRun:
    variables = {**combination[0], RATE: exact_rate(trial.rate)}
    return plan_run(number, name_of(variables), repeat, variables, trial_of(combination[1], trial))


def _result(
    run: PlannedRun, folder: RunFolder, record: RunRecord, trial: Trial, guard: LossGuard
) -> TrialRow:
    """The result that a trial's record gives. Raises `MachineError` for a run that failed."""
    if record.taps is None:
        if record.generator is None:
            raise MachineError(f"trial {run.number} failed: {record.error}")
        # Of a run that has no more than this, a generator was ended in its warm-up.
        return result(trial, packets=0, lost=0, achieved=0.0, doubt=UNREACHED)
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
    return result(
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
            f"the generator took far longer than {format_time(trial.duration_ns)}, at "
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


def latency_cases(answers: Sequence[SearchAnswer], shares: Sequence[float]) -> list[dict[str, Any]]:
    """Where latency is measured: at shares of each rate found, with the values that varied."""
    found: list[dict[str, Any]] = []
    for one in answers:
        for share in shares if one.rate is not None else ():
            rate = exact_rate(max(1, round((one.rate or 0) * share)))
            case = {**one.variables, RATE: rate}
            found += [] if case in found else [case]
    return found


def _line(row: TrialRow) -> str:
    text = f"{in_words(row.variables)}trial {row.number}: {format_rate(row.rate)} for "
    text += f"{format_time(row.duration_ns)}: "
    if not row.valid:
        return f"{text}invalid: {row.doubt}"
    if row.given_up:
        return f"{text}more than {100 * (row.give_up or 0):g} % lost, given up"
    return f"{text}{row.lost:,} of {row.packets:,} lost"
