"""Simulated devices, whose highest rate is known, for the search to find."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailtap.base.files import write_json
from tailtap.measure.search import SEARCH
from tailtap.measure.search.methods import METHODS, Bounds, Trial, answer, result
from tailtap.records.record import as_json
from tailtap.records.search import Ended, SearchAnswer, SearchRecord, SearchSettings, TrialRow

MOST_TRIALS = 300
"""A search that takes more does not come to an end."""

Loss = Callable[[Trial, random.Random], float]
"""The loss ratio of a trial."""


def sharp(limit: float) -> Loss:
    """A server that passes `limit` packets a second and drops the rest."""
    return lambda trial, _: max(0.0, 1 - limit / trial.rate)


def soft(knee: float) -> Loss:
    """Loses 0.5 % at `knee`, and little at every rate: loss grows with the sixth power."""
    return lambda trial, _: min(1.0, 0.005 * (trial.rate / knee) ** 6)


def noisy(limit: float, spread: float) -> Loss:
    """A sharp limit that is another one in each trial, evenly within `spread`."""
    return lambda trial, chance: sharp(limit * (1 + chance.uniform(-spread, spread)))(trial, chance)


def rare(limit: float, share: float) -> Loss:
    """A sharp limit; in a `share` of the trials a few packets are lost at any rate."""

    def loss(trial: Trial, chance: random.Random) -> float:
        few = 7 * 1e9 / (trial.rate * trial.duration_ns) if chance.random() < share else 0.0
        return max(few, sharp(limit)(trial, chance))

    return loss


def constant(ratio: float) -> Loss:
    return lambda trial, _: ratio


@dataclass
class Bench:
    """A device between a generator and taps; it makes trials, and keeps what it made."""

    loss: Loss
    able: float = 1e12
    """The rate up to which the generator sends what is asked of it."""
    begins: float = 1e12
    """The rate above which it does not even get past its warm-up."""
    spoiled: float = 0.0
    """The share of the trials in which something else on the machine keeps it from that."""
    seed: int = 1
    results: list[TrialRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def make(self, trial: Trial) -> TrialRow:
        if trial.rate > self.begins:
            return result(trial, 0, 0, 0.0, "the generator did not reach it")
        achieved = min(trial.rate, self.able)
        packets = max(1, trial.rate * trial.duration_ns // 1_000_000_000)
        loss = self.loss(Trial(round(achieved), trial.duration_ns), self.chance)
        lost = round(loss * packets)
        spoiled = trial.rate > self.able or self.chance.random() < self.spoiled
        doubt = "the generator was late" if spoiled else None
        given_up = False
        if trial.give_up is not None and lost > trial.give_up * packets:
            # Noticed as soon as it is sure: a little more than allowed.
            lost, given_up = min(lost, int(trial.give_up * packets) + 1), True
        return result(trial, packets, lost, achieved, doubt, given_up=given_up)

    def search(self, method: str, settings: SearchSettings) -> list[SearchAnswer]:
        steps = METHODS[method](settings)
        found: list[Bounds] = []
        try:
            trial = next(steps)
            while len(self.results) < MOST_TRIALS:
                self.results.append(self.make(trial))
                trial = steps.send(self.results[-1])
            raise AssertionError(f"more than {MOST_TRIALS} trials")
        except StopIteration as end:
            found = end.value
        return [answer(settings, bounds, self.results) for bounds in found]

    def record(
        self, settings: SearchSettings, answers: Sequence[SearchAnswer], status: Ended = "done"
    ) -> SearchRecord:
        for number, row in enumerate(self.results, 1):
            row.number, row.slug = number, f"{number:03}"
        return SearchRecord(
            name="known",
            status=status,
            error=None,
            settings=settings,
            parameters={},
            started="2026-11-01T14:00:00.000+00:00",
            finished="2026-11-01T14:05:00.000+00:00",
            answers=list(answers),
            trials=self.results,
        )

    def store(
        self, folder: Path, settings: SearchSettings, answers: Sequence[SearchAnswer] = ()
    ) -> None:
        """Write ``search.json`` of what was searched."""
        write_json(folder / SEARCH, as_json(self.record(settings, answers)))

    @property
    def seconds(self) -> float:
        """How long the trials would have taken if none was given up."""
        return sum(one.duration_ns for one in self.results) / 1e9
