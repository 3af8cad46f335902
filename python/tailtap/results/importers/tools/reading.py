"""What a result file of another tool says, whichever tool it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

from tailtap.base.foreign import parse_json
from tailtap.records.record import Notice
from tailtap.results.importers.tools.hdr import Buckets, Integers

MOST_NS = 10**18
"""Thirty years: no latency is longer."""
OPEN = MOST_NS
"""The end of a bucket that nobody knows: percentiles that fall into it have no value."""
MOST_COUNT = 1 << 62
SECOND, MILLISECOND, MICROSECOND = 1_000_000_000, 1_000_000, 1_000
UNITS: Mapping[str, int] = {
    "ns": 1, "us": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "secs": SECOND, "sec": SECOND,
    "m": 60 * SECOND, "h": 3600 * SECOND,
}  # fmt: skip
WIDE = 0.02
"""Buckets that are wider than this share of their values are a doubt."""
ROUNDED = 0.1
"""By what share the coarsest histograms round the ends that a mean is between."""

CLOSED_LOOP = Notice(
    "closed-loop",
    "the tool waits for each answer before its next request: while one is late it sends no other, "
    "so percentiles are too low (coordinated omission)",
)
FAILURES_UNTOLD = Notice(
    "requests-failed", "it does not say which requests failed: a quick failure counts as an answer"
)
CUT_OFF = Notice(
    "read-in-part", "it ends within a line, which is left out: the program was stopped"
)
ONLY_PERCENTILES = Notice(
    "percentiles-only", "it holds a few percentiles and no distribution: nothing between them"
)


def unknown_unit() -> Notice:
    """Of a file that does not say its unit, where nobody else did."""
    return Notice(
        "unit-unknown",
        "it does not say its unit: give it by --unit; the values of a log count as ns, "
        "and those of a text of percentiles as us",
    )


@dataclass(frozen=True)
class Reading:
    """The latencies of one measurement in ns: in buckets, or as the percentiles that it prints."""

    buckets: Buckets = field(default_factory=lambda: bucketed(()))
    percentiles: Sequence[tuple[float, int]] = ()
    total: int | None = None
    """How many these latencies are of."""
    lost: int | None = None
    errors: int | None = None
    """Requests that failed, or were not answered: those that are `lost` are among them."""
    among: int = 0
    """How many of them may be among the latencies."""
    failures: str = ""
    """What they were."""
    requests: int | None = None
    """All that were sent; by default those with a latency, and those that have none."""
    reordered: int | None = None
    duplicates: int | None = None
    rate: int | None = None
    """What was asked for, in requests or packets a second."""
    minimum: int | None = None
    mean: float | None = None
    maximum: int | None = None
    name: str = ""
    """What tells it from others of the same file."""
    doubts: tuple[Notice, ...] = ()

    @property
    def sent(self) -> int | None:
        """How many packets or requests were sent; None where nobody says what became of all."""
        if self.requests is not None or self.total is None:
            return self.requests
        gone = self.lost if self.errors is None else self.errors - self.among
        return None if gone is None else self.total + gone


def whole_lines(text: str) -> tuple[list[str], tuple[Notice, ...]]:
    """The lines of a text but for a last one that was cut off, and what is said of that.

    An object of JSON is whole without the end of its line.
    """
    *lines, last = text.split("\n")
    if not last.strip():
        return lines, ()
    try:
        mapping(parse_json(last))
    except ValueError:
        return lines, (CUT_OFF,)
    return [*lines, last], ()


def mapping(value: object) -> Mapping[str, Any]:
    """An object of JSON. Raises `ValueError` for anything else."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{str(value)[:40]!r} stands where a mapping should")
    return value


def coded(codes: Mapping[str, object], good: Callable[[str], bool]) -> tuple[int, str]:
    """How many requests have a code that is not good, and which, in words."""
    bad = {code: number(count, "requests") for code, count in codes.items() if not good(code)}
    return sum(bad.values()), ", ".join(f"{code}: {count:,}" for code, count in bad.items())


def answered(code: str) -> bool:
    """Whether a status of HTTP is one of an answer that is no failure."""
    return code[:1] in ("1", "2", "3") and len(code) == 3


def per_request(
    found: Iterable[tuple[str, int]], step: int = 0, doubts: tuple[Notice, ...] = ()
) -> Reading:
    """The reading of requests, each a status of HTTP (0 without an answer) and a latency in ns.

    A latency may be off by half a `step`.
    """
    codes: Counter[str] = Counter()
    latencies = []
    for code, latency in found:
        codes[code] += 1
        if answered(code):
            latencies.append(latency)
    errors, told = coded(codes, answered)
    buckets = exact(latencies)
    low, high = np.maximum(buckets.low - step // 2, 0), buckets.high + step // 2
    return Reading(
        Buckets(low, high, buckets.count),
        total=len(latencies),
        lost=codes["0"],
        errors=errors,
        requests=codes.total(),
        failures=told,
        doubts=doubts,
    )


def nanoseconds(value: object, unit: int) -> int:
    """A number of a file in ns. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{str(value)[:40]!r} is no latency")
    found = float(value) * unit
    if not 0 <= found < MOST_NS:
        raise ValueError(f"{str(value)[:40]!r} is no latency")
    return round(found)


def share(percent: str) -> float:
    """A percentile as a number from 0 to 1, as near as one can be. Raises `ValueError`."""
    found = float(Decimal(percent).scaleb(-2))
    if not 0 <= found <= 1:
        raise ValueError(f"{percent} % is no percentile")
    return found


def number(value: object, what: str) -> int:
    """A count of a file. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{str(value)[:40]!r} is no number of {what}")
    found = float(value)
    if not 0 <= found < MOST_COUNT or found != int(found):
        raise ValueError(f"{str(value)[:40]!r} is no number of {what}")
    return int(found)


def bucketed(rows: Iterable[tuple[int, int, int]]) -> Buckets:
    """Buckets of their lower and upper ends, both included, and counts; in any order."""
    kept = sorted(row for row in rows if row[2])
    table = np.array(kept, np.int64).reshape(-1, 3)
    if np.any(table[:, 0] > table[:, 1]):
        raise ValueError("a bucket ends before it begins")
    return Buckets(table[:, 0], table[:, 1], table[:, 2])


def exact(values: Iterable[int]) -> Buckets:
    """Single latencies."""
    found, counts = np.unique(np.fromiter(values, np.int64), return_counts=True)
    return Buckets(found, found, counts.astype(np.int64))


def checked(found: Reading) -> Reading:
    """The same, with what its form makes doubtful.

    Raises `ValueError` where it says nothing, or what cannot be.
    """
    buckets = found.buckets
    _require_mean(found)
    said = (
        found.percentiles or found.lost or any(one.code == "negative-times" for one in found.doubts)
    )
    if not buckets.count.size and not said:
        raise ValueError("it holds no latencies")
    if not buckets.count.size:
        only = (ONLY_PERCENTILES,) if found.percentiles else ()
        empty = replace(found, total=found.total or 0) if not found.percentiles else found
        return replace(empty, doubts=(*found.doubts, *only, *_failed(empty)))
    if found.maximum is not None:  # it bounds the last buckets better than they do
        high = np.minimum(buckets.high, max(found.maximum, int(buckets.low[-1])))
        buckets = replace(buckets, high=high)
    total = int(buckets.count.sum())
    found = replace(found, buckets=buckets, total=total)
    doubts = (*found.doubts, *_failed(found), *_coarse(buckets, total))
    return replace(found, doubts=doubts)


def _require_mean(found: Reading) -> None:
    """Raise `ValueError` for a mean that is not between the least and the greatest latency."""
    least, most = found.minimum, found.maximum
    if found.buckets.count.size:
        least = int(found.buckets.low[0]) if least is None else least
        most = int(found.buckets.high[-1]) if most is None else most
    if found.mean is None:
        return
    low = (least or 0) * (1 - ROUNDED) - MICROSECOND
    high = (OPEN if most is None else most) * (1 + ROUNDED) + MICROSECOND
    if not low <= found.mean <= high:
        raise ValueError(
            f"its mean of {found.mean:,.0f} ns is not between its least and its greatest latency"
        )


def _failed(found: Reading) -> Iterator[Notice]:
    if not found.errors:
        return
    where = "their times are not among its latencies"
    if found.among:
        where = (
            f"its latencies hold up to {found.among:,} of their times, and a failure may be "
            "quicker than an answer"
        )
    whole = "" if found.sent is None else f" of {found.sent:,}"
    told = f" ({found.failures})" if found.failures else ""
    yield Notice("requests-failed", f"{found.errors:,}{whole} requests failed{told}: {where}")


def _coarse(buckets: Buckets, total: int) -> Iterator[Notice]:
    reached = np.searchsorted(np.cumsum(buckets.count), 0.99 * total)
    place = min(int(reached), buckets.count.size - 1)
    low, high = int(buckets.low[place]), int(buckets.high[place])
    if high - low > WIDE * max(high, 1):
        end = f"from {low:,} to {high:,} ns" if high < OPEN else f"{low:,} ns or more"
        yield Notice(
            "coarse-buckets",
            f"its latencies are known as buckets: p99 is {end}, and each "
            "percentile counts as the upper end of its bucket",
        )


def widths(buckets: Buckets) -> Integers:
    """How wide each bucket is."""
    return buckets.high - buckets.low + 1
