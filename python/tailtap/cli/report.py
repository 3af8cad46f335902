"""`tailtap report`: write a page and figures about an experiment folder."""

from __future__ import annotations

from pathlib import Path

import click

from tailtap.cli.command import PATH, Answer, command
from tailtap.cli.options import selected_runs, writes_into
from tailtap.cli.terminal import say_whole, steps


@command(computes=True)
@click.argument(
    "folder",
    type=PATH,
    metavar="DIR",
    help="The folder that `tailtap run --out`, `tailtap search --out`, "
    "`tailtap evaluate --out` or "
    "`tailtap import --into` wrote.",
)
@writes_into("The folder for the report; by default DIR/report.")
@selected_runs(
    "Which runs, own and imported: words with commas between them, all of which must fit a run."
)
@click.option(
    "--figures-from",
    type=PATH,
    metavar="FILE",
    help="An experiment file, or one with `figures` alone, whose figures are drawn in place of "
    "those of the experiment's own file.",
)
@click.option(
    "--figures/--no-figures",
    default=True,
    help="Also write the figures for print, as PNG, SVG and PDF.",
)
def report(
    folder: Path,
    out: Path | None,
    runs: tuple[str, ...],
    figures_from: Path | None,
    figures: bool,
    json: bool,
    quiet: bool,
) -> Answer:
    """Write the report of an experiment: one page, and the figures for print.

    The page (index.html) holds everything it shows and needs no network: the result of each
    configuration, an HDR diagram of all runs, loss against the packet rate where that varies, the
    worst latencies and the losses over time, inter-packet gaps and packet rates before and after
    the device, counts, warnings and the environment; of a search, its result. The folder `figures`
    holds the same figures as PNG, SVG and PDF. Failed runs are listed with their reason. Nothing is
    measured again: make the report as often as you like, also of an interrupted experiment.

    What the experiment file asks for as `figures` comes first: panels, lines and axes as a paper
    has them, with the data of each as CSV. Change that section in DIR/experiment.yaml and make the
    report again, or give another file by --figures-from.

    Of runs with a trace it says why packets were late, as `tailtap explain` stored it or, where
    that did not run yet, as it finds it: the causes and the knobs that remove them, the worst
    packets by cause, what makes each percentile, and what the cores did around each of them. Of
    runs with `interrupts: counters` it shows which counters rose where packets were late. Of lines
    with `dut.taps: hops` it shows how long each node took, and which one made the worst packets.

    The page also shows runs that `tailtap import --into DIR` added to DIR, marked as imported.
    What their files do not contain, such as confidence intervals, is shown as not published.
    Tables show all imported runs, figures eight of them, first those at the packet rates of your
    own runs. Select runs with --runs. Each word of a selection is `own` or `imported`, a packet
    rate, a run's number, or a name: a value that was varied, the platform, or a folder in an
    imported run's path, where * and ? stand for any letters. Both container runs at one rate are
    `--runs 'container, 10 kpkt/s'`; all your own runs and one imported run are
    `--runs own --runs 1000007`.
    """

    from tailtap.library import remedies
    from tailtap.records.printed import ReportRecord
    from tailtap.show.report import write_report

    result = write_report(
        folder,
        out,
        figures=figures,
        runs=runs,
        knobs=remedies(),
        figures_from=figures_from,
        progress=steps("report", quiet=quiet),
    )
    record = ReportRecord(
        page=str(result.page),
        bytes=result.size,
        figures=[str(path) for path in result.figures],
        runs=result.runs,
        failed=result.failed,
        imported=result.imported,
    )
    return Answer(record, lambda: say_whole(record.page))
