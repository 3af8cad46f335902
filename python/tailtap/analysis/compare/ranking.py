"""Compares the configurations under one load: values, tests, ranks.

The uncertainty of a percentile within one run: a bootstrap of stretches of time.

Late packets come together, so that the binomial interval of a percentile, made for independent
packets, is too narrow. Here the run is cut into stretches of equal time, longer than what stalls
packets, and resampled from stretches drawn with replacement (Künsch 1989; stretches do not
overlap). The interval shows how the percentile would vary if the same minutes came again, not what
another boot or another day would bring: it is a second view, no test.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median_high

import numpy as np

from tailtap.analysis.compare.configurations import Configuration, Load
from tailtap.analysis.compare.significance import (
    ALPHA,
    Shift,
    corrected,
    rank_test,
    repeats_needed,
    shift,
    smallest_p,
)
from tailtap.analysis.evaluation.values import DEFAULT, HEAVY_LOSS
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.tail import StoredTail
from tailtap.base.errors import InputError
from tailtap.records.compare import Answer, Choice, RepeatRow, Within

STRETCHES = 100
SAMPLES = 1_000
#: With fewer late stretches the interval is that of a handful of accidents.
FEWEST = 10
_LEVELS = 400
_SEED = 1


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a run's percentile in ns; `reason` says why there is none."""

    low: int | None = None
    high: int | None = None
    reason: str = ""

    def widened(self, ns: int) -> Interval:
        """The interval where every latency may be off by so much to either side."""
        if self.low is None or self.high is None:
            return self
        return Interval(self.low - ns, self.high + ns)


def interval(tail: StoredTail, p: float) -> Interval:
    """The 95 % block bootstrap interval of the percentile `p` (0 to 1) of a run."""
    blocks = tail.blocks
    # To the block that counts it: a stretch has whole blocks.
    egress = (tail.ingress_ns + tail.latency_ns) // blocks.width_ns * blocks.width_ns
    start, end = int(blocks.start_ns[0]), int(blocks.start_ns[-1]) + blocks.width_ns
    width = -(-(end - start) // STRETCHES)
    packets = np.bincount((blocks.start_ns - start) // width, blocks.packets, STRETCHES)
    above = tail.packets - max(int(np.ceil(p * tail.packets)), 1)
    if 2 * above + FEWEST > tail.latency_ns.size:
        return Interval(reason="the evaluation keeps too few latencies for this percentile")
    order = np.argsort(-tail.latency_ns, kind="stable")[: 5 * above + 200]
    stretch = np.clip((egress[order] - start) // width, 0, STRETCHES - 1)
    if np.unique(stretch[: above + 1]).size < FEWEST:
        return Interval(
            reason=f"its latest packets lie in fewer than {FEWEST} of {STRETCHES} "
            "stretches of the run"
        )
    # How many of each stretch are among the largest 1, 2, … at some hundred places.
    places = np.unique(np.linspace(0, order.size - 1, _LEVELS).astype(np.int64))
    cuts = np.zeros((places.size, STRETCHES))
    np.add.at(cuts, (np.searchsorted(places, np.arange(order.size)), stretch), 1)
    counts = np.cumsum(cuts, axis=0)
    random = np.random.default_rng(_SEED)
    draws = random.multinomial(STRETCHES, np.full(STRETCHES, 1 / STRETCHES), SAMPLES).T
    drawn = packets @ draws
    wanted = drawn - np.maximum(np.ceil(p * drawn), 1)
    # The first place with more packets than lie above the percentile.
    found = (counts @ draws > wanted).argmax(axis=0)
    reached = (counts[-1] @ draws) > wanted
    values = np.where(reached, tail.latency_ns[order][places[found]], tail.floor_ns)
    low, high = np.quantile(values, (0.025, 0.975), method="inverted_cdf")
    return Interval(int(low), int(high))


#: How the worst repeat is chosen.
RULE = (
    "the repeat with the highest latency at the percentile, then with the highest maximum; a run "
    "of which more was lost or failed than lies above the percentile counts as later than any"
)
MEDIAN = 0.5
NOBODY = "no device has a good run under this load"
TOO_FEW = "too few packets for any percentile that all runs have"
UNTOLD = "no run says how many packets it is of"


@dataclass(frozen=True)
class Value:
    """One run at the percentile of its comparison."""

    run: Run
    #: Its latency in ns; None where more packets were lost than lie above the percentile: had
    #: they arrived, it could be any.
    latency: int | None
    #: Whether ten packets lie above it; None where that is unknown.
    supported: bool | None
    interval: Interval

    @property
    def order(self) -> tuple[float, int]:
        """The order by which the worst repeat is chosen."""
        return self.number, self.run.maximum or 0

    @property
    def row(self) -> RepeatRow:
        """What is told of the run."""
        run, low, high = self.run, self.interval.low, self.interval.high
        return RepeatRow(
            run=run.slug,
            number=run.number,
            repeat=run.repeat,
            source=run.origin.source if run.origin else str(run.folder),
            packets=run.packets,
            lost=run.lost,
            loss=run.loss,
            latency=self.latency,
            supported=self.supported,
            interval=None if low is None or high is None else Within(low=low, high=high),
            no_interval=self.interval.reason or None,
            max=run.maximum,
            within_ns=run.within_ns,
        )

    @property
    def number(self) -> float:
        """The value in the test: infinite where lost packets leave it unknown."""
        return math.inf if self.latency is None else float(self.latency)


@dataclass(frozen=True)
class Standing:
    """A configuration in the ranking.

    `best` is one more than the number of configurations that are shown to be better, `last` the
    number of those that are not shown to be worse, itself included: where the two differ the
    data do not tell. None where there is no ranking.
    """

    configuration: Configuration
    values: tuple[Value, ...]
    best: int | None = None
    last: int | None = None

    @property
    def worst(self) -> Value | None:
        """The worst repeat by `RULE`."""
        return max(self.values, key=lambda value: value.order, default=None)

    @property
    def numbers(self) -> list[float]:
        """The values in the tests, one for each run."""
        return [value.number for value in self.values]

    def off(self, sign: int) -> list[float]:
        """The values, all of them as high or as low as the clocks of the runs allow."""
        return [value.number + sign * value.run.within_ns for value in self.values]


@dataclass(frozen=True)
class Pair:
    """The comparison of two configurations, the one with the higher median first."""

    slower: int
    faster: int
    p: float
    #: Corrected for the number of comparisons that could be significant.
    corrected: float
    #: The smallest `p` that so many runs could reach.
    least: float
    shift: Shift
    #: Whether the runs' own intervals leave a gap; None where one has none.
    apart: bool | None

    @property
    def significant(self) -> bool:
        """Whether the test distinguishes the two."""
        return self.corrected <= ALPHA


@dataclass(frozen=True)
class Ranking:
    """All configurations under one load; places in `pairs` are those in `standings`."""

    load: Load
    percentile: float
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    #: Floors (`wire`) under this load, and configurations without a good run.
    floors: tuple[Standing, ...]
    unranked: tuple[Configuration, ...]
    #: Why there is no ranking; empty where there is one.
    reason: str = ""
    #: Why this percentile.
    chosen_by: Choice = "support"

    def given(self, pair: Pair) -> tuple[int, int]:
        """The two places of a pair, first the one that was given first."""
        order = [id(found) for found in self.load.configurations]
        places = {
            place: order.index(id(self.standings[place].configuration))
            for place in (pair.slower, pair.faster)
        }
        one, other = sorted(places, key=lambda place: places[place])
        return one, other

    def over(self, one: int, other: int) -> Shift:
        """How far the configuration of one place lies above that of another."""
        pair = self.pair(one, other)
        return pair.shift if pair.slower == one else pair.shift.turned()

    def answer(self, pair: Pair) -> Answer:
        """What is shown of the one that was given second: ``slower``, ``faster``, or nothing."""
        if not pair.significant:
            return "not shown"
        first, second = (self.standings[place].numbers for place in self.given(pair))
        return "slower" if _above(second, first) > 0 else "faster"

    def pair(self, one: int, other: int) -> Pair:
        """The comparison of two places, whichever comes first."""
        return next(p for p in self.pairs if {p.slower, p.faster} == {one, other})


def rank(
    loads: Sequence[Load],
    percentile: float | None = None,
    required: Collection[float] = (),
) -> list[Ranking]:
    """Rank the configurations under each load.

    By `percentile` (0 to 1; 1 is the maximum), or else by the highest that all runs support: of
    those that are `required`, where they support one, or of all. The tests of all loads are
    corrected together. Raises `InputError` when the percentile cannot be had.
    """
    found = [_prepare(load, percentile, required) for load in loads]
    pairs = [(place, pair) for place, ranking in enumerate(found) for pair in _pairs(ranking)]
    sizes = [
        (
            len(found[place].standings[pair.slower].values),
            len(found[place].standings[pair.faster].values),
        )
        for place, pair in pairs
    ]
    final = [
        (place, replace(pair, corrected=p))
        for (place, pair), p in zip(
            pairs, corrected([pair.p for _, pair in pairs], sizes), strict=True
        )
    ]
    return [
        _ranked(ranking, [pair for where, pair in final if where == place])
        for place, ranking in enumerate(found)
    ]


def needed(rankings: Sequence[Ranking]) -> int:
    """How many repeats of each configuration let every one of these comparisons be decided."""
    return repeats_needed(sum(len(ranking.pairs) for ranking in rankings))


def _prepare(load: Load, percentile: float | None, required: Collection[float]) -> Ranking:
    unranked = tuple(found for found in load.configurations if not found.runs)
    chosen_by: Choice = "option"
    if percentile is None:
        percentile, chosen_by = _chosen(load, required)
        if percentile is None:
            told = any(run.packets is not None for found in load.ranked for run in found.runs)
            untold = f"{UNTOLD}; choose the percentile by --percentile"
            reason = TOO_FEW if told else untold if load.ranked else NOBODY
            return Ranking(load, math.nan, (), (), (), (*unranked, *load.ranked), reason)
    floors = tuple(
        Standing(found, values_of(found, percentile))
        for found in load.configurations
        if found.runs and found.wire
    )
    standings = tuple(
        sorted(
            (Standing(found, values_of(found, percentile)) for found in load.ranked),
            key=_slowness,
        )
    )
    reason = ""
    if not standings:
        reason = NOBODY
    elif len(standings) == 1:
        only = standings[0].configuration.label
        reason = f"{only} is the only configuration with a good run under this load"
    return Ranking(load, percentile, standings, (), floors, unranked, reason, chosen_by)


def _chosen(load: Load, required: Collection[float]) -> tuple[float | None, Choice]:
    """The percentile to rank by where nobody said one, and what it is by."""
    runs = [run for found in load.ranked for run in found.runs]

    def supported(p: float) -> bool:
        row = (run.percentile(p) for run in runs)
        return all(one is not None and one.supported for one in row)

    # A median beside them is no reason to judge tails by it.
    tails = [p for p in required if MEDIAN < p < 1] or [p for p in required if p < 1]
    wanted = [p for p in tails if supported(p)]
    if wanted and runs:
        return max(wanted), "require"
    if list(required) == [1.0] and runs:
        return 1.0, "require"
    return _common(load), "support"


def _common(load: Load) -> float | None:
    """The highest default percentile that all runs support.

    It follows from how many packets arrived and how many did not, and is the same for all, so that
    it favours none. Runs that lost more than `HEAVY_LOSS` do not count: they would leave nothing
    but the median.
    """
    every = []
    for run in (run for found in load.ranked for run in found.runs):
        if not run.packets:
            continue
        ps = [p for p in DEFAULT if run.gone > HEAVY_LOSS or run.gone <= 1 - p]
        rows = zip(ps, map(run.percentile, ps), strict=True)
        every.append({p for p, row in rows if row is not None and row.supported})
    return max(set.intersection(*every), default=None) if every else None


def values_of(configuration: Configuration, p: float) -> tuple[Value, ...]:
    """Its runs at the percentile `p`. Raises `InputError` where published ones lack it."""
    values = []
    for run in configuration.runs:
        row = run.percentile(p)
        gone = (run.gone > 1 - p and p < 1) or run.packets == 0
        if row is None and not gone:
            raise InputError(
                f"its published percentiles do not have {100 * p:.10g}; leave out "
                "--percentile, or choose one of theirs, such as 99.9"
            ).at(run.slug)
        latency = None if gone or row is None else row.value
        supported = None if run.packets is None else gone or bool(row and row.supported)
        values.append(Value(run, latency, supported, _interval(run, p)))
    return tuple(values)


def _interval(run: Run, p: float) -> Interval:
    if run.origin:
        return Interval(reason="published results say how often latencies occurred, not when")
    if p == 1:
        return Interval(reason="a maximum has no interval")
    try:
        return interval(run.tail, p).widened(run.within_ns)
    except InputError as error:
        return Interval(reason=str(error))


def _slowness(standing: Standing) -> tuple[float, tuple[float, int]]:
    return median_high(standing.numbers), max(value.order for value in standing.values)


def _pairs(ranking: Ranking) -> Iterator[Pair]:
    """All comparisons, before their correction; standings are in the order of their medians."""
    for faster, slower in combinations(range(len(ranking.standings)), 2):
        left, right = ranking.standings[slower], ranking.standings[faster]
        yield Pair(
            slower,
            faster,
            _p(left, right),
            1.0,
            smallest_p(len(left.values), len(right.values)),
            shift_of(left, right),
            _apart(left.values, right.values),
        )


def _p(left: Standing, right: Standing) -> float:
    """The p-value of the rank test, the largest that clocks which may be off leave open."""
    ends = [(left.off(sign), right.off(-sign)) for sign in (-1, 1)]
    if ends[0] == ends[1]:
        return rank_test(left.numbers, right.numbers)
    # The sum of the ranks rises from the one end to the other. Where its sign changes on the way,
    # there may be no difference at all.
    if _above(*ends[0]) * _above(*ends[1]) <= 0:
        return 1.0
    return max(rank_test(*end) for end in ends)


def shift_of(left: Standing, right: Standing) -> Shift:
    """How far one lies above the other, with bounds that include what clocks may be off by."""
    found = shift(left.numbers, right.numbers)
    least, most = (shift(left.off(sign), right.off(-sign)) for sign in (-1, 1))
    return replace(found, low=least.low, high=most.high)


def _apart(left: Sequence[Value], right: Sequence[Value]) -> bool | None:
    sides = []
    for values in (left, right):
        lows = [value.interval.low for value in values if value.interval.low is not None]
        highs = [value.interval.high for value in values if value.interval.high is not None]
        if len(lows) < len(values) or len(highs) < len(values):
            return None
        sides.append((min(lows), max(highs)))
    (low, high), (other_low, other_high) = sides
    return high < other_low or other_high < low


def _ranked(ranking: Ranking, pairs: Sequence[Pair]) -> Ranking:
    if ranking.reason:
        return replace(ranking, pairs=tuple(pairs))
    count = len(ranking.standings)
    better, worse = [0] * count, [0] * count
    for pair in pairs:
        if pair.significant:
            slower, faster = pair.slower, pair.faster
            if _above(ranking.standings[slower].numbers, ranking.standings[faster].numbers) < 0:
                slower, faster = faster, slower  # medians may have another order than ranks
            better[slower] += 1
            worse[faster] += 1
    standings = [
        replace(found, best=1 + better[place], last=count - worse[place])
        for place, found in enumerate(ranking.standings)
    ]
    order = sorted(
        range(count), key=lambda place: (standings[place].best, standings[place].last, place)
    )
    moved = {old: new for new, old in enumerate(order)}
    turned = (replace(pair, slower=moved[pair.slower], faster=moved[pair.faster]) for pair in pairs)
    return replace(
        ranking,
        standings=tuple(standings[place] for place in order),
        pairs=tuple(sorted(turned, key=lambda pair: (pair.faster, pair.slower))),
    )


def _above(one: Sequence[float], other: Sequence[float]) -> int:
    """Pairs of runs that `one` is later in, less those that it is earlier in."""
    return sum((left > right) - (left < right) for left in one for right in other)
