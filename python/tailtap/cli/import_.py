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
            metavar="FILE", help="The database, made if missing; an experiment's own will do."
        ),
    ] = Path("results.duckdb"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put published results into the same tables as runs of one's own.

    Reads the nine CSV files a run of the published trees (those that `tailtap export --to papers`
    writes). Their runs have status 'imported'; rate, repeat and trim come from the files' names.
    Missing or broken files, and runs that left more than 0.1 % of the packets after the device
    unmatched, become warnings: stored with the run and told here. A second import of the same
    tree changes nothing. `tailtap run --resume` makes the experiment's database anew from its
    run folders: import again after it.
    """
    import json as json_module
    import sys

    from tailtap.store.importer import import_tree

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
