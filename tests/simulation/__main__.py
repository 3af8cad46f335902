"""Tries seeds: `python -m tests.simulation [FIRST:END | SEED]…`; see ``--help``.

A seed that fails is shrunk, and printed with the command that repeats it. The exit status is 1
then, as it is when a rate over all seeds is not as stated.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.trial import Case, Tally, Trial, added, shrunk, wrong_rates
from tests.simulation.trials import TRIALS


def tried(trial: Trial, seed: int, without: frozenset[str], scale: float) -> tuple[Tally, bool]:
    """The tally of one seed, and whether it failed; if so, how the smallest case of it does is
    printed at once.
    """
    case = Case(trial, seed, without, scale)
    _, tally, failure = case.tried()
    if failure is not None:
        smallest, failure = shrunk(case)
        print(f"{failure}repeat with: {smallest.command()}\n", flush=True)
    return tally, failure is not None


def seeds_of(words: Iterable[str]) -> Iterator[int]:
    for word in words:
        first, _, end = word.partition(":")
        yield from range(int(first), int(end) if end else int(first) + 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seeds", nargs="*", default=["0:300"], help="SEED or FIRST:END")
    parser.add_argument("--trials", nargs="*", default=[], help="of these only")
    parser.add_argument("--without", nargs="*", default=[], help="features that are left out")
    parser.add_argument("--scale", type=float, default=1.0, help="how large worlds are")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    wrong = 0
    with ProcessPoolExecutor(chosen.processes) as processes:
        for trial in TRIALS:
            if chosen.trials and trial.name not in chosen.trials:
                continue
            seeds = [seed for seed in seeds_of(chosen.seeds) if seed % trial.every == 0]
            began = time.monotonic()
            once = partial(tried, trial, without=frozenset(chosen.without), scale=chosen.scale)
            found = list(processes.map(once, seeds, chunksize=4))
            tally = added(tally for tally, _ in found)
            rates = wrong_rates(trial, tally)
            print(*rates, sep="\n", end="\n" * bool(rates))
            failures = sum(failed for _, failed in found) + len(rates)
            wrong += failures
            took = time.monotonic() - began
            held = ", ".join(f"{name} {right}/{of}" for name, (right, of) in tally.items())
            said = f"{trial.name}: {len(seeds)} seeds, {failures} failures, {took:.1f} s"
            print(said, held, flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
