"""Results of others that say less than an evaluation: percentiles, a histogram, a few counts.

What they do not say stays empty; nothing is estimated. The tables have the names and columns of an
evaluation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.model import SIDES, Latencies
from tailtap.analysis.evaluation.values import (
    DEFAULT,
    Histogram,
    Losses,
    Pair,
    Worst,
    require_counts,
)
from tailtap.base.errors import InputError
from tailtap.records.evaluation import PartialEvaluation, Percentile
from tailtap.records.record import Extremes, mark

TABLES = (
    "percentiles", "distribution", "histogram", "worst", "losses", "exceedances", "blocks", "gaps",
    "rates",
)  # fmt: skip
"""Those of an evaluation."""


_NOTHING = np.empty(0, np.int64)


class Partial(Latencies):
    """What is known of the latencies of a run that others measured."""

    lost_packets = Losses(_NOTHING, _NOTHING, _NOTHING, _NOTHING, (), ())

    def __init__(self, record: PartialEvaluation, tables: Mapping[str, pa.Table]) -> None:
        """What `record` says, and `tables` as an evaluation has them.

        Raises `ValueError` for tables that are damaged.
        """
        self.record, self.tables = record, tables
        self.counted, self.mean, self.bucket_ns = (
            record.counts, record.latency_ns.mean, record.bucket_ns
        )  # fmt: skip
        kept = self.counted.get("ingress")
        self.offered = None if kept is None else kept - self.counted.get("trimmed_ingress", 0)
        self.lost_at_least = self.counted.get("lost")
        rows = tables["percentiles"].to_pylist() if "percentiles" in tables else []
        # How many packets are above is 0 where nobody says: then `packets` is None.
        self.curve = [Percentile(**{**row, "above": row["above"] or 0}) for row in rows]
        self.listed = [row for row in self.curve if row.p in DEFAULT]
        self.distribution = self._columns("distribution", "latency_ns", "count")
        self.gap_counts, self.rate_counts = self._by_side("gaps"), self._by_side("rates")
        for edges, _ in (
            self._columns("histogram", "bucket_ns", "count"),
            *self.gap_counts.values(),
        ):
            if np.any(edges[1:] < edges[:-1]):
                raise ValueError("the buckets of a histogram are not in order")
        worst, arrived = self._columns("worst", "latency_ns", "ingress_ns")
        self.worst_packets = Worst(worst, arrived, _NOTHING, ())
        starts = (self.rate_counts["ingress"][0][:1], arrived)
        self.origin_ns = next((int(start.min()) for start in starts if start.size), 0)
        self.max = record.latency_ns.max
        if self.curve and self.packets is not None and not self.curve[-1].above:
            self.max = self.curve[-1].value
        if worst.size:
            self.max = int(worst.max())

    @classmethod
    def of(
        cls,
        key: str,
        counts: Mapping[str, int | None],
        found: Mapping[str, pa.Table],
        latency: Extremes,
        bucket_ns: int | None = None,
    ) -> Partial:
        """Of counts, of which None are not known, and of tables."""
        known = {name: count for name, count in counts.items() if count is not None}
        sizes = {name: (table.num_rows, table.nbytes) for name, table in found.items()}
        shown = found["percentiles"].to_pydict() if "percentiles" in found else None
        record = PartialEvaluation(
            key=key,
            counts=known,
            latency_ns=latency,
            bucket_ns=bucket_ns,
            lacks=[name for name in TABLES if name not in found],
            made=mark(key, known, latency, sizes, shown),
        )
        return cls(record, found)

    @property
    def has(self) -> str:
        """What is known, in words."""
        names = list(self.tables) or ["counts"]
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))

    def histogram(self) -> Histogram:
        return Histogram.of(self._columns("histogram", "bucket_ns", "count"), self.bucket_ns)

    def to_arrow(self) -> Mapping[str, pa.Table]:
        return self.tables

    def _columns(self, name: str, left: str, right: str) -> Pair:
        if name not in self.tables:
            return _NOTHING, _NOTHING
        return tables.pair(self.tables[name], left, right)

    def _by_side(self, name: str) -> dict[str, Pair]:
        if name not in self.tables:
            return dict.fromkeys(SIDES, (_NOTHING, _NOTHING))
        return tables.of_sides(self.tables[name], SIDES)

    def write(self, folder: Path, *, below: Path | None = None) -> None:
        """Write `evaluation.json` and the tables, as `Evaluation.write` does."""
        tables.write(folder, self.tables, {"evaluation": self.record}, below=below)

    @classmethod
    def load(cls, folder: Path, record: PartialEvaluation) -> Partial:
        """The tables beside a record. Raises `InputError` when they are damaged."""
        names = [name for name in TABLES if name not in record.lacks]
        try:
            found = {name: tables.read(folder, name, record.made) for name in names}
            for name, count in record.counts.items():
                require_counts([count], name)
            return cls(record, found)
        except (OSError, ValueError, LookupError, OverflowError, pa.ArrowException) as error:
            raise InputError(f"not all of what was imported ({error}); import it again").at(
                folder
            ) from error
