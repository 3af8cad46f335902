"""All tables of all runs as one Parquet or CSV file each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tailtap.check import Check
from tailtap.results.run import Run
from tailtap.store.exporters.base import whole
from tailtap.store.exporters.rows import rows, schema, tables


class _Tables(ABC):
    """One file a table, one run after the other, so that memory holds one run's table at most."""

    address = False
    holds_packets = True
    suffix: str

    def diagnose(self) -> Iterator[Check]:
        """It is a part of tailtap."""
        yield Check("exporters", self.suffix, "ok", "needs nothing of its own")

    @abstractmethod
    def writer(self, path: Path, columns: pa.Schema) -> Any:
        """An Arrow writer of tables with these columns into the file `path`."""

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write a file for each table into the folder `destination`."""
        written = []
        for table in tables(packets):
            path = Path(destination) / f"{table}.{self.suffix}"
            with whole(path) as draft, self.writer(draft, schema(table)) as file:
                for run in runs:
                    file.write_table(rows(run, table))
            written.append(str(path))
        return written


class Parquet(_Tables):
    """Parquet files."""

    summary = "Parquet files: one for each table, compressed with zstd."
    documentation = "docs/files.md describes tables and columns."
    suffix = "parquet"

    def writer(self, path: Path, columns: pa.Schema) -> Any:
        """A writer of Parquet, compressed with zstd."""
        return pq.ParquetWriter(path, columns, compression="zstd")


class Csv(_Tables):
    """CSV files with a header; text is quoted where it must be, a missing value is empty."""

    summary = "CSV files with a header: one for each table."
    documentation = "Text is quoted where it must be, and a missing value is empty."
    suffix = "csv"

    def writer(self, path: Path, columns: pa.Schema) -> Any:
        """A writer of CSV."""
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        return pyarrow.csv.CSVWriter(path, columns, write_options=options)
