"""`tailtap model`: predict the tail of a run on a longer horizon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tailtap.cli.command import SHARE, TIME, Answer, command
from tailtap.cli.options import runs_and_folders, writes_into
from tailtap.cli.terminal import say, steps, warn_of

if TYPE_CHECKING:
    from tailtap.records.tail import ModelRecord


@command(computes=True)
@runs_and_folders(
    "Run folders, what `tailtap evaluate --out` wrote, or experiment folders: then "
    "all their finished runs."
)
@click.option(
    "--method",
    default="tailtap",
    type=click.Choice(["tailtap", "papers"]),
    help="What is printed. tailtap: clusters over each threshold, with intervals and "
    "diagnostics. papers: the published method, every exceedance and no intervals. "
    "tail.json and --json always have both.",
)
@click.option(
    "--fit",
    default="20 %",
    type=SHARE,
    help="The share of each run that is fitted, from its start; the rest checks the "
    "prediction. 100 % fits everything and checks nothing.",
)
@click.option(
    "--threshold",
    multiple=True,
    metavar="P|TIME",
    help="A threshold: a percentile of the fitted part, such as 99.95, or a latency such "
    "as '30 us'. May be given several times; by default the papers' five (99.5, 99.9, "
    "99.95, 99.99, 99.999).",
)
@click.option(
    "--horizon",
    multiple=True,
    type=TIME,
    help="Give the level that one cluster exceeds in this time. May be given several "
    "times; 1 h and 24 h by default.",
)
@click.option(
    "--figures",
    is_flag=True,
    help="Also draw the diagnostic plots next to tail.json, as PNG, SVG and PDF.",
)
@writes_into(
    "Where tail.json and the plots go, in a folder for each run; by default the run's own folder."
)
def model(
    runs: tuple[Path, ...],
    method: Literal["tailtap", "papers"],
    fit: float,
    threshold: tuple[str, ...],
    horizon: tuple[int, ...],
    figures: bool,
    out: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Predict the tail on a longer horizon, and check the prediction.

    The first part of each run is fitted; the rest checks the prediction. Packets stall together,
    so latencies over a threshold are grouped into clusters, and a generalised Pareto distribution
    is fitted to the maxima of the clusters by maximum likelihood. The model uses the lowest
    threshold whose diagnostics hold: enough clusters, a good fit, one population, a tail index
    that higher thresholds confirm, stationarity, fine stamps, hardly any loss. Its return levels
    (such as the latency that one cluster exceeds in 24 h) come with 95 % profile likelihood
    intervals. Where no threshold passes, or the rest of the run contradicts the prediction, no
    number is printed, and the reason is.

    Apart from it, and whether it holds or not, stands what needs no model: how many packets to
    expect over latencies that the run has shown, and how likely later ones are.

    Everything comes from the stored evaluation; captures are not read again.
    docs/explanation/model.md explains every column, and how far to trust the intervals.
    """

    from tailtap.analysis.tail.analysis import Options
    from tailtap.analysis.tail.peaks import parse_threshold
    from tailtap.analysis.tail.runs import model_runs

    progress = steps("model", quiet=quiet)
    defaults = Options()
    options = Options(
        fit=fit,
        thresholds=tuple(map(parse_threshold, threshold)) if threshold else defaults.thresholds,
        horizons=horizon or defaults.horizons,
    )
    found = model_runs(runs, options, out=out, progress=progress)
    if figures:
        from tailtap.show.report.tails import write_tail_figures

        for modelled in found.runs:
            progress(f"{modelled.run.slug}: drawing")
            write_tail_figures(modelled.model, modelled.folder, below=out or modelled.run.top)
    content = found.record(method)
    return Answer(content, lambda: _print(content, method))


def _print(content: ModelRecord, method: str) -> None:
    from tailtap.cli.console import print_section, print_table
    from tailtap.show.sections.tail import model_sections, papers_section, repeats_table

    papers = method == "papers"
    for run in content.runs:
        for section in [papers_section(run)] if papers else model_sections(run):
            print_section(section)
        say()
    if len(content.runs) > 1 and content.summary:
        print_table(repeats_table(content.summary, papers=papers))
    warn_of(content.warnings)
