"""The small values that an evaluation is made of, and percentiles. All times are integer ns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Required, TypeAlias, TypedDict

import msgspec

from tailtap import _core
from tailtap.base.errors import InputError
from tailtap.base.units import percentile_in
from tailtap.records.evaluation import Bounds, Latency, Part, Percentile, Side

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MOST = 2**53
"""Of packets: sums of so many are exact, also as floats, and every loop over them ends soon."""

KEPT_LOSSES = 1 << 18
"""Of so many lost packets it is kept which they are: those that came first (`losses.rs`)."""

HEAVY_LOSS = 0.001
"""With more loss than this not even the 99.9th percentile exists: of so many packets nobody knows
how late they would have been.
"""

Column: TypeAlias = "NDArray[np.int64]"
Pair: TypeAlias = tuple["Column", "Column"]
#: A column as it came: an array from a file, or the bytes of its integers from `tailtap._core`.
#: Bytes become an array when one is asked for: numpy takes longer to load than a small evaluation.
Raw: TypeAlias = "Column | bytes"
RawPair: TypeAlias = tuple["Raw", "Raw"]


def view(raw: Raw) -> memoryview[int]:
    """The integers of a column, without numpy."""
    return memoryview(raw).cast("q") if isinstance(raw, bytes) else raw.data


def column(raw: Raw) -> Column:
    """A column as an array."""
    import numpy as np

    return np.frombuffer(raw, np.int64) if isinstance(raw, bytes) else raw


def require_counts(counts: Column | Sequence[int], what: str = "count") -> None:
    """Raise `ValueError` when one is below 0, or all of them together are above `MOST`."""
    import numpy as np

    numbers = np.asarray(counts)
    wrong = (numbers < 0) | (np.cumsum(numbers.astype(float)) > MOST)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        reason = "below 0" if numbers[row] < 0 else "with those before it more than 2^53"
        raise ValueError(f"{what} of row {row + 1} is {numbers[row]}, {reason}")


def pair(raw: RawPair) -> Pair:
    """Two columns as arrays."""
    return column(raw[0]), column(raw[1])


def summed(values: Column, counts: Column) -> Pair:
    """Distinct values, ascending, and the sum of the counts of each."""
    import numpy as np

    distinct, place = np.unique(values, return_inverse=True)
    sums = np.zeros(distinct.size, np.int64)
    np.add.at(sums, place, counts)
    return distinct, sums


@dataclass(frozen=True)
class Histogram:
    """Counts of buckets of one `width`, by lower edge, empty buckets left out; in nanoseconds.

    `edges` ascend and are multiples of `width`; `counts` are as many.
    """

    edges: Column
    counts: Column
    width: int

    @classmethod
    def of(cls, pair: Pair, width: int | None) -> Histogram:
        """Buckets of `width` or, where nobody says it, of the widest that fits the edges."""
        import numpy as np

        edges, counts = pair
        return cls(edges, counts, width or int(np.gcd.reduce(edges)) or 1)


class WorstPacket(NamedTuple):
    """One of the worst packets; times in nanoseconds, the key as text."""

    latency: int
    ingress_ns: int
    egress_ns: int
    key: str


class Exceedances(NamedTuple):
    """Every packet with a latency above `floor_ns`, in the order in which they left.

    `position` counts the matched packets that left before; times in nanoseconds.
    """

    floor_ns: int
    position: Column
    ingress_ns: Column
    latency_ns: Column


class Blocks(NamedTuple):
    """The matched packets by the time at which they left, in stretches of `width_ns`.

    A stretch begins at `start_ns`, a multiple of the width; it has the number of its `packets`, and
    sum and maximum of their latencies. Stretches without packets are left out.
    """

    width_ns: int
    start_ns: Column
    packets: Column
    sum_ns: Column
    max_ns: Column


NODE: Final = "node"
QUEUE: Final = "queue"
"""The parts of a line: a node, or the queue in which packets wait until a node receives them."""


class HopCaptures(NamedTuple):
    """The captures before and behind one part of a line."""

    node: str
    ingress: Path
    egress: Path
    part: Part = NODE
    """`NODE`, or `QUEUE`: that of the node."""


@dataclass(frozen=True)
class Worst:
    """The worst packets as columns, worst first."""

    latency_ns: Column
    ingress_ns: Column
    egress_ns: Column
    key: Sequence[str]


@dataclass(frozen=True)
class Losses:
    """The packets that were lost as columns, in the order of the capture before the device.

    `ingress_ns` is the stamp before the device; `position` counts the packets with a key that came
    before; `length` is in bytes, without frame check sequence, -1 where the capture does not say
    it; `burst` counts the packets in a row that were lost, this one among them. `flow` is empty
    where the capture holds no frames.
    """

    ingress_ns: Column
    position: Column
    length: Column
    burst: Column
    flow: Sequence[str]
    key: Sequence[str]

    @property
    def bursts(self) -> Pair:
        """Stamps of the first packets of all bursts, and how many packets these have."""
        import numpy as np

        first = np.flatnonzero(np.diff(self.position, prepend=-2) != 1)
        return self.ingress_ns[first], self.burst[first]


Columns: TypeAlias = Callable[[str], Any]
"""The columns of an evaluation by the names of their tables, as they came, or read when they are
asked for; before those of `exceedances` their floor, before those of `blocks` the width."""


NO_LOSSES = (b"", b"", b"", b"", (), ())


class Matching(TypedDict, total=False):
    """How captures are matched; `nanoseconds` says it of ingress and of egress."""

    key: Required[str | None]
    key_after: str | None
    trim_ns: int
    window_ns: int
    worst: int
    format: str | None
    clocks: tuple[Sequence[tuple[int, int]], int] | None
    nanoseconds: tuple[bool, bool]
    stamps: str | None
    throughout: bool
    losses: bool
    flows: bool


@dataclass(frozen=True)
class Unread:
    """Packets of one side that passed and are in no statistic, as they were not read."""

    #: The most of which something is known.
    packets: int = 0
    #: Whether there may be more without a bound: the capture is cut off, or had not ended.
    without_end: bool = False

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return self.packets > 0 or self.without_end

    @classmethod
    def of(cls, side: Side) -> Unread:
        """Those of a capture.

        Packets without the key are of others, and no such packets.
        """
        counts = dict(side.unread)
        without_end = bool(counts.pop("without-end", False))
        counts.pop("foreign", None)
        return cls(sum(counts.values()), without_end)


NOTHING_UNREAD = Unread()


BY_ID = "packet-id"
"""The key of packets whose payloads differ behind the device: it may have merged them."""


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
    bounds = Bounds(
        min=[smallest - within_ns, smallest + within_ns],
        mean=[mean - within_ns, mean + within_ns],
        max=[largest - within_ns, largest + within_ns],
    )
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
