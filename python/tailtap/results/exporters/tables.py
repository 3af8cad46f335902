"""All tables of all runs as one Parquet or CSV file each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from tailtap.analysis.runs.run import Run
from tailtap.results.exporters.base import Common, whole
from tailtap.results.exporters.rows import rows, schema, tables

_FORMULA = r"\A[=+\-@\t\r]"
"""What spreadsheets take for the beginning of a formula."""


class _Tables(Common, ABC):
    """One file a table, one run after the other, so that memory holds the packets of one run."""

    holds_packets = True

    @abstractmethod
    def writer(self, file: BinaryIO, columns: pa.Schema) -> Any:
        """An Arrow writer of tables with these columns into a file."""

    def shown(self, table: pa.Table) -> pa.Table:
        """The table as this format has it."""
        return table

    def export(self, runs: Sequence[Run], destination: str, *, packets: bool = False) -> list[str]:
        """Write a file for each table into the folder `destination`."""
        written = []
        for table in tables(packets):
            folder, name = Path(destination), f"{table}.{self.name}"
            with whole(folder, name) as draft, self.writer(draft, schema(table)) as file:
                for run in runs:
                    file.write_table(self.shown(rows(run, table)))
            written.append(str(folder / name))
        return written


class Parquet(_Tables):
    """Parquet files."""

    summary = "Parquet files: one for each table, compressed with zstd."
    documentation = "docs/reference/files.md describes tables and columns."
    name = "parquet"

    def writer(self, file: BinaryIO, columns: pa.Schema) -> Any:
        """A writer of Parquet, compressed with zstd."""
        return pq.ParquetWriter(file, columns, compression="zstd")


class Csv(_Tables):
    """CSV files with a header; text is quoted where it must be, a missing value is empty.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """

    summary = "CSV files with a header: one for each table."
    documentation = (
        "Text is quoted where it must be, and a missing value is empty. A text that begins with "
        "`=`, `+`, `-` or `@` has an apostrophe before it: spreadsheets take it for a formula."
    )
    name = "csv"

    def writer(self, file: BinaryIO, columns: pa.Schema) -> Any:
        """A writer of CSV."""
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        return pyarrow.csv.CSVWriter(file, columns, write_options=options)

    def shown(self, table: pa.Table) -> pa.Table:
        """No text begins a formula; numbers stay."""
        for place, column in enumerate(table.schema):
            if pa.types.is_string(column.type):
                plain = pc.replace_substring_regex(table.column(place), _FORMULA, r"'\0")
                table = table.set_column(place, column, plain)
        return table
