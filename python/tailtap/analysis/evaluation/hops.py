"""A line hop by hop: neighbouring captures matched, and the worst packets looked up in all of them.

A hop is from one tap point to the next: a node, or the queue of one. What a packet took for its
hops adds up to its latency, as both are differences of the same stamps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.evaluate import evaluate_by
from tailtap.analysis.evaluation.percentiles import DEFAULT, latency_record, papers, percentiles_of
from tailtap.analysis.evaluation.settings import Settings
from tailtap.analysis.evaluation.values import (
    NODE,
    Column,
    HopCaptures,
    RawPair,
    Worst,
    pair,
    view,
)
from tailtap.base.errors import InputError
from tailtap.records.evaluation import Counts, HopRecord, Part, Percentile
from tailtap.records.record import Notice
from tailtap.records.stamps import RECORD, read_stamps

if TYPE_CHECKING:
    import pyarrow as pa

    from tailtap.analysis.evaluation.model import Evaluation

UNKNOWN = -1
"""The time of a packet in a hop at whose end a stamp is missing."""
TABLES = ("hops", "hops-distribution", "hops-worst")


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
        """As people read it."""
        return part_name(self.node, self.part)

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
        """The tables of `TABLES`, by their names."""
        listed = sorted({*papers(), *DEFAULT})
        packets = np.arange(len(self.worst))
        return {
            "hops": tables.by_hop(tables.percentiles(hop.percentiles(listed)) for hop in self.rows),
            "hops-distribution": tables.by_hop(
                tables.counts("latency_ns", pair(hop.distribution)) for hop in self.rows
            ),
            "hops-worst": tables.by_hop(
                tables.optional_times(packets, column, column != UNKNOWN) for column in self.worst.T
            ),
        }

    @classmethod
    def of_tables(cls, meta: Sequence[HopRecord], read: dict[str, pa.Table]) -> Hops:
        """What `record` and `to_arrow` were made of."""
        distribution = tables.split_by_hop(read["hops-distribution"], len(meta))
        worst = tables.split_by_hop(read["hops-worst"], len(meta))
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
        times = [tables.known_times(table, UNKNOWN) for table in worst]
        return cls(found, np.column_stack(times))


def part_name(node: str, part: str) -> str:
    """What a hop is called: ``dut2``, or ``dut2 queue``."""
    return node if part == NODE else f"{node} {part}"


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
        Hop(hop.node, hop.part, one.counts, one.mean, one.columns.distribution, one.warnings)
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
    kept: list[npt.NDArray[np.void]] = []
    records = read_stamps(path)
    for start in range(0, len(records), _CHUNK):
        chunk = records[start : start + _CHUNK]
        times = np.ascontiguousarray(chunk["time_ns"])
        place = np.searchsorted(wanted, times)
        kept.append(
            chunk[(place < wanted.size) & (wanted[np.minimum(place, wanted.size - 1)] == times)]
        )
    every = np.concatenate(kept) if kept else np.empty(0, RECORD)
    order = np.argsort(every["time_ns"], kind="stable")
    return every["time_ns"].astype(np.int64)[order], every["id"].astype(np.int64)[order]


def _with_ids(path: Path, ids: Column) -> tuple[Column, Column]:
    """Ids and times of all records with one of these ids."""
    wanted = np.unique(ids)
    # Most records end here, which costs little.
    candidates = np.zeros(_LOW_BITS + 1, bool)
    candidates[wanted & _LOW_BITS] = True
    kept: list[npt.NDArray[np.void]] = []
    records = read_stamps(path)
    for start in range(0, len(records), _CHUNK):
        chunk = records[start : start + _CHUNK]
        near = chunk[candidates[chunk["id"] & _LOW_BITS]]
        kept.append(near[np.isin(near["id"], wanted)])
    every = np.concatenate(kept) if kept else np.empty(0, RECORD)
    return every["id"].astype(np.int64), every["time_ns"].astype(np.int64)
