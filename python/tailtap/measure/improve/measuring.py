"""The runs of an improvement, each with the knobs that it is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tailtap.analysis.runs.folder import ExperimentFolder, RunFolder
from tailtap.analysis.undisturbed import undisturbed_run
from tailtap.base.errors import Interrupted, MachineError
from tailtap.base.files import make_folder, move, remove_tree, slugify
from tailtap.experiment.model import Experiment
from tailtap.experiment.tuning import NONE, knobs_of, purpose_of
from tailtap.host.changes.journal import Journal
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.host.tuning.apply import plan, tuned
from tailtap.measure.observe import ObservedRun, observe_prepared
from tailtap.measure.observe.look import Options, Prepared, prepare
from tailtap.measure.pairs import Made, Runs
from tailtap.records.run import RunRecord
from tailtap.records.search import Measured

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


@dataclass(frozen=True)
class Observable:
    """A device that can be observed, and what its machine is to be ready for."""

    prepared: Prepared
    tree: Tree
    purpose: Purpose


def prepare_stretches(options: Options) -> Observable:
    """Find out how a device is observed, and which cores serve it.

    Raises what `prepare` raises, and `MachineError` where nobody knows which cores serve.
    """
    prepared = prepare(options)
    if not prepared.traced:
        raise MachineError(
            "nobody can say why these packets are late: what serves them is not known, or they are "
            "matched by more than a hash: name its cores with --cpus"
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
    return Observable(prepared, tree, purpose_of(traits.virtualization, cpus, cards, tree))


@dataclass
class Stretches(Measuring):
    """Observes for a while, with knobs and without."""

    of_it: Observable = field(kw_only=True)
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
                prepared = self.of_it.prepared
                failed = ObservedRun.of(prepared, number, prepared.ways[0], folder)
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
        of_it, below = self.of_it, self.runs.campaign.out
        draft = ExperimentFolder(self.runs.campaign.out / DRAFT, below)
        remove_tree(draft.path, below=below)
        make_folder(draft.runs, below=below)
        options = of_it.prepared.options
        # What the trace of a stage costs is no matter: nothing is compared with it.
        options = replace(options, budget=None) if trace else replace(options, trace="none")
        prepared = replace(of_it.prepared, options=options)
        with ExitStack() as stack:
            if knobs:
                steps = plan(
                    of_it.tree, of_it.purpose, knobs, disruptive=self.disruptive, measuring=True
                )
                journal = Journal.create()
                stack.callback(journal.close)
                stack.enter_context(tuned(steps, journal))
            [made] = observe_prepared(prepared, draft, ends_early=False)
        remove_tree(folder.path, below=below)
        move(made.path, folder.path, below=below)
        remove_tree(draft.path, below=below)
        return folder.read()
