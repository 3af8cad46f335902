"""Percentiles of a distribution: which ones are listed, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TypeVar

import msgspec

from tailtap import _core
from tailtap.analysis.evaluation.values import RawPair, view
from tailtap.base.errors import InputError
from tailtap.base.units import percentile_in
from tailtap.records.evaluation import Bounds, Latency, Percentile

T = TypeVar("T", int, float)

DEFAULT: tuple[float, ...] = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
BAND_STEPS = 24
"""Percentiles in each decade of 1/(1-p) whose confidence limits make the band."""


def papers() -> tuple[float, ...]:
    """The 275 percentiles of the published result files, ascending.

    Thirty steps through each of nine decades of x = 1 / (1 - p), and five round percentiles. The
    steps are summed up in floating point and p is computed as (x - 1) / x: this gives the very
    numbers of the published files, where 75 % occurs twice, once as 0.7499999999999999.
    """
    found = {0.05, 0.25, 0.5, 0.75, 0.95}
    for decade in range(9):
        x = 10.0**decade
        step = 0.3 * x
        for _ in range(30):
            found.add((x - 1) / x)
            x += step
    return tuple(sorted(found))


def band(packets: int) -> list[float]:
    """Percentiles for a smooth confidence band, evenly spaced over log 1/(1-p)."""
    import numpy as np

    decades = np.log10(max(packets, 2))
    return [float(p) for p in 1 - np.logspace(0, -decades, int(decades * BAND_STEPS) + 1)[1:-1]]


def percentiles_of(
    distribution: RawPair, ps: Sequence[float], within_ns: int = 0
) -> list[Percentile]:
    """The percentiles `ps` of distinct values, ascending, and how often each occurred.

    Their intervals include that each value may be off by `within_ns` to either side. Raises
    `InputError` for one that is not between 0 and 1.
    """
    if not all(0 <= p <= 1 for p in ps):
        raise InputError("a percentile lies between 0 and 1")
    values, counts = distribution
    rows = [Percentile(*row) for row in _core.percentiles(view(values), view(counts), ps)]
    return [_widened(row, within_ns) for row in rows] if within_ns else rows


def _widened(row: Percentile, within_ns: int) -> Percentile:
    low = None if row.low is None else row.low - within_ns
    high = None if row.high is None else row.high + within_ns
    return msgspec.structs.replace(row, low=low, high=high)


def latency_record(
    smallest: int,
    mean: float,
    largest: int,
    percentiles: list[Percentile],
    within_ns: int = 0,
) -> Latency:
    """`latency_ns` of an evaluation; with bounds where latencies are off by `within_ns`."""

    def around(value: T) -> list[T]:
        return [value - within_ns, value + within_ns]

    bounds = Bounds(min=around(smallest), mean=around(mean), max=around(largest))
    return Latency(
        min=smallest,
        mean=mean,
        max=largest,
        percentiles=percentiles,
        bounds=bounds if within_ns else None,
    )


def label(p: float) -> str:
    """A percentile (0 to 1) as people write it: ``p50``, ``p99.999``."""
    text = format((Decimal(repr(p)) * 100).normalize(), "f")
    return f"p{text}"


def parse_list(text: str) -> tuple[float, ...]:
    """Percentiles of an option: ``default``, ``papers`` or percentages such as ``50,99.9``.

    Raises `InputError` when a percentage is none or not between 0 and 100.
    """
    if text == "default":
        return DEFAULT
    if text == "papers":
        return papers()
    found = set()
    for part in text.split(","):
        share = percentile_in(part)
        if share is None:
            raise InputError(
                f"'{part.strip()}' is not a percentile: give --percentiles default, "
                "papers or percentages such as 50,99.9,99.999"
            )
        found.add(share)
    return tuple(sorted(found))
