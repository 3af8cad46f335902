"""How often the gate is wrong, and what it sees, of real runs on this machine. Needs root.

A device that holds every 50th packet for 1 ms has a known tail: p99 lies among the held ones. By
turns it is measured as it is and with 10 % and 30 % more. Windows of consecutive rounds are then
compared as a change is with its base: the device with itself, by turns and one after the other, and
with what was made worse. Windows overlap, so their number is not that of independent comparisons.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import stdev
from tempfile import TemporaryDirectory
from typing import Any

import tailtap
from tailtap.analysis.compare.gate import ORDER, judge_loaded
from tailtap.analysis.compare.reading import read
from tailtap.analysis.runs.run import Run
from tailtap.records.errors import MachineError

ROUNDS = 53
"""If no other number is given: 201 windows of the device with itself, six runs each."""
REPEATS = (6, 10, 20)
MARGIN = 0.05
HELD_NS = 1_000_000
AS_IT_IS = "as it is"
ADDED: Mapping[str, float] = {AS_IT_IS: 1.0, "+10 %": 1.1, "+30 %": 1.3}
TURNS = (AS_IT_IS, AS_IT_IS, "+10 %", AS_IT_IS, AS_IT_IS, "+30 %")
"""What is measured in a round."""
PACKETS = 11_000
PERCENTILES = (0.5, 0.9, 0.99)

Sides = Mapping[str, Sequence[Run]]
Pair = tuple[Sequence[Run], Sequence[Run]]


def experiment(added: float) -> dict[str, Any]:
    """Half a second at 20 kpkt/s, through a device that holds 2 % of the packets."""
    hold = {"ids": list(range(17, PACKETS, 50)), "time": f"{int(HELD_NS * added)} ns"}
    return {
        "name": "gate",
        "dut": {
            "platform": "bare-metal",
            "forwarder": "fault",
            "cpus": [1],
            "options": {"hold": hold},
        },
        "traffic": {"rate": "20 kpkt/s", "duration": "500 ms", "warm_up": "50 ms", "cpu": 0},
    }


def measure(folder: Path, rounds: int) -> Sides:
    """The valid runs of each side, in the order in which they were made, by turns."""
    sides: dict[str, list[Run]] = {name: [] for name in ADDED}
    for number in range(rounds):
        # In random order: what a run leaves behind is not always the same side's.
        for turn, name in enumerate(Random(number).sample(TURNS, len(TURNS))):
            out = folder / f"{number:03}-{turn}"
            try:
                tailtap.run(experiment(ADDED[name]), out)
                runs = read([("", out)], lambda _: None)
            except MachineError as error:
                print(f"{out.name}: {error}", file=sys.stderr)
                continue
            sides[name] += [run for run in runs if not run.excluded]
    return sides


def called(name: str, runs: Sequence[Run]) -> list[Run]:
    """Runs of several folders as one side."""
    return [replace(run, alias=name) for run in runs]


def answers(pairs: Iterator[Pair], at: float) -> str:
    """How often each answer came."""
    found = Counter(
        judge_loaded(called("base", base), called("new", new), MARGIN, at).answer
        for base, new in pairs
    )
    return ", ".join(f"{found[answer]} {answer}" for answer in ORDER if found[answer])


def by_turns(runs: Sequence[Run], repeats: int) -> Iterator[Pair]:
    """Of consecutive runs half against half, at random."""
    for first in range(len(runs) - 2 * repeats + 1):
        window = Random(first).sample(runs[first : first + 2 * repeats], 2 * repeats)
        yield window[:repeats], window[repeats:]


def one_after_the_other(runs: Sequence[Run], repeats: int) -> Iterator[Pair]:
    """Runs against those before, as with a baseline that was stored."""
    for first in range(len(runs) - 2 * repeats + 1):
        window = runs[first : first + 2 * repeats]
        yield window[:repeats], window[repeats:]


def beside(one: Sequence[Run], other: Sequence[Run], repeats: int) -> Iterator[Pair]:
    """The runs of each from the same rounds."""
    every = TURNS.count(AS_IT_IS)
    for first in range(min(len(one) // every, len(other)) - repeats + 1):
        yield one[::every][first : first + repeats], other[first : first + repeats]


def scatter(runs: Sequence[Run], at: float) -> float:
    """The standard deviation of the logarithms of the runs' latencies."""
    found = (run.evaluation.percentile(at) for run in runs if run.evaluation)
    return stdev(math.log(percentile.value) for percentile in found if percentile)


def main(rounds: int = ROUNDS) -> None:
    """Prints a row for each percentile and number of repeats."""
    with TemporaryDirectory() as folder:
        sides = measure(Path(folder), rounds)
        told = ", ".join(
            f"{len(runs)} of {rounds * TURNS.count(name)} {name}" for name, runs in sides.items()
        )
        print(f"valid runs: {told}; margin {MARGIN:.0%}; answers of all windows")
        base, *others = sides.values()
        for at, repeats in itertools.product(PERCENTILES, REPEATS):
            print(f"p{at * 100:g}, scatter {scatter(base, at):.1%}, {repeats} runs each")
            print(f"  itself, by turns             {answers(by_turns(base, repeats), at)}")
            print(
                f"  itself, one after the other  {answers(one_after_the_other(base, repeats), at)}"
            )
            for name, worse in zip(list(sides)[1:], others, strict=True):
                print(f"  {name:<28} {answers(beside(base, worse, repeats), at)}")


if __name__ == "__main__":
    main(*(int(number) for number in sys.argv[1:2]))
