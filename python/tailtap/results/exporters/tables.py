"""All tables of all runs as one Parquet or CSV file each, each row with its run's number and slug.

Every matched packet of a run is a table, too: from its captures, as an evaluation keeps only the
worst.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from tailtap.analysis.evaluation import tables as files
from tailtap.analysis.evaluation.evaluate import evaluate_by, of_evaluation
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.evaluation import Side
from tailtap.results.exporters.base import Common, whole
from tailtap.results.tables import HOPS, PARQUET, TABLES, Columns, in_arrow
from tailtap.results.tables import rows as rows_of

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


COLUMNS: Mapping[str, Columns] = {
    **{name: TABLES[name] for name in ("runs", "evaluations", *PARQUET, "warnings", *HOPS)},
    "runs": {
        name: TABLES["runs"][name] for name in TABLES["runs"] if name not in ("slug", "error")
    },
    "packets": TABLES["worst"],
}
"""The columns of each table behind `run` and `slug`. Objects are JSON; times are nanoseconds."""


def tables(packets: bool) -> tuple[str, ...]:
    """The names of all tables; with that of every packet only if `packets`."""
    return tuple(name for name in COLUMNS if packets or name != "packets")


def schema(table: str) -> pa.Schema:
    """All columns of `table`, `run` and `slug` first."""
    return in_arrow({"run": "int32", "slug": "string", **COLUMNS[table]})


def rows(run: Run, table: str) -> pa.Table:
    """The rows of one run in `table`. Raises `InputError` when its evaluation is damaged."""
    columns = list(COLUMNS[table])
    if run.evaluation is None:
        raise InputError(run.failure)
    try:
        found = all_packets(run) if table == "packets" else rows_of(run, table)
        found = found.select(columns)
    except (LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"its {table} are not whole ({str(error).splitlines()[0]}); "
            "run tailtap evaluate --out again"
        ).at(run.folder) from error
    identity = [pa.repeat(run.number, len(found)), pa.repeat(run.slug, len(found))]
    whole = pa.table([*identity, *found.columns], names=["run", "slug", *columns])
    return whole.cast(schema(table))


def all_packets(run: Run) -> pa.Table:
    """Latency, stamps (ns) and key of every matched packet, in the order of the ingress stamps.

    The captures are matched again with the options of the stored evaluation. Raises `InputError`
    when a capture is gone, is not the one that was evaluated, or not all of a file. Needs about
    200 bytes of memory a packet.
    """
    stored = run.stored
    settings = of_evaluation(stored, worst=stored.counts.matched)
    found = evaluate_by(settings, *(_capture(run, side) for side in stored.inputs.both))
    if (found.counts, found.min, found.max) != (stored.counts, stored.min, stored.max):
        raise (
            InputError(
                "the captures are not those that were evaluated; run tailtap evaluate --out again"
            )
            .at("--packets")
            .at(run.folder)
        )
    return files.table("worst", *found.columns("worst")).sort_by("ingress_ns")


def _capture(run: Run, side: Side) -> Path:
    """The capture of one side: beside the evaluation, as in a run folder, or where it was read."""
    path = Path(side.path)
    if not side.whole:
        raise (
            InputError(
                "this side is several files, or a part of one: only "
                "captures of one side each can be read again"
            )
            .at("--packets")
            .at(path)
        )
    beside = [run.folder.parent / path.name] if run.folder else []
    for place in (*beside, path) if run.record else (path, *beside):
        if place.is_file():
            return place
    raise (InputError(f"this capture of {run.slug} is no longer there").at("--packets").at(path))
