"""What configurations counted per packet: means over repeats, and tests whether they differ.

The unit of replication is the run, as for latencies, and so are the tests (`significance.py`).
There are two families, each with an error of `ALPHA` for all its tests together: events, which
somebody chose, and interrupts and softirqs by kind, which are all there are. So a choice of few
events is decided by fewer repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

from tailtap.analysis.compare.configurations import Load
from tailtap.analysis.compare.significance import (
    ALPHA,
    decidable,
    holm,
    rank_test,
    shift,
    smallest_p,
)
from tailtap.analysis.interrupts.runs import asked, by_packet
from tailtap.records.compare import Counted, CounterPair, Counters

Values = dict[str, dict[str, list[float]]]
"""By counter and configuration, one for each run that counted it."""


def counters(loads: Sequence[Load]) -> list[Counters]:
    """What the configurations under each load counted; the tests of all are corrected together.

    Raises `InputError` for samples of interrupts that cannot be read.
    """
    runs = [run for load in loads for found in load.ranked for run in found.runs]
    chosen = list(dict.fromkeys(name for run in runs for name in asked(run)))
    values = [_values(load, chosen) for load in loads]
    pairs: list[list[CounterPair]] = [[] for _ in loads]
    for family in (True, False):
        tests = [
            _Test(place, name, first, second, rows[first], rows[second])
            for place, found in enumerate(values)
            for name, rows in found.items()
            if (name in chosen) is family
            for first, second in combinations(rows, 2)
        ]
        for test, corrected in zip(tests, _corrected(tests), strict=True):
            pairs[test.place].append(test.told(corrected))
    return [
        Counters(
            counted=[
                Counted(
                    counter=name,
                    chosen=name in chosen,
                    configuration=label,
                    values=numbers,
                    mean=fmean(numbers),
                    deviation=stdev(numbers) if len(numbers) > 1 else None,
                )
                for name, rows in found.items()
                for label, numbers in rows.items()
            ],
            comparisons=pairs[place],
        )
        for place, found in enumerate(values)
    ]


def _values(load: Load, chosen: Sequence[str]) -> Values:
    """What was counted per packet, `chosen` events first."""
    every = {
        found.label: [row for run in found.runs if (row := by_packet(run))] for found in load.ranked
    }
    names = {name for runs in every.values() for told in runs for name in told}
    found: Values = {}
    for name in [*(name for name in chosen if name in names), *sorted(names - set(chosen))]:
        for label, told in every.items():
            if name in chosen:
                numbers = [one[name] for one in told if name in one]
            else:  # a run that tells kinds tells all that occurred in it
                numbers = [one.get(name, 0.0) for one in told if one.keys() - set(chosen)]
            if numbers:
                found.setdefault(name, {})[label] = numbers
    return found


@dataclass(frozen=True)
class _Test:
    """One counter of two configurations."""

    place: int
    name: str
    first: str
    second: str
    before: list[float]
    after: list[float]

    @property
    def p(self) -> float:
        return rank_test(self.after, self.before)

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.before), len(self.after)

    def told(self, corrected: float) -> CounterPair:
        """What is shown of the configuration that was given second."""
        apart = shift(self.after, self.before)
        above = sum((x > y) - (x < y) for x in self.after for y in self.before)
        significant = corrected <= ALPHA
        return CounterPair(
            counter=self.name,
            first=self.first,
            second=self.second,
            answer="not shown" if not significant else "more" if above > 0 else "fewer",
            difference=apart.difference,
            difference_low=apart.least,
            difference_high=apart.most,
            ratio=apart.ratio,
            ratio_low=apart.low,
            ratio_high=apart.high,
            p=self.p,
            p_corrected=corrected,
            smallest_p=smallest_p(*self.sizes),
        )


def _corrected(tests: Sequence[_Test]) -> list[float]:
    """The p-values of one family, corrected for the number of those that could be significant."""
    able = decidable([test.sizes for test in tests])
    found = iter(holm([test.p for test, yes in zip(tests, able, strict=True) if yes]))
    return [next(found) if yes else 1.0 for yes in able]
