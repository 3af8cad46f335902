"""When pairs of runs decide, and what is said of them; the runs are made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailtap.base.errors import MachineError
from tailtap.experiment.reading import read_experiment
from tailtap.measure.campaign import Campaign
from tailtap.measure.pairs import TAIL_LOST_NS, Made, Pairs, Question, begun
from tailtap.records.compare import AgainstRecord
from tailtap.records.record import read


@dataclass(frozen=True)
class Run(Made):
    ns: int = 1
    full: bool = False

    def percentile(self, p: float) -> int:
        return self.ns

    @property
    def lost_heavily(self) -> bool:
        return self.full


class Machine:
    """Makes up runs of both sides; it has time for so many."""

    def __init__(self, time: int, **sides: Iterator[Run]) -> None:
        self.left, self.sides = time, sides

    def make(self, name: str, experiment: object, variables: object, p: float) -> Made:
        self.left -= 1
        return next(self.sides[name])


def around(median: float, noise: float, seed: int) -> Iterator[Run]:
    random = np.random.default_rng(seed)
    while True:
        yield Run("run", (), (), None, int(median * np.exp(random.normal(0, noise))))


def broken(error: str = "the run is invalid") -> Iterator[Run]:
    while True:
        yield Run("run", (), (), error)


def full() -> Iterator[Run]:
    while True:
        yield Run("run", (), (), None, 100_000, full=True)


def asked(folder: Path, time: int = 400, **sides: Any) -> AgainstRecord:
    """What pairs of these runs say."""
    file = folder / "a.yaml"
    file.write_text("name: a\ndut: {cpus: [1]}\ntraffic: {rate: 10 kpkt/s}\n")
    checked = read_experiment(file)
    question = Question(checked, file, checked, file, 0.999, 0.05, 1)
    pairs = Pairs(Campaign(folder), begun(question), question)
    pairs.make(Machine(time, **sides))  # type: ignore[arg-type]
    pairs.end("done")
    return read(folder / "against.json", AgainstRecord)


@pytest.mark.parametrize(
    ("new", "noise", "answer", "most"),
    [
        (130_000, 0.03, "worse", 12),
        (70_000, 0.03, "better", 12),
        (100_000, 0.01, "no worse", 40),
        (200_000, 0.2, "worse", 25),
    ],
)
def test_pairs_end_when_it_is_decided(
    tmp_path: Path, new: int, noise: float, answer: str, most: int
) -> None:
    found = asked(tmp_path, new=around(new, noise, 1), base=around(100_000, noise, 2))
    assert found.answer == answer
    assert 5 <= len(found.pairs) <= most
    assert found.status == "done" and len(found.runs) == 2 * len(found.pairs)


def test_it_is_not_shown_when_the_time_is_over(tmp_path: Path) -> None:
    found = asked(tmp_path, 6, new=around(130_000, 0.03, 1), base=around(100_000, 0.03, 2))
    assert (found.answer, len(found.pairs)) == ("not shown", 3)


def test_a_side_that_loses_its_tail_to_overload_is_worse(tmp_path: Path) -> None:
    """Though what did come out was as fast; where both do, nothing is shown to be worse."""
    found = asked(tmp_path, new=full(), base=around(100_000, 0.03, 2))
    assert found.answer == "worse"
    assert {new for new, _ in found.pairs} == {TAIL_LOST_NS}


def test_runs_without_a_result_end_it(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no pair of runs had a result"):
        asked(tmp_path, new=broken(), base=around(100_000, 0.03, 2))


def test_pairs_without_a_result_do_not_count(tmp_path: Path) -> None:
    """Some runs are spoiled by chance: the others decide."""
    runs, bad = around(130_000, 0.03, 1), broken()
    mixed = (next(bad) if at % 3 == 1 else next(runs) for at in range(400))
    found = asked(tmp_path, new=mixed, base=around(100_000, 0.03, 2))
    assert found.answer == "worse"
    assert found.spoiled >= 1
