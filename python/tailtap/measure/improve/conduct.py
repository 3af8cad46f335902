"""`tailtap improve`: stages of explaining, each followed by trials of what may help.

A stage measures with what was kept so far: with a trace, to explain, and without, to judge the
requirement. Then the knobs that answer the causes found are tried, the most promising first. One
that helps is kept, and the next stage begins. ``improve.json`` is written after each step.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.evaluation.percentiles import label
from tailtap.analysis.runs.folder import RunStore, require_folder
from tailtap.experiment.plan import plan_run
from tailtap.experiment.tuning import knobs_of
from tailtap.host.changes.privileges import require_root
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import apply as set_all
from tailtap.host.tuning.plan import plan as plan_of
from tailtap.measure.improve.candidates import Candidate
from tailtap.measure.improve.finding import Finding
from tailtap.measure.improve.folder import ImproveFolder
from tailtap.measure.improve.measuring import Measuring, measured
from tailtap.measure.improve.settings import TESTS, Plan
from tailtap.measure.improve.trials import Trial, pairs_for
from tailtap.measure.pairs import Made, PrintLine, Runs
from tailtap.measure.preconditions import require_clock, require_cpus
from tailtap.measure.progress import seconds_of
from tailtap.measure.roles.tuning import purpose_for
from tailtap.measure.runner import (
    experiment_text,
    interruptible,
    remove_own_leftovers,
    storage_errors,
)
from tailtap.records.cpulist import ranges
from tailtap.records.errors import Interrupted, Occupied, TailtapError
from tailtap.records.files import make_folder, write_text
from tailtap.records.improve import FoundCause, ImproveRecord, Stage, Status, Stopped
from tailtap.records.printed import Left
from tailtap.records.units import format_share, format_time

MOST_LATE = 0.25
"""Where more packets than this are later than required, the percentile now takes the place of the
limit: what makes nearly all packets late is not what explain tells."""


def improve_experiment(
    plan: Plan,
    out: Path,
    *,
    knobs: Sequence[Knob],
    store: RunStore,
    print_line: PrintLine,
    on_loss: PrintLine,
) -> Improvement:
    """Improve in the folder `out`, by `knobs` as `tailtap explain` knows them.

    Everything is as it was afterwards. Raises `Occupied` for a folder that holds something,
    `MachineError` where nothing can be measured or a run of a stage fails, `Interrupted` when the
    user stopped it: what was made until then is kept.
    """
    require_root()
    first = [plan_run(1, "stage-1", 1, {}, plan.experiment)]
    require_cpus(first)
    require_clock(first)
    until = time.monotonic() + plan.settings.within_ns / 1e9
    folder = ImproveFolder(out)
    runs = Runs(folder, store, print_line, until, seconds_of(plan.experiment))
    measuring = Measuring(plan.experiment, runs, 1 + plan.repeats)
    tree = Tree()
    finding = Finding(
        tuple(knobs),
        tree,
        purpose_for(plan.experiment, tree),
        plan.settings.disruptive,
        frozenset(knobs_of(plan.experiment.dut.tuning)),
        print_line,
    )
    made = Improvement(plan, folder, measuring, finding, print_line)
    with storage_errors(out):
        require_folder(out, resume=False)
        with folder.locked(), interruptible():
            if any(out.iterdir()):
                raise Occupied("the folder is not empty", place=str(out))
            make_folder(folder.runs, below=out)
            text = experiment_text(plan.checked, plan.source)
            write_text(folder.experiment, text, below=out)
            for aside in store.begin_anew(folder.database):
                on_loss(f"{folder.database}: it was damaged, and is kept as {aside.name}")
            try:
                made.end(made.improve())
            except KeyboardInterrupt:
                remove_own_leftovers()
                made.close("interrupted", "stopped by the user")
                raise Interrupted(
                    f"interrupted: {len(made.trials)} trials are kept in {folder.record}; nothing "
                    "stays set"
                ) from None
            except (TailtapError, OSError) as error:
                with contextlib.suppress(OSError):  # the first error tells more
                    made.close("failed", str(error))
                raise
    return made


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
    order: random.Random = field(default_factory=random.SystemRandom)
    record: ImproveRecord = field(init=False)
    """``improve.json``."""

    def __post_init__(self) -> None:
        """Begin the record."""
        plan, purpose = self.plan, self.finding.purpose
        self.record = ImproveRecord(
            name=plan.checked.name,
            status="running",
            error=None,
            requirement=plan.goal.requirement.text,
            p=plan.goal.p,
            settings=plan.settings.record(),
            parameters=plan.experiment.parameters(),
            purpose=f"--cpus {ranges(purpose.cpus)} --role {purpose.role}",
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
            again = {one.candidate.knob for one in self.trials if one.answer != "not shown"}
            rows = [one for one in rows if one.knob not in again]
            stopped = self._try_each(rows)
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

    def _try_each(self, rows: Sequence[Candidate]) -> Stopped | None:
        """Try one after the other until one helps; why this was the last stage, if it was."""
        for place, candidate in enumerate(rows):
            most = pairs_for(self.measuring, self.plan.settings, len(rows) - place)
            if not most:
                self.left |= dict.fromkeys(
                    (one.knob for one in rows[place:]), "there was no time to try it"
                )
                return "time over"
            if len(self.trials) == TESTS:
                self.left |= dict.fromkeys(
                    (one.knob for one in rows[place:]), f"{TESTS} trials were made before"
                )
                return "nothing left"
            stage = self.stages[-1]
            trial = Trial(
                candidate,
                len(self.stages),
                list(self.kept),
                stage.threshold_ns,
                self.plan.goal.p,
                share_before=_share(stage, candidate.causes),
            )
            self.trials.append(trial)
            trial.make(self.measuring, self.plan.settings, most, self.order)
            self.print_line(f"{candidate.knob}: {trial.answer}")
            if trial.answer == "helps":
                self.kept.append(candidate.knob)
            self._store()
            if trial.answer == "helps":
                return None
        return "nothing left"

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
        if self.trials and self.trials[-1].answer == "helps":
            last = self.trials[-1]
            last.share_after = _share(self.stages[-1], last.candidate.causes)
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
        tried = {one.candidate.knob for one in self.trials}
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
