"""`tailtap export`: results in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailtap.cli.options import Json, Quiet


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|DIR",
            help="A run folder, what `tailtap evaluate --out` wrote, or an experiment folder: then "
            "all its finished runs.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            help="parquet or csv: one file for each table. hgrm: HdrHistogram's percentile text, "
            "in microseconds. papers: the nine CSV files of the published results. "
            "postgresql://USER@HOST/DATABASE: tables and views of a database.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where files go; RUN|DIR/export/FORMAT when not given."),
    ] = None,
    packets: Annotated[
        bool,
        typer.Option(
            "--packets",
            help="Also write every matched packet (parquet, csv, postgresql): the captures must "
            "still be where they were evaluated, or in the run folder.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write results in the formats of other programs.

    Everything comes from the stored evaluations; captures are read
    again only for --packets. Files of the same
    names are replaced; a run that a database already has is replaced there. PostgreSQL needs
    `pip install 'tailtap[postgres]'`; see docs/files.md for every format.
    """
    import json as json_module
    import sys

    from tailtap.store.exporters import export as export_runs

    found = export_runs(source, to, out, packets=packets)
    if json:
        summary = {
            "schema": "tailtap.export/1",
            "to": found.kind,
            "runs": found.runs,
            "written": found.written,
        }
        print(json_module.dumps(summary))
    else:
        for name in found.written:
            print(name)
    if not quiet:
        runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
        print(f"exported {runs} as {found.kind}", file=sys.stderr)
