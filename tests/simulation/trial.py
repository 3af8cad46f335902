"""A trial: what is made of a seed, and the checks of what the program says of it."""

from __future__ import annotations

import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scipy import stats

from tests.simulation.draw import Draw

Tally = Mapping[str, tuple[int, int]]
"""Of statements that hold in most cases only: how often each held, and of how many times."""
CHANCE = 1e-6
"""How rarely a rate that is right fails."""


@dataclass(frozen=True)
class Trial:
    """What one seed tries."""

    name: str
    run: Callable[[Draw, Path], Tally | None]
    """Makes files in an empty folder, and raises what it does not expect."""
    every: int = 1
    """Only seeds that are a multiple of it are tried."""
    rates: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of each name in a tally, the least and the largest share that is right."""


@dataclass(frozen=True)
class Case:
    """A trial of one seed, of which parts may be left out."""

    trial: Trial
    seed: int
    without: frozenset[str] = frozenset()
    scale: float = 1.0

    def command(self) -> str:
        """What repeats it."""
        words = ["make simulate", f"TRIALS={self.trial.name}", f"SEEDS={self.seed}"]
        words += [f"WITHOUT='{' '.join(sorted(self.without))}'"] * bool(self.without)
        words += [f"SCALE={self.scale:g}"] * (self.scale != 1)
        return " ".join(words)

    def tried(self) -> tuple[Draw, Tally, str | None]:
        """The choices, the tally, and the traceback if it failed."""
        draw = Draw(self.seed, self.without, self.scale)
        with tempfile.TemporaryDirectory(prefix="tt-seed-") as folder, warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                return draw, self.trial.run(draw, Path(folder)) or {}, None
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # A panic of Rust is no `Exception`.
                return draw, {}, traceback.format_exc()


def shrunk(case: Case) -> tuple[Case, str]:
    """A smaller case that still fails, and how it fails."""
    draw, _, failure = case.tried()
    assert failure is not None, f"{case.command()} fails once only"
    for feature in draw.features:
        smaller = Case(case.trial, case.seed, case.without | {feature}, case.scale)
        if (fails := smaller.tried()[2]) is not None:
            case, failure = smaller, fails
    while case.scale > 1e-3:
        smaller = Case(case.trial, case.seed, case.without, case.scale / 2)
        if (fails := smaller.tried()[2]) is None:
            break
        case, failure = smaller, fails
    return case, failure


def added(tallies: Iterable[Tally]) -> dict[str, tuple[int, int]]:
    """The sum of tallies."""
    held: Counter[str] = Counter()
    of: Counter[str] = Counter()
    for tally in tallies:
        for name, (right, times) in tally.items():
            held[name] += right
            of[name] += times
    return {name: (held[name], of[name]) for name in of}


def wrong_rates(trial: Trial, tally: Tally) -> list[str]:
    """The rates that are beyond their bounds by more than chance."""
    wrong = []
    for name, (held, of) in tally.items():
        least, most = trial.rates[name]
        if stats.binom.cdf(held, of, least) < CHANCE or stats.binom.sf(held - 1, of, most) < CHANCE:
            wrong.append(f"{trial.name}: {name}: {held} of {of} is not in {least} to {most}")
    return wrong
