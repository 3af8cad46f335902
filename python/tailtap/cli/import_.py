"""`tailtap import`: published result files beside runs of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailtap.cli.options import Json, Quiet


def import_(
    tree: Annotated[
        Path,
        typer.Argument(
            metavar="TREE",
            help="A folder with published result files, at any depth: .csv or .csv.zst.",
        ),
    ],
    into: Annotated[
        Path,
        typer.Option(
            metavar="DIR|FILE",
            help="The folder of an experiment or an evaluation, to stand in its report: its "
            "results.duckdb; or a database FILE.duckdb. Made if missing.",
        ),
    ] = Path("results.duckdb"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put published results into the same tables as runs of one's own.

    Reads the nine CSV files a run of the published trees (those that `tailtap export --to papers`
    writes). Their runs have status 'imported'; rate, repeat and trim come from the files' names.
    Missing or broken files, and runs that left more than 0.1 % of the packets after the device
    unmatched, become warnings: stored with the run and told here. A run is known by the content
    of its files: importing a tree again, also from another place, changes nothing; files that
    changed where they lie replace what was imported from there. `tailtap report` shows imported
    runs beside the folder's own, and `tailtap run --resume` keeps them.
    """
    import json as json_module
    import sys

    from tailtap.store.importer import import_tree

    # A name with a suffix is a file's, whether it exists or not; an existing file is one anyhow.
    if into.is_dir() or not (into.suffix or into.is_file()):
        into = into / "results.duckdb"
    found = import_tree(tree, into)
    if json:
        summary = {
            "schema": "tailtap.import/1",
            "database": str(into),
            "runs": found.runs,
            "new": found.new,
            "warnings": [warning._asdict() for warning in found.warnings],
        }
        print(json_module.dumps(summary))
    else:
        print(f"{into}: {found.runs} runs, {found.new} of them new")
    if not quiet:
        for warning in found.warnings:
            print(f"warning: {warning.message} [{warning.code}]", file=sys.stderr)
