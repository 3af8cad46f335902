"""`tailtap report`: a page and figures from an experiment folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailtap.cli.options import Json, Quiet


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder that `tailtap run --out`, `tailtap search --out`, "
            "`tailtap evaluate --out` or "
            "`tailtap import --into` wrote.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the report goes; DIR/report when not given."),
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SELECTION",
            help="Which runs, own and imported: words with commas between them, all of which must "
            "fit a run; all runs when not given. May be given again to add runs.",
        ),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures/--no-figures",
            help="Also write the figures for print, as PNG, SVG and PDF.",
        ),
    ] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of an experiment: one page, and the figures for print.

    The page (index.html) holds everything it shows and needs no network: the result of each
    configuration, an HDR diagram of all runs, loss against the packet rate where that varies, the
    worst latencies over time, inter-packet gaps and packet rates before and after the device,
    counts, warnings and the environment; of a search, what it found. The
    folder `figures` beside it has the same figures as PNG, SVG and PDF. Runs that failed are
    listed with their reason. Nothing is measured again: the report can be made as often as
    wanted, also of an experiment that was interrupted.

    Runs that `tailtap import --into DIR` put beside DIR's own are shown with them, marked as
    imported; what their files do not tell, such as confidence intervals, the page calls not
    published. Of many, tables show all and figures eight: those at the packet rates of one's own
    runs come first. Choose by --runs. A word is `own` or `imported`, a packet rate, a run's
    number, or a name: a value that was varied, the platform, or a folder of an imported run's
    path, with * and ? for any letters. Both container runs at one rate are
    `--runs 'container, 10 kpkt/s'`; all of one's own and one imported run are
    `--runs own --runs 1000007`.
    """
    import json as json_module
    import sys

    from tailtap.report import write_report

    def progress(step: str) -> None:
        if not quiet:
            print(f"report: {step}", file=sys.stderr)

    result = write_report(folder, out, figures=figures, runs=runs or (), progress=progress)
    if json:
        summary = {
            "schema": "tailtap.report/1",
            "page": str(result.page),
            "bytes": result.size,
            "figures": [str(path) for path in result.figures],
            "runs": result.runs,
            "failed": result.failed,
            "imported": result.imported,
        }
        print(json_module.dumps(summary))
    else:
        print(result.page)
