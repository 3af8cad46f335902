"""A trial: one knob, with and without, in pairs of runs until it is decided."""

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
from tailtap.measure.pairs import Made, in_pairs
from tailtap.records.causes import CauseName
from tailtap.records.improve import Effect, KnobTrial

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
    answer: Effect = "not shown"
    found: Interval = field(default_factory=lambda: interval([], 1.0))

    def make(
        self, measuring: Measuring, settings: Settings, most: int, order: random.Random
    ) -> None:
        """Measure pairs until it is decided, there are `most`, or the time is over."""
        name = self.candidate.knob

        def with_it() -> Made:
            return measuring.run(f"with-{name}", [*self.kept, name], self.p)

        def without() -> Made:
            return measuring.run(f"without-{name}", self.kept, self.p)

        for pair in in_pairs(with_it, without, order):
            if pair is None:
                self.spoiled += 1
            else:
                one, other = pair
                self.pairs.append((one.share(self.threshold_ns), other.share(self.threshold_ns)))
                self.percentiles.append((one.percentile(self.p), other.percentile(self.p)))
                self.runs += [one.slug, other.slug]
                self.found = interval(self.pairs, settings.error_each)
                self.answer = effect(self.found, settings.margin)
            if (
                self.answer != "not shown"
                or self._is_small(settings)
                or len(self.pairs) >= min(most, MOST_PAIRS)
                or measuring.left < 2
            ):
                return

    def _is_small(self, settings: Settings) -> bool:
        """Whether it is not worth more pairs: what helps clearly would have shown it long ago.

        It stays "not shown" then, so that this adds nothing to the error.
        """
        ratio = self.found.ratio
        enough = 2 * fewest_pairs(settings.error_each)
        return len(self.pairs) >= enough and ratio is not None and ratio > 1 / (1 + settings.margin)

    def record(self) -> KnobTrial:
        """A row of ``improve.json``."""
        after, before = zip(*self.percentiles, strict=True) if self.percentiles else ((), ())
        return KnobTrial(
            knob=self.candidate.knob,
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
            kept=self.answer == "helps",
            runs=self.runs,
        )


def pairs_for(measuring: Measuring, settings: Settings, waiting: int) -> int:
    """How many pairs the next of `waiting` knobs may have: its share of the time.

    No fewer than show a clear effect, as long as there is time for these; 0 where there is not.
    """
    fewest = fewest_pairs(settings.error_each)
    whole = measuring.left // 2
    return 0 if whole < fewest else max(fewest, whole // waiting)
