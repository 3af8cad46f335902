"""`tailtap export`: write results in the formats of other programs."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.base.units import format_count
from tailtap.cli.command import PATH, Answer, command
from tailtap.cli.options import writes_into
from tailtap.cli.terminal import say_whole, unless, warn


@command(computes=True)
@click.argument(
    "source",
    type=PATH,
    metavar="RUN|DIR",
    help="A run folder, what `tailtap evaluate --out` wrote, or an experiment folder: then "
    "all its finished runs; or a folder or database with imported results.",
)
@click.option(
    "--to",
    required=True,
    help="parquet or csv: one file for each table. hgrm: HdrHistogram's percentile text, "
    "in microseconds. papers: the nine CSV files of the published results. "
    "pos: a result tree of the testbed service pos, with these files. "
    "perfetto: what each core did around the worst packets, for ui.perfetto.dev, of runs with a "
    "trace. postgresql://USER@HOST/DATABASE: tables and views of a database.",
)
@writes_into("The folder for the files; by default RUN|DIR/export/FORMAT.")
@click.option(
    "--packets",
    is_flag=True,
    help="Also write every matched packet (parquet, csv, postgresql; perfetto, and then the whole "
    "trace). The captures must still be where they were evaluated, or in the run folder.",
)
def export(
    source: Path,
    to: str,
    out: Path | None,
    packets: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Write results in the formats of other programs.

    The stored evaluations are the source; only --packets reads captures again. Existing files of
    the same names are replaced, and so is a run that the database already has. PostgreSQL needs
    `pip install 'psycopg[binary]'`, and perfetto `pip install perfetto`. docs/reference/files.md
    describes every format.
    """
    from tailtap.records.printed import ExportRecord
    from tailtap.results.exporters import export as export_runs

    found = export_runs(source, to, out, packets=packets)
    for name in found.invalid:
        warn(f"warning: {name} is invalid: its generator did not send what was asked of it")
    unless(quiet)(f"exported {format_count(found.runs, 'run')} as {found.kind}")
    record = ExportRecord(to=found.kind, runs=found.runs, written=found.written)
    return Answer(record, lambda: say_whole(*found.written))
