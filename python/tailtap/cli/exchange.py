"""`tailtap import` and `export`: results of other tools as runs, and runs for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.units import format_count
from tailtap.cli.command import PATH, Answer, command, writes_into
from tailtap.cli.terminal import say, say_whole, unless, warn, warn_of

if TYPE_CHECKING:
    from tailtap.records.printed import ImportedTree, ImportRecord


@command(computes=True)
@click.argument(
    "tree",
    type=PATH,
    metavar="TREE",
    help="A folder with captures, published result files (.csv, .csv.zst), result trees of pos, "
    "RISE crates, or results of other tools, at any depth.",
)
@click.option(
    "--into",
    default=Path(),
    type=PATH,
    metavar="DIR",
    help="The experiment folder that gets the run folders. Made if missing.",
)
@click.option(
    "--unit",
    type=click.Choice(("ns", "us", "ms", "s")),
    help="The unit in files of HdrHistogram, which do not say it. By default ns in logs, "
    "us in texts, with a warning.",
)
def import_(
    tree: Path,
    into: Path,
    unit: str | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Import results of others as runs beside your own.

    Reads captures of both sides (`latencies-pre….pcap.zst` and `-post`), with samples of interrupts
    beside them; the published trees of CSV files; trees of pos (docs/howto/pos.md); and results of
    HdrHistogram, wrk, wrk2, fortio, ghz, vegeta, k6, hey, oha, iperf2, sockperf, netperf, TRex,
    cyclictest and rtla (docs/howto/other-tools.md).

    Each becomes a run folder with the status 'imported'. Rate, repeat and trim come from the files'
    names, in trees of pos variables and repeat from `.loop` files. What is missing, broken, far too
    large, or a link out of TREE becomes a warning. Importing again replaces what has changed.
    """
    from tailtap.results.importers.importer import import_tree
    from tailtap.results.importers.tools.reading import UNITS

    record = import_tree(tree, into, UNITS[unit] if unit else None)
    if not quiet:
        warn_of(record.warnings)
    return Answer(record, lambda: _print(record))


def _print(record: ImportRecord) -> None:
    for tree in record.experiments:
        say(described(tree))
    replaced = f", {record.replaced} replaced: their files have changed" * bool(record.replaced)
    runs = format_count(record.runs, "run")
    say(f"{record.database}: {runs}, {record.new} of them new{replaced}")


def described(tree: ImportedTree) -> str:
    """An experiment that was imported, in one line."""
    parts = [f"{format_count(tree.runs, 'run')} of {tree.loop_runs} .loop files"]
    for title, names in (("over", tree.variables), ("hosts", tree.hosts), ("by", tree.authors)):
        if names:
            parts.append(f"{title} {', '.join(names)}")
    if tree.licence:
        parts.append(f"licence {tree.licence}")
    return f"{tree.name} ({tree.kind}): {'; '.join(parts)}"


@command(computes=True)
@click.argument(
    "source",
    type=PATH,
    metavar="RUN|DIR",
    help="A run or experiment folder, what `tailtap evaluate --out` wrote, or imported results.",
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
    help="Also write every matched packet (parquet, csv, postgresql), or the whole trace "
    "(perfetto), from the captures.",
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

    Only --packets reads captures again. Existing files are replaced, and runs that the database
    already has. PostgreSQL needs `pip install 'psycopg[binary]'`, and perfetto `pip install
    perfetto`. docs/reference/files.md describes every format.
    """
    from tailtap.results.exporters import export as export_runs

    found = export_runs(source, to, out, packets=packets)
    for name in found.invalid:
        warn(f"warning: {name} is invalid: its generator did not send the requested load")
    unless(quiet)(f"exported {format_count(found.runs, 'run')} as {found.to}")
    return Answer(found, lambda: say_whole(*found.written))
