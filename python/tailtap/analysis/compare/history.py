"""Where a tail changed among commits, and whether the program or the machine did it.

A series is one configuration under one load: of each commit the median of its runs at one
percentile. Its changes are those of the kernel change point method (Arlot, Celisse and Harchaoui
2019), as ruptures implements it, on the logarithms of the values. Its kernel sees a value that is
ten times too high as far away, and one that is a hundred times too high as no farther, so that
outliers make no changes. docs/howto/history.md compares it with others.

The newest commits are too few to be a level in its eyes. They have an exact rank test against the
last level instead: whatever is distributed how, commits that do not differ from those before them
are called slower, and called faster, in at most `ERROR` of the histories.

A change is the machine's where the floor (`wire`) of the same commits changed as well, or what
takes cores that nobody asked for anything (`host noise`). A change of the floor always is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high

import numpy as np

from tailtap.analysis.compare.configurations import differing
from tailtap.analysis.compare.significance import above_test, percentile_text, rank_test
from tailtap.analysis.runs.groups import grouped
from tailtap.base.errors import InputError, PackageMissing
from tailtap.base.units import format_count
from tailtap.records.compare import Mark, Origin, Point, Series

PENALTY = 4.0
"""What a change must explain. Higher finds fewer: docs/howto/history.md has the error rates."""
FEWEST = 6
"""Commits that a series must have before changes are looked for."""
SHORTEST = 2
"""Commits between two changes."""
LATEST = 5
"""The newest commits that have a test of their own: so many, or fewer."""
RECENT = 60
"""Commits of the last level that they are held against, themselves included."""
ERROR = 0.01
"""How often the newest commits are called slower (or faster) where they are not."""
OUTSIDE = 3.0
"""Standard deviations of a level beyond which the newest commits stand out."""
BEYOND = 10
"""How many times the highest value counts what lost packets leave unknown."""
NEAR = 2
"""So many commits a change may lie beside its place."""
AROUND = 12
"""Commits to either side that say whether the floor moved."""
FLOOR_LEVEL = 0.01
FLOOR_MOVED = 0.03
"""A floor that moved by less than this share explains nothing."""

Row = tuple[int, int | None, int | None, bool]
"""A percentile: value, interval and whether ten packets lie above it."""


@dataclass(frozen=True)
class Measured:
    """A run of a history."""

    commit: str
    date: str
    experiment: str
    configuration: str
    load: str
    traffic: str
    """The load besides its rate, as JSON."""
    wire: bool
    percentiles: Mapping[float, Row]
    """Without those that lost packets leave unknown."""
    machine: Mapping[str, str] = field(default_factory=dict)
    noise: float | None = None
    """The share of the noisiest core's time that something took, when nobody asked for anything."""

    @property
    def series(self) -> tuple[str, ...]:
        """What runs of one series have in common."""
        return self.experiment, self.configuration, self.load, self.traffic

    @property
    def place(self) -> tuple[str, ...]:
        """What a floor has in common with those that stand on it."""
        return self.experiment, self.load, self.traffic


def changes(values: Sequence[float]) -> list[int]:
    """The places in `values` at which another level begins, ascending; values may be infinite.

    Raises `MachineError` without the package ruptures.
    """
    if len(values) < FEWEST or len(set(values)) == 1:
        return []
    try:
        import ruptures  # with scipy, which takes a second to load
    except ImportError as error:
        raise PackageMissing("finding changes needs", "ruptures") from error
    finite = [max(value, 1.0) for value in values if math.isfinite(value)]
    beyond = BEYOND * max(finite, default=1.0)
    logs = np.log([max(value, 1.0) if math.isfinite(value) else beyond for value in values])
    search = ruptures.KernelCPD(kernel="rbf", min_size=SHORTEST).fit(logs[:, None])
    return [int(place) for place in search.predict(pen=PENALTY)[:-1]]


def newest(level: Sequence[float]) -> tuple[int, bool]:
    """How many of the last commits are unlike those before them in their level, and whether a test
    says so. Where it does not, they stand out, and are too few to tell; 0 where none do.

    Of k newest commits the error is ERROR / 2^(k-1), so that all k together have `ERROR`.
    """
    level = level[-RECENT:]
    found = []
    for count in range(SHORTEST, min(LATEST, len(level) - 1) + 1):
        p = min(
            above_test(
                [sign * value for value in level[-count:]],
                [sign * value for value in level[:-count]],
            )
            for sign in (1, -1)
        )
        if p <= ERROR / 2 ** (count - 1):
            found.append((p, count))
    if found:
        return min(found)[1], True
    logs = np.log([max(min(value, 1e300), 1.0) for value in level])
    for count in range(min(LATEST, len(level) - SHORTEST), 0, -1):
        middle = np.median(logs[:-count])
        spread = 1.4826 * float(np.median(np.abs(logs[:-count] - middle)))
        away = (logs[-count:] - middle) / max(spread, FLOOR_MOVED)
        if (away > OUTSIDE).all() or (away < -OUTSIDE).all():
            return count, False
    return 0, False


def histories(runs: Sequence[Measured], percentile: float | None = None) -> list[Series]:
    """The series of these runs, which are in the order of their commits, with their changes.

    `percentile` (0 to 1; 1 is the maximum) is what all are about, or else for each the highest that
    all its runs support. Raises `InputError` for a percentile that is not kept.
    """
    if percentile is not None and not any(percentile in run.percentiles for run in runs):
        kept = sorted({p for run in runs for p in run.percentiles})
        told = ", ".join(percentile_text(p) for p in kept) or "nothing"
        raise InputError(f"{percentile_text(percentile)} is not kept in a history: {told} is")
    found = []
    series = grouped(runs, lambda run: run.series).values()
    traffic = [json.loads(members[0].traffic) for members in series]
    for members, more in zip(series, differing(traffic), strict=True):
        p = percentile or _supported(members)
        if p is None:
            continue
        floor = [run for run in runs if run.wire and run.place == members[0].place]
        load = ", ".join([members[0].load, *more])
        found.append(_series(members, load, p, () if members[0].wire else floor))
    return found


def _supported(members: Sequence[Measured]) -> float | None:
    every = [{p for p, row in run.percentiles.items() if row[3]} for run in members]
    told = [one for one in every if one]  # who lost or failed for nearly all has none
    return max(set.intersection(*told), default=None) if told else None


def _series(
    members: Sequence[Measured], load: str, p: float, floor: Collection[Measured]
) -> Series:
    first, commits = members[0], grouped(members, lambda run: run.commit)
    points = [_point(commit, runs, p) for commit, runs in commits.items()]
    values = [math.inf if point.value is None else float(point.value) for point in points]
    places = changes(values)
    late, decided = newest(values[(places or [0])[-1] :])
    if decided:
        places.append(len(points) - late)
    runs = list(commits.values())
    marks = [
        _mark(place, points, (values[before:place], values[place:after]), runs, p, list(floor))
        for before, place, after in zip(
            [0, *places], places, [*places[1:], len(points)], strict=False
        )
    ]
    return Series(
        experiment=first.experiment,
        configuration=first.configuration,
        load=load,
        wire=first.wire,
        percentile=p,
        percentile_text=percentile_text(p),
        points=points,
        marks=marks,
        newest=decided,
        undecided=_undecided(values, 0 if decided else late),
    )


def _undecided(values: Sequence[float], late: int) -> str:
    """Why nothing can be said of the newest commits; empty where something can."""
    if len(values) < FEWEST:
        return (
            f"{format_count(len(values), 'commit')}, and {FEWEST} are the fewest that tell a change"
        )
    if not late:
        return ""
    ratio = _ratio(values[:-late], values[-late:])
    by = "" if ratio is None else f" (x{ratio:.2f})"
    who = "the newest commit stands" if late == 1 else f"the {late} newest commits stand"
    return f"{who} out{by}, and too few commits tell whether it is another level"


def _value(run: Measured, p: float) -> float:
    row = run.percentiles.get(p)
    return math.inf if row is None else float(row[0])


def _point(commit: str, runs: Sequence[Measured], p: float) -> Point:
    values = [_value(run, p) for run in runs]
    ends = (min(values), max(values))
    if len(runs) == 1 and (row := runs[0].percentiles.get(p)) and None not in row[1:3]:
        ends = float(row[1] or 0), float(row[2] or 0)
    low, high = (int(end) if math.isfinite(end) else None for end in ends)
    middle = median_high(values)
    value = int(middle) if math.isfinite(middle) else None
    return Point(commit=commit, date=runs[0].date, runs=len(runs), value=value, low=low, high=high)


def _mark(
    place: int,
    points: Sequence[Point],
    parts: tuple[Sequence[float], Sequence[float]],
    runs: Sequence[Sequence[Measured]],
    p: float,
    floor: Sequence[Measured],
) -> Mark:
    machine = list(_changed(runs[place - 1][-1].machine, runs[place][0].machine))
    sides = [
        [point.commit for point in points[max(place - AROUND, 0) : place]],
        [point.commit for point in points[place : place + AROUND]],
    ]
    before, after = ([_value(run, p) for run in floor if run.commit in side] for side in sides)
    moved, ratio = _ratio(before, after), _ratio(*parts)
    noises = [one[0].noise for one in runs]
    quiet, loud = (
        [noise for noise in side if noise is not None]
        for side in (noises[max(place - AROUND, 0) : place], noises[place : place + AROUND])
    )
    noisier = _ratio(quiet, loud)
    origin: Origin = "program"
    explained = ratio and noisier and (ratio > 1) == (noisier > 1)
    if (
        runs[place][0].wire
        or _moved(before, after, moved)
        or (explained and _moved(quiet, loud, noisier))
    ):
        origin = "machine"
    elif machine:
        origin = "unclear"
    near = sorted(range(len(points)), key=lambda other: (abs(other - place), other < place))
    return Mark(
        place=place,
        before=points[place - 1].commit,
        suspects=[points[other].commit for other in near if abs(other - place) <= NEAR],
        ratio=ratio,
        origin=origin,
        floor=moved,
        noise=noisier,
        machine=machine,
    )


def _moved(before: Sequence[float], after: Sequence[float], ratio: float | None) -> bool:
    return bool(
        ratio
        and abs(math.log(ratio)) > math.log1p(FLOOR_MOVED)
        and rank_test(before, after) <= FLOOR_LEVEL
    )


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in old.keys() & new.keys():
        if old[name] != new[name]:
            yield f"{name}: {old[name]} → {new[name]}"


def _ratio(before: Sequence[float], after: Sequence[float]) -> float | None:
    if not before or not after:
        return None
    one, other = median_high(before), median_high(after)
    return other / one if 0 < one < math.inf and other < math.inf else None
