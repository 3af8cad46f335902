"""`tailtap improve`: stages of explaining, each followed by trials of what may help.

A stage measures with what was kept so far: with a trace, to explain, and without, to judge the
requirement. Then the knobs that answer the causes found are tried together. What helps is kept, and
the next stage begins. ``improve.json`` is written after each step.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.compare.significance import ERROR, fewest_pairs
from tailtap.analysis.evaluation.values import label
from tailtap.analysis.verdict.requirement import Requirement, parse_requirements
from tailtap.base.errors import InputError, Occupied
from tailtap.base.units import format_share, format_time, ranges
from tailtap.experiment.combinations import CASES, VARY
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import plan_run
from tailtap.experiment.reading import CheckedExperiment
from tailtap.experiment.sections import FULL, knobs_of
from tailtap.host.facts.needs import require_root
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import apply as set_all
from tailtap.host.tuning.apply import plan as plan_of
from tailtap.measure.campaign import Campaign, Recorded, experiment_text, now, seconds_of
from tailtap.measure.improve.trials import (
    Candidate,
    Explainer,
    Measuring,
    OfExperiment,
    Stretches,
    Trial,
    measured,
    prepare_stretches,
    to_keep,
    try_together,
)
from tailtap.measure.observe.look import Options
from tailtap.measure.pairs import Made, Runs
from tailtap.measure.preconditions import require_here
from tailtap.measure.roles.foresee import purpose_for
from tailtap.records.printed import Left
from tailtap.records.record import read
from tailtap.records.search import Ended, FoundCause, ImproveRecord, ImproveSettings, Stage, Stopped

REPEATS = 2
"""How many stretches of observing the requirement is judged on, at each stage."""
TESTS = 16
"""Among so many trials of knobs the error is divided: no more are made."""
WITHIN_NS = 30 * 60 * 1_000_000_000


def settings_of(
    within_ns: int = WITHIN_NS,
    margin: float = 0.2,
    *,
    disruptive: bool = False,
    undisturbed: bool = False,
) -> ImproveSettings:
    """The settings of an improvement. Raises `InputError` for those that make no sense.

    An effect below `margin` on the share of late packets counts as none. With `disruptive` knobs
    are tried that take links of the lab's cards down, or can do harm. With `undisturbed` latencies
    without pauses from outside are compared, and every run is traced.
    """
    if not 0.01 <= margin <= 1:
        raise InputError("give a share from 1 % to 100 %, such as '20 %'").at("--margin")
    if within_ns <= 0:
        raise InputError("give a time above zero, such as 30min").at("--within")
    return ImproveSettings(
        within_ns=within_ns,
        margin=margin,
        error=ERROR,
        tests=TESTS,
        disruptive=disruptive,
        undisturbed=undisturbed,
    )


@dataclass(frozen=True)
class Goal:
    """What is required: at most a share of packets as late as a time."""

    requirement: Requirement
    p: float
    limit_ns: int

    @classmethod
    def of(cls, texts: Sequence[str]) -> Goal:
        """The one requirement of a percentile or of the reliability. Raises `InputError`."""
        found = parse_requirements(texts)
        if len(found) != 1 or found[0].quantity not in ("percentile", "reliability"):
            told = ", ".join(one.text for one in found) or "nothing"
            raise (
                InputError(
                    "give one percentile, such as 'p99.9 < 1 ms', or one "
                    "reliability, such as 'reliability(1 ms) >= 99.9 %'"
                )
                .at(told)
                .at("--require")
            )
        one = found[0]
        share, time = one.argument or 0, one.limit
        if one.quantity == "reliability":
            share, time = time, share
        if share == 1:
            raise InputError("no run shows that no packet at all is late: name a share").at(
                "--require"
            )
        return cls(one, float(share), int(time))


@dataclass(frozen=True)
class Plan:
    """What is improved, and until when."""

    name: str
    goal: Goal
    settings: ImproveSettings
    repeats: int
    """How many runs the requirement is judged on, at each stage."""
    text: str
    """What is kept beside the runs: the experiment, or what was asked for."""
    parameters: dict[str, Any]
    of_it: Experiment | Options
    """What is measured; of a device that is observed, `duration_ns` is the length of a stretch."""


def plan_of_experiment(
    checked: CheckedExperiment, source: Path, goal: Goal, settings: ImproveSettings
) -> Plan:
    """The plan for an experiment. Raises `InputError` for one that cannot be improved."""
    document, experiment = checked.document, checked.combinations[0][1]
    for key in (VARY, CASES):
        if document.data.get(key):
            raise document.wrong(
                (key,),
                "an improvement looks at one configuration: "
                f"choose a value with --set and remove {key} from the file",
            )
    if not experiment.traits.has_dut:
        raise document.wrong(
            ("dut", "platform"),
            f"{experiment.dut.platform} has no device, and so nothing to improve",
        )
    if experiment.dut.tuning == FULL:
        raise document.wrong(
            ("dut", "tuning"),
            "full asks for words of the "
            "kernel's line, which no trial can leave out: write runtime, none or a list",
        )
    if experiment.snap is not None:
        raise document.wrong(
            ("tap",),
            "a trace is joined with stamps, and these taps keep packets: leave tap.snap out",
        )
    return Plan(
        checked.name, goal, settings, checked.repeat, experiment_text(checked, source),
        experiment.parameters(), experiment,
    )  # fmt: skip


def plan_of_observed(options: Options, goal: Goal, settings: ImproveSettings) -> Plan:
    """The plan for a device that was there before, under its own load: stretches of observing it.

    Raises `InputError` for what cannot be improved.
    """
    if options.trace == "none":
        raise InputError("--trace none: without a trace nobody can say why packets are late")
    name = options.ingress.text + ("" if options.egress is None else f" to {options.egress.text}")
    parameters = {
        "in": options.ingress.text,
        "out": None if options.egress is None else options.egress.text,
        "stretch_ns": options.duration_ns,
        "filter": options.filter,
        "sample": options.sample,
    }
    text = yaml.safe_dump({"observed": parameters}, sort_keys=False)  # nothing runs it
    return Plan(name, goal, settings, REPEATS, text, parameters, options)


IMPROVE = "improve.json"
MOST_LATE = 0.25
"""Where more packets than this are later than required, the percentile now takes the place of the
limit: what makes nearly all packets late is not what explain tells."""
SETTLED = ("no effect", "harms")
"""Answers after which a knob is not tried again."""


def improve(plan: Plan, campaign: Campaign) -> Improvement:
    """Improve what a plan is about, by the knobs of `tailtap host`.

    See `improved`. Raises also `MachineError` where the experiment cannot be measured here, and
    what `tailtap.measure.observe.prepare` raises.
    """
    of_it, settings = plan.of_it, plan.settings
    if isinstance(of_it, Experiment):
        require_root()
        require_here([plan_run(1, "stage-1", 1, {}, of_it)])
        seconds = seconds_of(of_it)
    else:
        seconds = (of_it.duration_ns or 0) / 1e9

    def prepared(runs: Runs) -> tuple[Measuring, Explainer]:
        measuring: Measuring
        common = (runs, 1 + plan.repeats, settings.undisturbed)
        if isinstance(of_it, Experiment):
            tree = Tree()
            purpose, already = purpose_for(of_it, tree), frozenset(knobs_of(of_it.dut.tuning))
            measuring = OfExperiment(*common, experiment=of_it)
        else:
            already = frozenset()
            found, tree, purpose = prepare_stretches(of_it)
            measuring = Stretches(
                *common,
                prepared=found,
                tree=tree,
                purpose=purpose,
                disruptive=settings.disruptive,
            )
        return measuring, Explainer(tree, purpose, settings.disruptive, already, campaign.note)

    return improved(plan, campaign, seconds, prepared)


Prepare = Callable[[Runs], tuple[Measuring, Explainer]]
"""What makes the runs, and finds out why packets are late, given who keeps the runs."""


def improved(plan: Plan, campaign: Campaign, seconds: float, prepare: Prepare) -> Improvement:
    """Improve; a run takes about so many `seconds` at first.

    To resume is to go the same way again: decisions follow from runs, and those that are there are
    taken as they are. Everything is as it was afterwards. Raises what `Campaign.opened` raises, and
    `MachineError` when nothing can be measured or a run of a stage fails.
    """
    runs = Runs(campaign, time.monotonic() + plan.settings.within_ns / 1e9, seconds)
    with campaign.opened():
        if campaign.resume:
            seed = _resumed(plan, campaign.begun(IMPROVE))
        else:
            campaign.require_empty("the improvement")
            seed = random.SystemRandom().getrandbits(32)
        measuring, explainer = prepare(runs)
        made = Improvement.of(plan, campaign, measuring, explainer, seed)
        campaign.prepare(
            "the improvement", {campaign.folder.experiment.name: plan.text}, lambda: None
        )
        with campaign.ending(made.kept, made.end):
            made.improve()
    return made


def _resumed(plan: Plan, file: Path) -> int:
    """Make sure that a folder's improvement is this one; the seed of its order."""
    before = read(file, ImproveRecord)
    now = replace(plan.settings, within_ns=before.settings.within_ns)  # more time is why it resumes
    same = {
        "the requirement": before.requirement == plan.goal.requirement.text,
        "--margin, --disruptive or --undisturbed": before.settings == now,
        "what is measured": before.parameters == json.loads(json.dumps(plan.parameters)),
    }
    if different := [what for what, is_same in same.items() if not is_same]:
        raise Occupied(f"it was begun with another value of {different[0]}",
                       place=str(file), remedy="resume with the same options")  # fmt: skip
    return before.seed


@dataclass
class Improvement(Recorded[ImproveRecord]):
    """An improvement in progress."""

    FILE = IMPROVE

    plan: Plan
    measuring: Measuring
    explainer: Explainer
    order: random.Random
    trials: list[Trial] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: Plan, campaign: Campaign, measuring: Measuring, explainer: Explainer, seed: int
    ) -> Improvement:
        """One that has tried nothing."""
        purpose = explainer.purpose
        record = ImproveRecord(
            name=plan.name,
            status="running",
            error=None,
            requirement=plan.goal.requirement.text,
            p=plan.goal.p,
            settings=plan.settings,
            parameters=plan.parameters,
            purpose=f"--cpus {ranges(purpose.cpus)} --role {purpose.role}",
            seed=seed,
            started=now(),
            finished=None,
            stopped=None,
            answer="not shown",
            stages=[],
            trials=[],
            left=[],
            kept=[],
            applied=False,
        )
        return cls(campaign, record, plan, measuring, explainer, random.Random(seed))

    def kept(self) -> str:
        """What an interruption leaves, and what goes on."""
        return (
            f"{len(self.trials)} trials are kept in {self.campaign.out / IMPROVE}; nothing stays "
            "set; the same command with --resume goes on"
        )

    def improve(self) -> Stopped:
        """Explain, try, keep; why it ended."""
        stopped: Stopped | None = None
        while stopped is None:
            causes = self._stage()
            self.store()
            if self.record.answer == "holds":
                stopped = "holds"
            else:
                rows = self.explainer.candidates(causes).found
                done = {one.knob for one in self.record.trials if one.kept or one.answer in SETTLED}
                stopped = self._try([one for one in rows if one.knob not in done])
        self.record.stopped = stopped
        return stopped

    def end(self, status: Ended, error: str | None = None) -> None:
        """Record how it ended, and have the explanations say what was proven."""
        super().end(status, error)
        if status == "done" and self.record.kept:
            self.explainer.tell()

    def apply(self) -> Sequence[tuple[str, str]]:
        """Set what helped so that it stays; what cannot stay, such as what a process must hold.

        Raises what `tailtap.host.tuning.apply.apply` raises.
        """
        found = self.explainer
        steps = plan_of(found.tree, found.purpose, self.record.kept, disruptive=found.disruptive)
        set_all(steps)
        self.record.applied = True
        self.store()
        return steps.left

    def _try(self, rows: Sequence[Candidate]) -> Stopped | None:
        record = self.record
        # Until a clear effect is shown, and one run more in each block without any of them.
        blocks = fewest_pairs(self.plan.settings.error_each)
        count = max(0, min(len(rows), self.measuring.left // blocks - 1))
        tests = TESTS - len(self.trials)
        self._leave(rows[count:], "there was no time to try it")
        self._leave(rows[tests:], f"{TESTS} trials were made before")
        if not rows or not tests:
            return "nothing left"
        if not count:
            return "time over"
        stage = record.stages[-1]
        trials = [
            Trial.of(
                candidate, len(record.stages), record.kept, stage.threshold_ns, record.p,
                _share(stage, candidate.causes),
            )
            for candidate in rows[: min(count, tests)]
        ]  # fmt: skip
        self.trials += trials
        record.trials += [trial.row for trial in trials]
        try_together(trials, self.measuring, self.plan.settings, self.order)
        for trial in to_keep(trials):
            trial.row.kept = True
            record.kept.append(trial.row.knob)
        for trial in trials:
            self.campaign.note(f"{trial.row.knob}: {trial.row.answer}")
        self.store()
        if any(trial.row.kept for trial in trials):
            return None
        return "time over" if count < len(rows) else "nothing left"

    def _leave(self, rows: Sequence[Candidate], why: str) -> None:
        self.left |= dict.fromkeys((one.knob for one in rows), why)

    def _stage(self) -> Counter[Named]:
        """Measure with what was kept; the causes found, each with its late packets."""
        goal, measuring, record = self.plan.goal, self.measuring, self.record
        number = len(record.stages) + 1
        traced = measuring.needed(f"stage-{number}-trace", record.kept, goal.p, trace=True)
        plain = [
            measuring.needed(f"stage-{number}", record.kept, goal.p)
            for _ in range(self.plan.repeats)
        ]
        threshold = self._threshold([traced, *plain])
        late, packets = traced.late(threshold)
        causes = self.explainer.causes(traced, threshold)
        knobs = self.explainer.candidates(causes)
        self.left |= knobs.left
        stage = Stage(
            kept=list(record.kept),
            run=traced.slug,
            threshold_ns=threshold,
            late=late / max(1, packets),
            causes=[
                FoundCause(
                    cause=name.cause,
                    detail=name.detail,
                    share=min(1.0, count / max(1, packets)),
                    knobs=[one.knob for one in knobs.found if name in one.causes],
                )
                for name, count in causes.most_common()
            ],
            percentile=measured([one.percentile(goal.p) for one in plain]),
            answer=self.explainer.answer(goal.requirement, plain),
            runs=[one.slug for one in plain],
        )
        record.stages.append(stage)
        record.answer = stage.answer
        for one in self.trials:
            if one.row.kept and one.row.share_after is None:
                one.row.share_after = _share(stage, one.causes)
        self._say(stage)
        return causes

    def _threshold(self, made: Sequence[Made]) -> int:
        goal = self.plan.goal
        shares = [one.share(goal.limit_ns) for one in made]
        if sum(shares) <= MOST_LATE * len(shares):
            return goal.limit_ns
        return min(one.percentile(goal.p) for one in made)

    def _say(self, stage: Stage) -> None:
        told = ", ".join(
            f"{format_share(one.share)} by {Named(one.cause, one.detail)}"
            for one in stage.causes[:3]
        )
        self.campaign.note(
            f"{label(self.plan.goal.p)} {format_time(stage.percentile.ns)}, {stage.answer}; "
            f"{format_share(stage.late)} of the packets later than "
            f"{format_time(stage.threshold_ns)}: {told or 'no cause is known'}"
        )

    def store(self) -> None:
        """Replace the record's file."""
        tried = {one.knob for one in self.record.trials}
        self.record.left = [
            Left(name=name, why=why) for name, why in self.left.items() if name not in tried
        ]
        super().store()


def _share(stage: Stage, causes: Sequence[Named]) -> float:
    of = [one.share for one in stage.causes if Named(one.cause, one.detail) in causes]
    return min(1.0, sum(of))
