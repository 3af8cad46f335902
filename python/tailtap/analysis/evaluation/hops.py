"""A line hop by hop: neighbouring captures matched, and the worst packets looked up in all of them.

A hop is from one tap point to the next: a node, or the queue of one. What a packet took for its
hops adds up to its latency, as both are differences of the same stamps.

What packets met with around events: how long nothing came out, what was lost, how late it was.

An event's packets are those that go in from its begin on until its window behind its end is over,
or the next event begins: from where it may have begun at the earliest until where it may have ended
at the latest. All others are the run's other time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import structs

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.clocks import Clocks
from tailtap.analysis.evaluation.evaluate import Settings, evaluate_by
from tailtap.analysis.evaluation.values import (
    DEFAULT,
    NODE,
    Column,
    HopCaptures,
    RawPair,
    Worst,
    latency_record,
    pair,
    papers,
    percentiles_of,
    view,
)
from tailtap.base.errors import InputError
from tailtap.records.evaluation import Counts, HopRecord, Part, Percentile
from tailtap.records.record import Notice
from tailtap.records.run import Blocked, Event, Passed, Quantile
from tailtap.records.stamps import RECORD, read_stamps

if TYPE_CHECKING:
    import pyarrow as pa

    from tailtap.analysis.evaluation.model import Evaluation


UNKNOWN = -1
"""The time of a packet in a hop at whose end a stamp is missing."""


@dataclass(frozen=True)
class Hop:
    """What packets took from one tap point to the next; times in ns."""

    node: str
    """The node that they passed, or in whose queue they were."""
    part: Part
    """`NODE` or `QUEUE`."""
    counts: Counts
    """As `Evaluation.counts` has them, of the two captures of the hop."""
    mean: float
    distribution: RawPair
    """Distinct times, ascending, and how many packets had each."""
    warnings: list[Notice]

    @property
    def name(self) -> str:
        """As people read it: ``dut2``, or ``dut2 queue``."""
        return self.node if self.part == NODE else f"{self.node} {self.part}"

    @property
    def min(self) -> int:
        """The shortest time."""
        return view(self.distribution[0])[0]

    @property
    def max(self) -> int:
        """The longest time."""
        return view(self.distribution[0])[-1]

    def percentiles(self, ps: Sequence[float] = DEFAULT) -> list[Percentile]:
        """The percentiles `ps` (each 0 to 1), with their intervals, in the order given."""
        return percentiles_of(self.distribution, ps)


@dataclass(frozen=True)
class Hops:
    """The hops of one evaluation, in the order in which packets pass them."""

    rows: tuple[Hop, ...]
    worst: Column
    """What the worst packets took for each hop, in ns: a row for each packet of
    `Evaluation.worst_packets`, a column for each hop, `UNKNOWN` where nobody saw it."""

    @cached_property
    def slowest(self) -> Column:
        """For each hop, of how many of the worst packets it took the longest part.

        Packets of which a hop is unknown do not count.
        """
        known = self.worst[(self.worst != UNKNOWN).all(axis=1)]
        return np.bincount(known.argmax(axis=1), minlength=len(self.rows)).astype(np.int64)

    def of_packet(self, place: int) -> list[int | None]:
        """What one of the worst packets took for each hop; None where a stamp is missing."""
        return [None if ns == UNKNOWN else ns for ns in self.worst[place].tolist()]

    def record(self, ps: Sequence[float] = DEFAULT) -> list[HopRecord]:
        """`hops` of an evaluation."""
        return [
            HopRecord(
                hop=number,
                node=hop.node,
                part=hop.part,
                counts=hop.counts,
                latency_ns=latency_record(hop.min, hop.mean, hop.max, hop.percentiles(ps)),
                slowest_of_worst=int(slowest),
                warnings=hop.warnings,
            )
            for number, (hop, slowest) in enumerate(zip(self.rows, self.slowest, strict=True), 1)
        ]

    def to_arrow(self) -> dict[str, pa.Table]:
        """Their tables, by their names."""
        listed = sorted({*papers(), *DEFAULT})
        packets = np.arange(len(self.worst))
        return {
            "hops": tables.by_hop(tables.percentiles(hop.percentiles(listed)) for hop in self.rows),
            "hops-distribution": tables.by_hop(
                tables.table("distribution", *hop.distribution) for hop in self.rows
            ),
            "hops-worst": tables.by_hop(
                tables.table("hops-worst", None, packets, column) for column in self.worst.T
            ),
        }

    @classmethod
    def of_tables(cls, meta: Sequence[HopRecord], read: Callable[[str], pa.Table]) -> Hops:
        """What `record` and `to_arrow` were made of; `read` reads a table."""
        distribution = tables.split_by_hop(read("hops-distribution"), len(meta))
        worst = tables.split_by_hop(read("hops-worst"), len(meta))
        rows = (
            Hop(
                row.node,
                row.part,
                row.counts,
                row.latency_ns.mean,
                tables.pair(table, "latency_ns", "count"),
                row.warnings,
            )
            for row, table in zip(meta, distribution, strict=True)
        )
        found = tuple(rows)
        for hop in found:
            tables.require_distribution(pair(hop.distribution))
        return cls(found, np.column_stack([tables.columns(table)[-1] for table in worst]))


def evaluate_hops(
    evaluation: Evaluation, captures: Sequence[HopCaptures], settings: Settings
) -> Evaluation:
    """The evaluation of a line, with its hops. Raises `InputError` as `evaluate` does."""
    own = settings_of_hop(settings)
    return with_hops(
        evaluation, captures, [evaluate_by(own, hop.ingress, hop.egress) for hop in captures]
    )


def settings_of_hop(settings: Settings) -> Settings:
    """How the captures of a hop are evaluated: as the line, but no packet is kept."""
    return replace(settings, worst=0, losses=False)


def with_hops(
    evaluation: Evaluation, captures: Sequence[HopCaptures], found: Sequence[Evaluation]
) -> Evaluation:
    """The evaluation of a line with its hops, which were evaluated one by one.

    The worst packets are looked up here, in the captures between. Raises `InputError` when one of
    these is no stamp file.
    """
    rows = tuple(
        Hop(hop.node, hop.part, one.counts, one.mean, one.columns("distribution"), one.warnings)
        for hop, one in zip(captures, found, strict=True)
    )
    between = [hop.ingress for hop in captures[1:]]
    worst = _times(evaluation.worst_packets, between)
    return replace(evaluation, hops=Hops(rows, worst))


def _times(packets: Worst, between: Sequence[Path]) -> Column:
    """What packets took for each hop: rows are packets, columns are hops."""
    stamps = np.column_stack(list(_stamps(packets, between)))
    known = (stamps[:, 1:] != UNKNOWN) & (stamps[:, :-1] != UNKNOWN)
    return np.where(known, np.diff(stamps, axis=1), UNKNOWN)


def _stamps(packets: Worst, between: Sequence[Path]) -> Iterator[Column]:
    """The stamps of packets at each tap point, in the order in which they pass these.

    Ids may repeat in a long capture. A packet's own stamp is the first one of its id that lies
    between its stamps at both ends and not before the tap point that it passed last.
    """
    try:
        ids = np.array([int(key) for key in packets.key], np.int64)
    except ValueError:
        raise InputError("the hops of packets are looked up by ids: take --key moonsniff") from None
    passed = packets.ingress_ns
    yield passed
    for path in between:
        found = first_between(path, ids, passed, packets.egress_ns, UNKNOWN)
        passed = np.maximum(passed, found)
        yield found
    yield packets.egress_ns


_CHUNK = 1 << 20
"""Records that are looked at at once: 16 MiB, however long the file is."""
_LOW_BITS = 0xFFFF
Records = npt.NDArray[np.void]


def first_between(
    path: Path, ids: Column, after_ns: Column, until_ns: Column, missing: int
) -> Column:
    """When packets passed a tap: of each the first stamp with its id from `after_ns` to `until_ns`.

    Rows are packets, and `missing` stands for those without such a stamp. Raises `InputError` when
    `path` is no stamp file.
    """
    found_ids, times = _with_ids(path, ids)
    order = np.lexsort((times, found_ids))
    # One more that fits nobody, so that the place behind the last one can be looked at.
    found_ids, times = np.append(found_ids[order], -1), np.append(times[order], -1)
    at = np.searchsorted(found_ids[:-1], ids, "left")
    end = np.searchsorted(found_ids[:-1], ids, "right")
    while (early := (at < end) & (times[at] < after_ns)).any():
        at[early] += 1
    return np.where((at < end) & (times[at] <= until_ns), times[at], missing)


def ids_at(path: Path, times_ns: Column) -> tuple[Column, Column]:
    """Times and ids of all stamps of a tap that were taken at one of some times, by time.

    Raises `InputError` when `path` is no stamp file.
    """
    wanted = np.unique(times_ns).astype(np.uint64)

    def taken_then(chunk: Records) -> Records:
        times = np.ascontiguousarray(chunk["time_ns"])
        place = np.searchsorted(wanted, times)
        known = (place < wanted.size) & (wanted[np.minimum(place, wanted.size - 1)] == times)
        chosen: Records = chunk[known]
        return chosen

    every = _chosen(path, taken_then)
    order = np.argsort(every["time_ns"], kind="stable")
    return every["time_ns"].astype(np.int64)[order], every["id"].astype(np.int64)[order]


def _with_ids(path: Path, ids: Column) -> tuple[Column, Column]:
    wanted = np.unique(ids)
    # Most records end here, which costs little.
    candidates = np.zeros(_LOW_BITS + 1, bool)
    candidates[wanted & _LOW_BITS] = True

    def with_ids(chunk: Records) -> Records:
        near = chunk[candidates[chunk["id"] & _LOW_BITS]]
        chosen: Records = near[np.isin(near["id"], wanted)]
        return chosen

    every = _chosen(path, with_ids)
    return every["id"].astype(np.int64), every["time_ns"].astype(np.int64)


def _chosen(path: Path, choose: Callable[[Records], Records]) -> Records:
    """Records of a stamp file, chosen part by part."""
    records = read_stamps(path)
    parts = (records[start : start + _CHUNK] for start in range(0, len(records), _CHUNK))
    return np.concatenate([np.empty(0, RECORD), *map(choose, parts)])


PERCENTILES = (0.5, 0.99, 0.999)
Times = npt.NDArray[np.int64]


def around(
    events: Sequence[Event],
    ingress: Path,
    egress: Path,
    *,
    trim_ns: int,
    window_ns: int,
    clocks: Clocks | None = None,
) -> tuple[list[Event], Passed]:
    """The events with what was around them, and what passed in the run's other time.

    `ingress` and `egress` are stamp files. Packets that go in within `trim_ns` of the first one are
    of no time, and one is lost that is not out within `window_ns`. Where the stamps are of two
    `clocks`, those of `egress` are brought to the other one. Raises `InputError`.
    """
    first, last = read_stamps(ingress), read_stamps(egress)
    if clocks is not None:
        last = np.array(last)
        last["time_ns"] = clocks.ingress_ns(last["time_ns"].astype(np.int64))
    order = np.argsort(first["time_ns"], kind="stable")
    into: Times = first["time_ns"][order].astype(np.int64)
    out = np.sort(last["time_ns"].astype(np.int64))
    within_ns = 0 if clocks is None else clocks.within_ns
    latency = _latencies(into, first["id"][order], last, window_ns, within_ns)
    found, other = [], np.ones(len(into), bool)
    begin = int(into[0]) if len(into) else 0
    for event, end in zip(events, _ends(events), strict=True):
        began = _begin(event)
        part = slice(*np.searchsorted(into, [began, end]))
        other[part] = False
        told = structs.replace(
            event,
            after_ns=event.begin_ns - begin,
            blocked=_blocked(into, out, began, end),
            around=_passed(latency[part], max(end - began, 0)),
        )
        found.append(told)
    other[: int(np.searchsorted(into, begin + trim_ns))] = False
    whole = int(into[-1]) - begin if len(into) else 0
    covered = sum(one.around.time_ns for one in found if one.around is not None)
    return found, _passed(latency[other], max(whole - covered - trim_ns, 0))


def _ends(events: Sequence[Event]) -> Iterable[int]:
    begins = sorted(map(_begin, events))
    for event in events:
        own = event.begin_ns if event.end_ns is None else event.end_ns
        own += event.within_ns + event.window_ns
        yield min(own, next((begin for begin in begins if begin > _begin(event)), own))


def _begin(event: Event) -> int:
    return event.begin_ns - event.within_ns


def _latencies(
    into: Times,
    ids: npt.NDArray[np.uint32],
    last: npt.NDArray[np.void],
    window_ns: int,
    within_ns: int,
) -> Times:
    """The latency of each packet that went in; -1 of one that was lost."""
    # Of a packet with copies the first one counts.
    order = np.lexsort((last["time_ns"], last["id"]))
    known, times = last["id"][order], last["time_ns"][order].astype(np.int64)
    place = np.searchsorted(known, ids)
    there = place < len(known)
    there[there] = known[place[there]] == ids[there]
    latency = np.full(len(into), -1, np.int64)
    took = times[place[there]] - into[there]
    # What two clocks leave open may be more than a packet took.
    latency[there] = np.where(took >= -within_ns, np.maximum(took, 0), took)
    latency[latency > window_ns] = -1
    return latency


def _passed(latency: Times, time_ns: int) -> Passed:
    arrived = latency[latency >= 0]
    rows = []
    if arrived.size:
        values, counts = np.unique(arrived, return_counts=True)
        pair = values.astype(np.int64), counts.astype(np.int64)
        rows = [
            Quantile(p=row.p, value=row.value, above=row.above, supported=row.supported)
            for row in percentiles_of(pair, PERCENTILES)
        ]
    return Passed(
        time_ns=time_ns,
        packets=len(latency),
        lost=len(latency) - len(arrived),
        percentiles=rows,
        max_ns=int(arrived.max()) if arrived.size else None,
    )


def _blocked(into: Times, out: Times, begin: int, end: int) -> Blocked | None:
    """The longest time that touches an event's window in which nothing came out."""
    low = max(int(np.searchsorted(out, begin)) - 1, 0)
    high = min(int(np.searchsorted(out, end)) + 1, len(out))
    before, after = out[low : high - 1], out[low + 1 : high]
    entered = np.searchsorted(into, before, side="right")
    there = entered < len(into)
    before, after, entered = before[there], after[there], entered[there]
    waited = after - into[entered]
    best = None
    if waited.size and (longest := int(np.argmax(waited))) >= 0 and waited[longest] > 0:
        started, came = int(into[entered[longest]]), int(after[longest])
        best = Blocked(
            begin_ns=started,
            ns=came - started,
            least_ns=_least(into, int(entered[longest]), came),
            most_ns=came - int(before[longest]),
        )
    stopped = _stopped(into, out, end)
    if stopped is not None and (best is None or stopped.least_ns > (best.ns or 0)):
        return stopped
    return best


def _least(into: Times, entered: int, came: int) -> int:
    """How long packets found it blocked: from the first to the last but one before `came`.

    The last one may have passed at once, where those before it were lost.
    """
    behind = max(int(np.searchsorted(into, came)) - 2, entered)
    return int(into[behind] - into[entered])


def _stopped(into: Times, out: Times, end: int) -> Blocked | None:
    """Where nothing comes out any more from a moment before `end` on."""
    entered = int(np.searchsorted(into, out[-1], side="right")) if len(out) else 0
    if entered >= len(into) or into[entered] >= end:
        return None
    started = int(into[entered])
    return Blocked(begin_ns=started, ns=None, least_ns=int(into[-1]) - started, most_ns=None)
