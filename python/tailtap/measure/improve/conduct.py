"""`tailtap improve`: stages of explaining, each followed by trials of what may help.

A stage measures with what was kept so far: with a trace, to explain, and without, to judge the
requirement. Then the knobs that answer the causes found are tried together. What helps is kept, and
the next stage begins. ``improve.json`` is written after each step.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.runs.folder import require_folder
from tailtap.base.errors import Interrupted, NothingBegun, Occupied, TailtapError
from tailtap.base.files import make_folder, write_text
from tailtap.base.units import format_share, format_time, ranges
from tailtap.experiment.plan import plan_run
from tailtap.experiment.tuning import knobs_of
from tailtap.host.changes.privileges import require_root
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import apply as set_all
from tailtap.host.tuning.plan import plan as plan_of
from tailtap.measure.improve.candidates import Candidate
from tailtap.measure.improve.finding import Finding
from tailtap.measure.improve.folder import ImproveFolder
from tailtap.measure.improve.measuring import Measuring, OfExperiment, measured
from tailtap.measure.improve.settings import TESTS, ExperimentPlan, ObservedPlan, Plan
from tailtap.measure.improve.trials import Trial, to_keep, tried_at_once, try_together
from tailtap.measure.pairs import Made, PrintLine, Runs
from tailtap.measure.preconditions import require_here
from tailtap.measure.progress import seconds_of
from tailtap.measure.roles.tuning import purpose_for
from tailtap.measure.runner import (
    interruptible,
    remove_own_leftovers,
    storage_errors,
)
from tailtap.records.printed import Left
from tailtap.records.record import read
from tailtap.records.search import FoundCause, ImproveRecord, Stage, Status, Stopped

MOST_LATE = 0.25
"""Where more packets than this are later than required, the percentile now takes the place of the
limit: what makes nearly all packets late is not what explain tells."""
SETTLED = ("no effect", "harms")
"""Answers after which a knob is not tried again."""


@dataclass(frozen=True)
class Place:
    """Where an improvement is kept, and who is told of it."""

    out: Path
    print_line: PrintLine
    resume: bool = False


def improve_experiment(plan: ExperimentPlan, place: Place, *, knobs: Sequence[Knob]) -> Improvement:
    """Improve what an experiment measures, by `knobs` as `tailtap explain` knows them.

    See `improved`. Raises also `MachineError` where the experiment cannot be measured here.
    """
    require_root()
    first = [plan_run(1, "stage-1", 1, {}, plan.experiment)]
    require_here(first)

    def prepared(runs: Runs) -> tuple[Measuring, Finding]:
        tree, of_it = Tree(), plan.experiment
        measuring = OfExperiment(
            runs, 1 + plan.repeats, plan.settings.undisturbed, experiment=of_it
        )
        already = frozenset(knobs_of(of_it.dut.tuning))
        return measuring, Finding(
            tuple(knobs), tree, purpose_for(of_it, tree), plan.settings.disruptive, already,
            place.print_line,
        )  # fmt: skip

    return improved(plan, place, seconds_of(plan.experiment), prepared)


def improve_observed(plan: ObservedPlan, place: Place, *, knobs: Sequence[Knob]) -> Improvement:
    """Improve a device that was there before, under its own load, between stretches of observing.

    See `improved`. Raises also what `tailtap.measure.observe.prepare` raises.
    """
    from tailtap.measure.improve.stretches import Stretches, prepare_stretches

    def prepared(runs: Runs) -> tuple[Measuring, Finding]:
        of_it = prepare_stretches(plan.asked)
        measuring = Stretches(
            runs, 1 + plan.repeats, plan.settings.undisturbed, of_it=of_it,
            disruptive=plan.settings.disruptive,
        )  # fmt: skip
        return measuring, Finding(
            tuple(knobs), of_it.tree, of_it.purpose, plan.settings.disruptive, frozenset(),
            place.print_line,
        )  # fmt: skip

    return improved(plan, place, (plan.asked.duration_ns or 0) / 1e9, prepared)


Prepare = Callable[[Runs], tuple[Measuring, Finding]]
"""What makes the runs, and finds out why packets are late, given who keeps the runs."""


def improved(plan: Plan, place: Place, seconds: float, prepare: Prepare) -> Improvement:
    """Improve, in a folder; a run takes about so many `seconds` at first.

    To resume is to go the same way again: decisions follow from runs, and those that are there are
    taken as they are. Everything is as it was afterwards.

    Raises `Occupied` for a folder that holds something else, `NothingBegun` where there is nothing
    to resume, `MachineError` when nothing can be measured or a run of a stage fails, `Interrupted`
    when the user stopped it: what was made until then is kept.
    """
    until = time.monotonic() + plan.settings.within_ns / 1e9
    folder, out = ImproveFolder(place.out), place.out
    runs = Runs(folder, place.print_line, until, seconds, place.resume)
    with storage_errors(out):
        require_folder(out, resume=place.resume)
        with folder.locked(), interruptible():
            seed = _resumed(plan, folder) if place.resume else _begun(plan, folder)
            made = None
            try:
                measuring, finding = prepare(runs)
                made = Improvement(plan, folder, measuring, finding, place.print_line, seed=seed)
                made.end(made.improve())
            except KeyboardInterrupt:
                remove_own_leftovers()
                if made is None:
                    raise Interrupted("interrupted before anything was measured") from None
                made.close("interrupted", "stopped by the user")
                raise Interrupted(
                    f"interrupted: {len(made.trials)} trials are kept in {folder.record}; nothing "
                    "stays set; the same command with --resume goes on"
                ) from None
            except (TailtapError, OSError) as error:
                if made is not None:
                    with contextlib.suppress(OSError):  # the first error tells more
                        made.close("failed", str(error))
                raise
    return made


def _begun(plan: Plan, folder: ImproveFolder) -> int:
    """Begin the folder of an improvement; the seed of its order."""
    if any(folder.path.iterdir()):
        raise Occupied("the folder is not empty", place=str(folder.path), begun="the improvement")
    make_folder(folder.runs, below=folder.path)
    write_text(folder.experiment, plan.text, below=folder.path)
    return random.SystemRandom().getrandbits(32)


def _resumed(plan: Plan, folder: ImproveFolder) -> int:
    """Make sure that a folder's improvement is this one; the seed of its order."""
    if not folder.record.exists():
        raise NothingBegun("there is no improve.json in it to resume", place=str(folder.path))
    before = read(folder.record, ImproveRecord)
    now = plan.settings.record()
    now.within_ns = before.settings.within_ns  # more time is why somebody resumes
    same = {
        "the requirement": before.requirement == plan.goal.requirement.text,
        "--margin, --disruptive or --undisturbed": before.settings == now,
        "what is measured": before.parameters == json.loads(json.dumps(plan.parameters())),
    }
    if different := [what for what, is_same in same.items() if not is_same]:
        raise Occupied(f"it was begun with another value of {different[0]}",
                       place=str(folder.record), remedy="resume with the same options")  # fmt: skip
    return before.seed


@dataclass
class Improvement:
    """An improvement in progress."""

    plan: Plan
    folder: ImproveFolder
    measuring: Measuring
    finding: Finding
    print_line: PrintLine
    stages: list[Stage] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    order: random.Random = field(init=False)
    record: ImproveRecord = field(init=False)
    """``improve.json``."""

    def __post_init__(self) -> None:
        """Begin the record."""
        plan, purpose = self.plan, self.finding.purpose
        self.order = random.Random(self.seed)
        self.record = ImproveRecord(
            name=plan.name,
            status="running",
            error=None,
            requirement=plan.goal.requirement.text,
            p=plan.goal.p,
            settings=plan.settings.record(),
            parameters=dict(plan.parameters()),
            purpose=f"--cpus {ranges(purpose.cpus)} --role {purpose.role}",
            seed=self.seed,
            started=_now(),
            finished=None,
            stopped=None,
            answer="not shown",
            stages=[],
            trials=[],
            left=[],
            kept=[],
            applied=False,
        )

    def improve(self) -> Stopped:
        """Explain, try, keep; why it ended."""
        while True:
            causes = self._stage()
            stage = self.stages[-1]
            self._store()
            if stage.answer == "holds":
                return "holds"
            rows = self.finding.candidates(causes).found
            done = {one.knob for one in self.trials if one.is_kept or one.answer in SETTLED}
            stopped = self._try([one for one in rows if one.knob not in done])
            if stopped is not None:
                return stopped

    def end(self, stopped: Stopped) -> None:
        """Record why it ended, and have the explanations say what was proven."""
        self.record.stopped = stopped
        self.close("done", None)
        if self.kept:
            self.finding.tell()

    def close(self, status: Status, error: str | None) -> None:
        """Record how it ended."""
        self.record.status, self.record.error, self.record.finished = status, error, _now()
        self._store()

    def apply(self) -> Sequence[tuple[str, str]]:
        """Set what helped so that it stays; what cannot stay, such as what a process must hold.

        Raises what `tailtap.host.tuning.apply.apply` raises.
        """
        found = self.finding
        steps = plan_of(found.tree, found.purpose, self.kept, disruptive=found.disruptive)
        set_all(steps)
        self.record.applied = True
        self.folder.write(self.record)
        return steps.left

    def _try(self, rows: Sequence[Candidate]) -> Stopped | None:
        """Try them together; why this was the last stage, if it was."""
        count = tried_at_once(self.measuring, self.plan.settings, len(rows))
        tests = TESTS - len(self.trials)
        self._leave(rows[count:], "there was no time to try it")
        self._leave(rows[tests:], f"{TESTS} trials were made before")
        if not rows or not tests:
            return "nothing left"
        if not count:
            return "time over"
        stage = self.stages[-1]
        trials = [
            Trial(
                candidate,
                len(self.stages),
                list(self.kept),
                stage.threshold_ns,
                self.plan.goal.p,
                share_before=_share(stage, candidate.causes),
            )
            for candidate in rows[: min(count, tests)]
        ]
        self.trials += trials
        try_together(trials, self.measuring, self.plan.settings, self.order)
        for trial in to_keep(trials):
            trial.is_kept = True
            self.kept.append(trial.knob)
        for trial in trials:
            self.print_line(f"{trial.knob}: {trial.answer}")
        self._store()
        if any(trial.is_kept for trial in trials):
            return None
        return "time over" if count < len(rows) else "nothing left"

    def _leave(self, rows: Sequence[Candidate], why: str) -> None:
        """Remember why these were not tried."""
        self.left |= dict.fromkeys((one.knob for one in rows), why)

    def _stage(self) -> Counter[Named]:
        """Measure with what was kept; the causes found, each with its late packets."""
        goal, measuring = self.plan.goal, self.measuring
        number = len(self.stages) + 1
        traced = measuring.needed(f"stage-{number}-trace", self.kept, goal.p, trace=True)
        plain = [
            measuring.needed(f"stage-{number}", self.kept, goal.p) for _ in range(self.plan.repeats)
        ]
        threshold = self._threshold([traced, *plain])
        late, packets = traced.late(threshold)
        causes = self.finding.causes(traced, threshold)
        knobs = self.finding.candidates(causes)
        self.left |= knobs.left
        by_cause = {
            name: [one.knob for one in knobs.found if name in one.causes] for name in causes
        }
        self.stages.append(
            Stage(
                kept=list(self.kept),
                run=traced.slug,
                threshold_ns=threshold,
                late=late / max(1, packets),
                causes=[
                    FoundCause(
                        cause=name.cause,
                        detail=name.detail,
                        share=min(1.0, count / max(1, packets)),
                        knobs=by_cause[name],
                    )
                    for name, count in causes.most_common()
                ],
                percentile=measured([one.percentile(goal.p) for one in plain]),
                answer=self.finding.answer(goal.requirement, plain),
                runs=[one.slug for one in plain],
            )
        )
        for one in self.trials:
            if one.is_kept and one.share_after is None:
                one.share_after = _share(self.stages[-1], one.candidate.causes)
        self._say(self.stages[-1])
        return causes

    def _threshold(self, made: Sequence[Made]) -> int:
        """From where on packets count as late."""
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
        self.print_line(
            f"{label(self.plan.goal.p)} {format_time(stage.percentile.ns)}, {stage.answer}; "
            f"{format_share(stage.late)} of the packets later than "
            f"{format_time(stage.threshold_ns)}: {told or 'no cause is known'}"
        )

    def _store(self) -> None:
        record = self.record
        record.stages, record.kept = self.stages, list(self.kept)
        record.trials = [trial.record() for trial in self.trials]
        tried = {one.knob for one in self.trials}
        record.left = [
            Left(name=name, why=why) for name, why in self.left.items() if name not in tried
        ]
        if self.stages:
            record.answer = self.stages[-1].answer
        self.folder.write(record)


def _share(stage: Stage, causes: Sequence[Named]) -> float:
    """The share of all packets that were late by some causes."""
    of = [one.share for one in stage.causes if Named(one.cause, one.detail) in causes]
    return min(1.0, sum(of))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
