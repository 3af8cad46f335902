"""Results of others that say less than an evaluation: percentiles, a histogram, a few counts.

What they do not say stays empty; nothing is estimated. The tables have the names and columns of an
evaluation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tailtap.analysis.evaluation import tables
from tailtap.analysis.evaluation.values import require_counts
from tailtap.base.errors import InputError
from tailtap.records.evaluation import PartialEvaluation, PartialLatency
from tailtap.records.record import mark

TABLES = (
    "percentiles", "distribution", "histogram", "worst", "losses", "exceedances", "blocks", "gaps",
    "rates",
)  # fmt: skip
"""Those of an evaluation."""


@dataclass(frozen=True)
class Partial:
    """What is known of the latencies of a run that others measured."""

    record: PartialEvaluation
    tables: Mapping[str, pa.Table]

    @classmethod
    def of(
        cls,
        key: str,
        counts: Mapping[str, int | None],
        found: Mapping[str, pa.Table],
        latency: PartialLatency,
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
        except (OSError, ValueError, LookupError, pa.ArrowException) as error:
            raise InputError(f"not all of what was imported ({error}); import it again").at(
                folder
            ) from error
        return cls(record, found)
