"""How often the gate is wrong of real runs, and what it sees, on this machine. Needs root.

A device that holds every 50th packet for 1 ms has a known tail: p99 lies among the held ones. It
is measured as it is and with 10 % and 30 % more, in drawn order, until the time is over. No run is
in two comparisons of one kind: twelve runs that follow each other are one comparison of six with
six, by drawn turns or the first six with the others.

    python -m benches.gating MINUTES

On a quiet virtual machine of two cores 966 runs made 156 comparisons of a configuration with
itself. By turns none of 78 was called worse at p50, p90 or p99 (scatter 5 %, 21 % and 28 %); one
after the other 2 of 78 were at p50, none at p90 and p99. 10 % and 30 % more were each called worse
at p99 in 15 of 52 comparisons by turns, and in 4 of 25 one after the other; never no worse.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import stdev
from tempfile import TemporaryDirectory

import yaml

from tailtap.analysis.compare.gate import ORDER, judge_loaded
from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.runs.run import Run
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import plan_run
from tailtap.experiment.reading import read_experiment
from tailtap.measure.runner import make_run

MINUTES = 25.0
REPEATS = 6
MARGIN = 0.05
HELD_NS = 1_000_000
AS_IT_IS = "as it is"
ADDED: Mapping[str, float] = {AS_IT_IS: 1.0, "+10 %": 1.1, "+30 %": 1.3}
BLOCK = 2
"""How often each is measured in a block, whose order is drawn."""
PACKETS = 4_400
PERCENTILES = (0.5, 0.9, 0.99)

Runs = Sequence[Run]
Sides = Mapping[str, Runs]
Pair = tuple[Runs, Runs]


def experiment(folder: Path, added: float) -> Experiment:
    """A fifth of a second at 20 kpkt/s, through a device that holds 2 % of the packets."""
    hold = {"ids": list(range(17, PACKETS, 50)), "time": f"{int(HELD_NS * added)} ns"}
    dut = {"forwarder": "fault", "cpus": [1], "options": {"hold": hold}}
    times = {"duration": "200 ms", "warm_up": "20 ms", "slip_limit": "10 ms"}
    traffic = {"rate": "20 kpkt/s", "cpu": 0, **times}
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({"name": "gate", "dut": dut, "traffic": traffic}))
    return read_experiment(path).combinations[0][1]


def measure(folder: Path, seconds: float) -> tuple[Sides, int]:
    """The valid runs of each side, in the order in which they were made; how many were not."""
    asked = {name: experiment(folder, added) for name, added in ADDED.items()}
    sides: dict[str, list[Run]] = {name: [] for name in ADDED}
    out, order = ExperimentFolder(folder), Random(0)
    number = failed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        block = [name for name in ADDED for _ in range(BLOCK)]
        for name in order.sample(block, len(block)):
            number += 1
            run = plan_run(number, "gate", number, {}, asked[name])
            record = make_run(run, out.run(run.slug), keep_stamps=False)
            if record.status == "done" and record.valid:
                sides[name] += finished_runs(out.run(run.slug).path)
            else:
                failed += 1
                told = record.error or "; ".join(one.message for one in record.warnings)
                print(f"{run.slug}: {told}", file=sys.stderr)
    return sides, failed


def called(name: str, runs: Runs) -> Runs:
    """Runs of one folder as a side of their own."""
    return [replace(run, alias=name) for run in runs]


def answers(pairs: Iterable[Pair], at: float) -> str:
    """How many comparisons there were, and how often each answer came."""
    found = Counter(
        judge_loaded(called("base", base), called("new", new), MARGIN, at).answer
        for base, new in pairs
    )
    told = ", ".join(f"{found[answer]} {answer}" for answer in ORDER if found[answer])
    return f"{found.total():4}: {told}"


def stretches(runs: Runs) -> Iterator[Runs]:
    """Runs that follow each other, as many as a comparison takes; none is in two."""
    for first in range(0, len(runs) - 2 * REPEATS + 1, 2 * REPEATS):
        yield runs[first : first + 2 * REPEATS]


def by_turns(sides: Sides) -> Iterator[Pair]:
    """Each with itself: half against half, drawn."""
    order = Random(1)
    for runs in sides.values():
        for stretch in stretches(runs):
            drawn = order.sample(stretch, len(stretch))
            yield drawn[:REPEATS], drawn[REPEATS:]


def one_after_the_other(sides: Sides) -> Iterator[Pair]:
    """Each with itself: runs against those before, as with a baseline that was stored."""
    for runs in sides.values():
        for stretch in stretches(runs):
            yield stretch[:REPEATS], stretch[REPEATS:]


def beside(base: Runs, new: Runs) -> Iterator[Pair]:
    """Two sides, from the same stretches of time."""
    for one, other in zip(stretches(base), stretches(new), strict=False):
        yield one[::2], other[::2]
        yield one[1::2], other[1::2]


def behind(base: Runs, new: Runs) -> Iterator[Pair]:
    """Two sides, one measured after the other."""
    for one, other in zip(stretches(base), list(stretches(new))[1:], strict=False):
        yield one[:REPEATS], other[:REPEATS]


def scatter(runs: Runs, at: float) -> float:
    """The standard deviation of the logarithms of the runs' latencies."""
    found = (run.percentile(at) for run in runs)
    return stdev(math.log(percentile.value) for percentile in found if percentile)


def main(minutes: float = MINUTES) -> None:
    """Prints a row for each percentile and kind of comparison."""
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        sides, failed = measure(Path(folder), 60 * minutes)
        took = time.monotonic() - began
        told = ", ".join(f"{len(runs)} {name}" for name, runs in sides.items())
        print(f"{told}; {failed} failed or invalid; {took:.0f} s; margin {MARGIN:.0%}")
        if min(map(len, sides.values())) < 2 * REPEATS:
            sys.exit("too few valid runs for one comparison: measure longer")
        base, *others = sides.values()
        for at in PERCENTILES:
            print(f"p{at * 100:g}, scatter {scatter(base, at):.1%}, {REPEATS} runs each")
            print(f"  itself, by turns             {answers(by_turns(sides), at)}")
            print(f"  itself, one after the other  {answers(one_after_the_other(sides), at)}")
            for name, worse in zip(list(sides)[1:], others, strict=True):
                print(f"  {name}, by turns{'':<13}{answers(beside(base, worse), at)}")
                print(f"  {name}, one after the other  {answers(behind(base, worse), at)}")


if __name__ == "__main__":
    main(*(float(number) for number in sys.argv[1:2]))
