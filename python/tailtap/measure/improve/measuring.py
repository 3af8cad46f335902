"""The runs of an improvement, each with the knobs that it is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tailtap.analysis.undisturbed import undisturbed_run
from tailtap.base.errors import MachineError
from tailtap.experiment.model import Experiment
from tailtap.experiment.tuning import NONE, knobs_of
from tailtap.measure.pairs import Made, Runs
from tailtap.records.search import Measured

TRIES = 4
"""On a busy machine a generator may fail now and then."""


@dataclass
class Measuring(ABC):
    """Measures with knobs and without."""

    runs: Runs
    stage: int
    """How many runs a stage makes."""
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
