"""Trials: knobs, each with and without, in blocks of runs until they are decided.

A block is one run without any of the knobs that are tried, and one with each of them, in random
order. So every knob has pairs of runs of its own, and all of them share the runs without: five
knobs take six runs a block in place of ten.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailtap.analysis.compare.sequential import (
    Interval,
    effect,
    fewest_pairs,
    interval,
)
from tailtap.measure.improve.candidates import Candidate
from tailtap.measure.improve.measuring import Measuring, measured
from tailtap.measure.improve.settings import Settings
from tailtap.measure.pairs import MOST_SPOILED, Made
from tailtap.records.causes import CauseName
from tailtap.records.search import Effect, KnobTrial

MOST_PAIRS = 60
"""What so many pairs do not show is small beside what else makes runs differ."""


@dataclass
class Trial:
    """A knob that is being tried on top of those `kept`."""

    candidate: Candidate
    stage: int
    kept: Sequence[str]
    threshold_ns: int
    p: float
    share_before: float
    share_after: float | None = None
    pairs: list[tuple[float, float]] = field(default_factory=list)
    """The late shares with the knob and without, of the pairs that count."""
    percentiles: list[tuple[int, int]] = field(default_factory=list)
    """The percentiles of the same runs, in ns."""
    runs: list[str] = field(default_factory=list)
    spoiled: int = 0
    spoiled_now: int = 0
    """So many in a row."""
    answer: Effect = "not shown"
    is_kept: bool = False
    found: Interval = field(default_factory=lambda: interval([], 1.0))

    @property
    def knob(self) -> str:
        """Its name."""
        return self.candidate.knob

    @property
    def decided(self) -> bool:
        """Whether it is known what it does."""
        return self.answer != "not shown"

    def enter(self, one: Made, other: Made, settings: Settings) -> None:
        """Enter a pair: a run with the knob, and one without."""
        if not (one.counted and other.counted):
            self.spoiled += 1
            self.spoiled_now += 1
            return
        self.spoiled_now = 0
        self.pairs.append((one.share(self.threshold_ns), other.share(self.threshold_ns)))
        self.percentiles.append((one.percentile(self.p), other.percentile(self.p)))
        self.runs += [one.slug, other.slug]
        self.found = interval(self.pairs, settings.error_each)
        self.answer = effect(self.found, settings.margin)

    def goes_on(self, settings: Settings, *, another_helps: bool) -> bool:
        """Whether it is worth another pair.

        What helps clearly would have shown it long ago, and where another knob helps, what is left
        is tried again without what that one ends. It stays "not shown" then, so that this adds
        nothing to the error.
        """
        count, ratio = len(self.pairs), self.found.ratio
        fewest = fewest_pairs(settings.error_each)
        if self.decided or self.spoiled_now == MOST_SPOILED or count >= MOST_PAIRS:
            return False
        is_small = ratio is not None and ratio > 1 / (1 + settings.margin)
        if another_helps:
            return count < fewest or (count < 2 * fewest and not is_small)
        return count < 2 * fewest or not is_small

    def record(self) -> KnobTrial:
        """A row of ``improve.json``."""
        after, before = zip(*self.percentiles, strict=True) if self.percentiles else ((), ())
        return KnobTrial(
            knob=self.knob,
            stage=self.stage,
            causes=[CauseName(cause=one.cause, detail=one.detail) for one in self.candidate.causes],
            share_before=self.share_before,
            share_after=self.share_after,
            threshold_ns=self.threshold_ns,
            pairs=[list(pair) for pair in self.pairs],
            before=measured(before) if before else None,
            after=measured(after) if after else None,
            ratio=self.found.ratio,
            low=self.found.low,
            high=self.found.high,
            spoiled=self.spoiled,
            answer=self.answer,
            kept=self.is_kept,
            runs=self.runs,
        )


def try_together(
    trials: Sequence[Trial], measuring: Measuring, settings: Settings, order: random.Random
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
                made = measuring.run(f"with-{trial.knob}", [*kept, trial.knob], trial.p)
                with_it.append((trial, made))
        assert without is not None  # it is one of those that were sorted
        for trial, made in with_it:
            trial.enter(made, without, settings)
        helps = any(trial.answer == "helps" for trial in trials)
        going = [one for one in going if one.goes_on(settings, another_helps=helps)]


def tried_at_once(measuring: Measuring, settings: Settings, waiting: int) -> int:
    """How many of the `waiting` knobs there is time for, until a clear effect is shown."""
    return max(0, min(waiting, measuring.left // fewest_pairs(settings.error_each) - 1))


def to_keep(trials: Sequence[Trial]) -> list[Trial]:
    """Those that help, the strongest first, one for each cause.

    Of two that answer the same cause the weaker one may add nothing: it is tried again on top.
    """
    found: list[Trial] = []
    helping = [one for one in trials if one.answer == "helps" and one.found.ratio is not None]
    for trial in sorted(helping, key=lambda one: one.found.ratio or 0.0):
        answered = {cause for one in found for cause in one.candidate.causes}
        if not answered.intersection(trial.candidate.causes):
            found.append(trial)
    return found
