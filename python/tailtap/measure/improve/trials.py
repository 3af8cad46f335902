"""Trials: knobs, each with and without, in blocks of runs until they are decided.

A block is one run without any of the knobs that are tried, and one with each of them, in random
order. So every knob has pairs of runs of its own, and all of them share the runs without: five
knobs take six runs a block in place of ten.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailtap.analysis.causes.taxonomy import Named
from tailtap.analysis.compare.significance import effect, fewest_pairs, interval
from tailtap.measure.improve.candidates import Candidate
from tailtap.measure.improve.measuring import Measuring, measured
from tailtap.measure.pairs import MOST_SPOILED, Made
from tailtap.records.causes import CauseName
from tailtap.records.search import ImproveSettings, KnobTrial

MOST_PAIRS = 60
"""What so many pairs do not show is small beside what else makes runs differ."""


@dataclass
class Trial:
    """A knob that is being tried on top of those `kept`."""

    row: KnobTrial
    causes: Sequence[Named]
    """Those that it may answer."""
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


def tried_at_once(measuring: Measuring, settings: ImproveSettings, waiting: int) -> int:
    """How many of the `waiting` knobs there is time for, until a clear effect is shown."""
    return max(0, min(waiting, measuring.left // fewest_pairs(settings.error_each) - 1))


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
