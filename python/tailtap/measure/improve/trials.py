"""Trials: knobs, each with and without, in blocks of runs until they are decided.

A block is one run without any of the knobs that are tried, and one with each of them, in random
order. So every knob has pairs of runs of its own, and all of them share the runs without: five
knobs take six runs a block in place of ten.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailtap.analysis.causes.many import Told, explain_many
from tailtap.analysis.causes.remedies import (
    LEAST_SHARE,
    Situation,
    knobs_for,
    known_knobs,
    rank,
)
from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.compare.significance import effect, fewest_pairs, interval
from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.analysis.undisturbed import undisturbed_run
from tailtap.analysis.verdict.judge import CONFIDENCE, judge
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.analysis.verdict.runs import ANSWERS, evidence_of
from tailtap.base.errors import Interrupted, MachineError
from tailtap.base.files import make_folder, move, remove_tree, slugify
from tailtap.experiment.model import Experiment
from tailtap.experiment.sections import NONE, knobs_of, purpose_of
from tailtap.host.changes.journal import Journal
from tailtap.host.knobs import named
from tailtap.host.knobs.tree import Purpose, Tree
from tailtap.host.tuning.apply import plan, tuned
from tailtap.measure.observe import ObservedRun, observe_prepared
from tailtap.measure.observe.look import Options
from tailtap.measure.observe.prepared import Prepared, prepare
from tailtap.measure.pairs import MOST_SPOILED, Made, Runs
from tailtap.records.causes import CauseName
from tailtap.records.knobs import KnobFacts
from tailtap.records.run import RunRecord
from tailtap.records.search import ImproveSettings, KnobTrial, Measured
from tailtap.records.verdict import Answer

BOOT = "the kernel's command line sets it, so that trying it takes a reboot"
ELSEWHERE = "it is not set on the device's machine"
NOTHING = "nothing sets it"
DISRUPTS = "setting it takes links down or stops what runs"
HARMS = "it can harm the machine or others"
MOST_RISK = 1
"""What costs something elsewhere is tried, and put back after each run."""


@dataclass(frozen=True)
class Candidate:
    """A knob that may answer causes, and can be tried."""

    knob: str
    causes: tuple[Named, ...]
    packets: int
    """Late packets with these causes."""


@dataclass(frozen=True)
class Candidates:
    """What can be tried, the most promising first, and what cannot, with the reason."""

    found: Sequence[Candidate]
    left: Mapping[str, str]


def candidates(
    causes: Mapping[Named, int],
    here: Situation,
    tree: Tree,
    purpose: Purpose,
    *,
    disruptive: bool,
) -> Candidates:
    """The candidates for causes of so many late packets each, of a device that is `here`.

    Other than `tailtap explain`, this names also knobs that help some loads and harm others: they
    are tried. A knob that is met, or that no cause of some weight asks for, is none.
    """
    late = sum(causes.values())
    by_knob: dict[KnobFacts, list[Named]] = {}
    for name in causes:
        for knob in knobs_for(name, here):
            by_knob.setdefault(knob, []).append(name)
    gains = {knob: sum(causes[name] for name in names) for knob, names in by_knob.items()}
    found: list[Candidate] = []
    left: dict[str, str] = {}
    for knob in sorted(gains, key=lambda knob: (-gains[knob], rank(knob))):
        if gains[knob] < max(1, LEAST_SHARE * late):
            continue
        can = _can_be_tried(knob, tree, purpose, disruptive=disruptive)
        if isinstance(can, str):
            left[knob.name] = can
        elif can:
            found.append(Candidate(knob.name, tuple(by_knob[knob]), gains[knob]))
    return Candidates(found, left)


def _can_be_tried(knob: KnobFacts, tree: Tree, purpose: Purpose, *, disruptive: bool) -> bool | str:
    """Whether a run can set it and it is not met yet, or why no run can."""
    row = named(knob.name)
    if row is None:
        return ELSEWHERE  # a guest's, or a generator's
    if row.settable == "no":
        return NOTHING
    if row.disruptive and not disruptive:
        return f"{DISRUPTS}: say --disruptive"
    if row.settable == "boot":
        return BOOT
    if row.risk > MOST_RISK and not disruptive:
        return f"{HARMS}: say --disruptive"
    steps = plan(
        tree, purpose, [row.name], disruptive=bool(purpose.interfaces), measuring=True
    )  # as for runs
    if steps.left:
        return steps.left[0][1]
    return bool(steps.changes)


@dataclass
class Explainer:
    """Explains runs with a trace, and names candidates."""

    tree: Tree
    purpose: Purpose
    disruptive: bool
    set_already: frozenset[str]
    """Knobs that the experiment sets by itself: between runs nobody sees that they are."""
    note: Callable[[str], object]
    """Called with what could not be explained."""
    explained: dict[Path, str] = field(default_factory=dict)
    """The runs, and which of their packets were late."""

    def causes(self, made: Made, threshold_ns: int) -> Counter[Named]:
        """The causes of packets as late as that, with how many each; none where nothing was."""
        late = f"{threshold_ns - 1} ns"
        self.explained |= dict.fromkeys(made.folders, late)
        found: Counter[Named] = Counter()
        for _, told in explain_many(made.folders, late=late):
            if isinstance(told, Told):
                for row in told.record.causes:
                    if row.claim != "present" and row.packets:
                        found[Named(row.cause, row.detail)] += row.packets
            else:
                self.note(f"{made.slug}: not explained: {told}")
        return found

    def answer(self, requirement: Requirement, made: Sequence[Made]) -> Answer:
        """Whether the requirement holds, over some measurements: the worst run decides."""
        found = [
            judge(requirement, evidence_of(run), CONFIDENCE).answer
            for one in made
            for run in one.runs
        ]
        return max(found, key=ANSWERS.index)

    def candidates(self, causes: Counter[Named]) -> Candidates:
        """What may answer these causes, and can be tried."""
        return candidates(
            causes,
            Situation(
                cards=frozenset(self.purpose.interfaces),
                knobs=[knob for knob in known_knobs() if knob.name not in self.set_already],
            ),
            self.tree,
            self.purpose,
            disruptive=self.disruptive,
        )

    def tell(self) -> None:
        """Explain again what was explained, as more is known of the candidates now."""
        for folder, late in self.explained.items():
            explain_many([folder], late=late)


MOST_PAIRS = 60
"""What so many pairs do not show is small beside what else makes runs differ."""


@dataclass
class Trial:
    """A knob that is being tried on top of those `kept`."""

    row: KnobTrial
    causes: Sequence[Named]
    kept: Sequence[str]
    p: float
    percentiles: list[tuple[int, int]] = field(default_factory=list)
    """The percentiles with the knob and without, in ns, of the pairs that count."""
    spoiled_now: int = 0
    """So many pairs without a result in a row."""

    @classmethod
    def of(
        cls, candidate: Candidate, stage: int, kept: Sequence[str], threshold_ns: int, p: float,
        share_before: float,
    ) -> Trial:  # fmt: skip
        """One of which nothing is known yet."""
        row = KnobTrial(
            knob=candidate.knob,
            stage=stage,
            causes=[CauseName(cause=one.cause, detail=one.detail) for one in candidate.causes],
            share_before=share_before,
            share_after=None,
            threshold_ns=threshold_ns,
            pairs=[],
            before=None,
            after=None,
            ratio=None,
            low=None,
            high=None,
            spoiled=0,
            answer="not shown",
            kept=False,
            runs=[],
        )
        return cls(row, candidate.causes, list(kept), p)

    def enter(self, one: Made, other: Made, settings: ImproveSettings) -> None:
        """Enter a pair: a run with the knob, and one without."""
        row = self.row
        if not (one.counted and other.counted):
            row.spoiled += 1
            self.spoiled_now += 1
            return
        self.spoiled_now = 0
        row.pairs.append([one.share(row.threshold_ns), other.share(row.threshold_ns)])
        row.runs += [one.slug, other.slug]
        self.percentiles.append((one.percentile(self.p), other.percentile(self.p)))
        after, before = zip(*self.percentiles, strict=True)
        row.before, row.after = measured(before), measured(after)
        found = interval([(with_it, without) for with_it, without in row.pairs],
                         settings.error_each)  # fmt: skip
        row.ratio, row.low, row.high = found.ratio, found.low, found.high
        row.answer = effect(found, settings.margin)

    def goes_on(self, settings: ImproveSettings, *, another_helps: bool) -> bool:
        """Whether it is worth another pair.

        What helps clearly would have shown it long ago, and where another knob helps, what is left
        is tried again without what that one ends. It stays "not shown" then, so that this adds
        nothing to the error.
        """
        count, ratio = len(self.row.pairs), self.row.ratio
        fewest = fewest_pairs(settings.error_each)
        if (
            self.row.answer != "not shown"
            or self.spoiled_now == MOST_SPOILED
            or count >= MOST_PAIRS
        ):
            return False
        is_small = ratio is not None and ratio > 1 / (1 + settings.margin)
        if another_helps:
            return count < fewest or (count < 2 * fewest and not is_small)
        return count < 2 * fewest or not is_small


def try_together(
    trials: Sequence[Trial], measuring: Measuring, settings: ImproveSettings, order: random.Random
) -> None:
    """Measure blocks until no trial goes on, or the time is over. All have the same `kept`."""
    going = list(trials)
    while going and measuring.left > len(going):
        without: Made | None = None
        with_it: list[tuple[Trial, Made]] = []
        for trial in sorted([*going, None], key=lambda _: order.random()):
            kept = trials[0].kept
            if trial is None:
                without = measuring.run("without", kept, trials[0].p)
            else:
                made = measuring.run(f"with-{trial.row.knob}", [*kept, trial.row.knob], trial.p)
                with_it.append((trial, made))
        assert without is not None  # it is one of those that were sorted
        for trial, made in with_it:
            trial.enter(made, without, settings)
        helps = any(trial.row.answer == "helps" for trial in trials)
        going = [one for one in going if one.goes_on(settings, another_helps=helps)]


def to_keep(trials: Sequence[Trial]) -> list[Trial]:
    """Those that help, the strongest first, one for each cause.

    Of two that answer the same cause the weaker one may add nothing: it is tried again on top.
    """
    found: list[Trial] = []
    helping = [one for one in trials if one.row.answer == "helps" and one.row.ratio is not None]
    for trial in sorted(helping, key=lambda one: one.row.ratio or 0.0):
        answered = {cause for one in found for cause in one.causes}
        if not answered.intersection(trial.causes):
            found.append(trial)
    return found


TRIES = 4
"""On a busy machine a generator may fail now and then."""


@dataclass
class Measuring(ABC):
    """Measures with knobs and without."""

    runs: Runs
    stage: int
    undisturbed: bool = False
    """Whether latencies without pauses from outside count: every run has a trace, which tells."""

    @property
    def left(self) -> int:
        """How many runs there is time for, besides those of a last stage."""
        return max(0, self.runs.left - self.stage)

    @abstractmethod
    def measure(self, name: str, knobs: Sequence[str], p: float, *, trace: bool) -> Made:
        """Measure once with the `knobs` set."""

    def run(self, name: str, knobs: Sequence[str], p: float, *, trace: bool = False) -> Made:
        """The same, and the latencies that count."""
        made = self.measure(name, knobs, p, trace=trace or self.undisturbed)
        if not self.undisturbed or not made.counted:
            return made
        runs = [undisturbed_run(one) for one in made.runs]
        failure = next((one.failure for one in runs if one.evaluation is None), None)
        return replace(made, runs=runs, error=failure)

    def needed(self, name: str, knobs: Sequence[str], p: float, *, trace: bool = False) -> Made:
        """The same until a run has a result. Raises `MachineError` after `TRIES` that have none."""
        for _ in range(TRIES - 1):
            made = self.run(name, knobs, p, trace=trace)
            if made.counted:
                return made
        made = self.run(name, knobs, p, trace=trace)
        if made.error is not None:
            raise MachineError(f"{made.error}; so were {TRIES - 1} runs before it").at(made.slug)
        return made


@dataclass
class OfExperiment(Measuring):
    """Runs of an experiment, each of which sets its knobs by itself and puts them back."""

    experiment: Experiment = field(kw_only=True)

    def measure(self, name: str, knobs: Sequence[str], p: float, *, trace: bool) -> Made:
        """With the `knobs` besides those that the experiment sets by itself."""
        base = self.experiment
        tuning = [*knobs_of(base.dut.tuning), *knobs] or NONE
        traced = ("full" if base.trace == "full" else "thin") if trace else "none"
        dut = base.dut.model_copy(update={"tuning": tuning})
        experiment = base.model_copy(update={"dut": dut, "trace": traced})
        return self.runs.make(name, experiment, {"dut.tuning": tuning, "trace": traced}, p)


def measured(values: Sequence[int]) -> Measured:
    """A percentile over some runs, with the 95 % interval of its median where the runs are enough.

    The interval is that of order statistics, from the binomial distribution of how many lie below
    the median.
    """
    from scipy import stats  # takes a while to load

    ordered = sorted(values)
    n = len(ordered)
    # So many of them may be left out at either end.
    outside = int(stats.binom.ppf(0.025, n, 0.5)) - 1
    low, high = (ordered[outside], ordered[-1 - outside]) if outside >= 0 else (None, None)
    return Measured(ns=ordered[(n - 1) // 2], low_ns=low, high_ns=high, runs=n)


DRAFT = "observing"
"""Beside the runs: the stretch that is observed now."""


def prepare_stretches(options: Options) -> tuple[Prepared, Tree, Purpose]:
    """Find out how a device is observed, and what its machine is to be ready for.

    Raises what `prepare` raises, and `MachineError` where nobody knows which cores serve.
    """
    prepared = prepare(options)
    if not prepared.traced:
        raise MachineError(
            "late packets cannot be explained: the cores that serve them are not known (name them "
            "with --cpus), or packets are matched by more than a hash"
        )
    tree = Tree()
    traits = prepared.traits
    cpus = prepared.serving.cpus
    cards = sorted(
        end.interface.name
        for way in prepared.ways
        for end in way
        if f"/sys/class/net/{end.interface.name}/device"
        in tree.glob(f"/sys/class/net/{end.interface.name}/device")
    )
    return prepared, tree, purpose_of(traits.virtualization, cpus, cards, tree)


@dataclass
class Stretches(Measuring):
    """Observes for a while, with knobs and without."""

    prepared: Prepared = field(kw_only=True)
    tree: Tree = field(kw_only=True)
    purpose: Purpose = field(kw_only=True)
    disruptive: bool = field(kw_only=True)

    def measure(self, name: str, knobs: Sequence[str], p: float, *, trace: bool) -> Made:
        """Observe once with the `knobs` set; they are put back before it returns."""
        runs = self.runs
        variables = {"tuning": list(knobs), "trace": trace}
        repeat, number = runs.repeat_of(variables), runs.number + 1
        slug = f"{number:03}-{slugify(name)}"

        def make() -> RunRecord:
            folder = runs.campaign.folder.run(slug)
            try:
                record = self._observed(folder, knobs, trace=trace)
            except MachineError as error:  # a knob that cannot be set here, say
                failed = ObservedRun.of(self.prepared, number, self.prepared.ways[0], folder)
                failed.begin()
                failed.end("failed", str(error))
                record = failed.record
            except Interrupted as error:
                raise KeyboardInterrupt from error
            record.slug, record.repeat, record.number = slug, repeat, number
            record.variables |= variables
            folder.write(record)
            return record

        return runs.take([slug], p, make)

    def _observed(self, folder: RunFolder, knobs: Sequence[str], *, trace: bool) -> RunRecord:
        """Observe into a draft, whose run becomes this one."""
        below = self.runs.campaign.out
        draft = ExperimentFolder(below / DRAFT, below)
        remove_tree(draft.path, below=below)
        make_folder(draft.runs, below=below)
        options = self.prepared.options
        # What the trace of a stage costs is no matter: nothing is compared with it.
        options = replace(options, budget=None) if trace else replace(options, trace="none")
        prepared = replace(self.prepared, options=options)
        with ExitStack() as stack:
            if knobs:
                steps = plan(
                    self.tree, self.purpose, knobs, disruptive=self.disruptive, measuring=True
                )
                journal = Journal.create()
                stack.callback(journal.close)
                stack.enter_context(tuned(steps, journal))
            [made] = observe_prepared(prepared, draft, ends_early=False)
        remove_tree(folder.path, below=below)
        move(made.path, folder.path, below=below)
        remove_tree(draft.path, below=below)
        return folder.read()
