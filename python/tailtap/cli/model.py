"""`tailtap model`: predict the tail of a run on a longer horizon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tailtap.base.units import exact_time, format_rate, format_us, format_wait
from tailtap.cli.command import SHARE, TIME, Answer, command
from tailtap.cli.options import runs_and_folders, writes_into
from tailtap.cli.terminal import say, steps, warn_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtap.records.tail import (
        ExpectedRecord,
        ModelledRun,
        ModelRecord,
        RepeatsRow,
        ThresholdRecord,
    )


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
    for run in content.runs:
        (_print_papers if method == "papers" else _print_model)(run)
    if len(content.runs) > 1 and content.summary:
        _print_summary(content.summary, method)
    warn_of(content.warnings)


def _heading(found: ModelledRun) -> None:
    from tailtap.analysis.evaluation.clocks import Within

    packets = found.packets
    name = f"{found.run} (invalid)" if found.valid is False else found.run
    within = Within(found.within_ns, found.resolution_ns)
    say(
        f"{name}: {packets.matched:,} packets at {format_rate(found.rate)}, "
        f"the first {packets.fitted:,} fitted, {packets.checked:,} checked"
        + (f", {within.text}" if within.ns else "")
    )


def _print_model(found: ModelledRun) -> None:
    from tailtap.cli.console import Table
    from tailtap.show.sections import Column

    _heading(found)
    for test in found.stationarity:
        word = "stationary" if test.stationary else "maybe not stationary"
        word = "not stationary" if test.unit_root else word
        say(
            f"{word}: {test.length} {test.series}, ADF p {test.adf_p:.2g}, KPSS p "
            f"{_kpss(test.kpss_p)}"
        )
    table = Table(
        (
            Column("threshold", right=True),
            Column("us", right=True),
            Column("packets", right=True, spare=5),
            Column("clusters", right=True),
            Column("index", right=True, spare=7),
            Column("xi (95 %)", right=True, wrap=8),
            Column("sigma", right=True, spare=6),
            Column("A² p", right=True, spare=2),
            Column("JS", right=True, spare=4),
            Column("limit", right=True, spare=3),
            Column("level", right=True),
            Column("above", right=True, spare=1),
            Column("warnings", wrap=20),
        ),
        title="latencies in us",
    )
    for row in found.thresholds:
        mark = "> " if row.threshold == found.chosen else ""
        table.add(mark + row.threshold, *_cells(row), style="dim" if row.refused else "")
    table.print()
    cross = found.block_maxima
    if cross is not None:
        level, told = (
            cross.level,
            f"block maxima: {cross.blocks} blocks, xi {cross.xi:.2f}",
        )
        if level is not None:
            known = level.low is not None
            ends = f"{format_us(level.low)} to {format_us(level.high)}" if known else "no interval"
            told += f", once in {level.packets:,.0f} packets {format_us(level.value)} us ({ends})"
        say(told)
    for entry in found.levels:
        say(entry.words)
    if found.forecasts:
        _print_forecasts(found)
    _print_warnings(found)


def _print_forecasts(found: ModelledRun) -> None:
    """What each horizon brings, whether a model holds or not."""
    from tailtap.cli.console import Table, columns

    names = [exact_time(one.horizon_ns) for one in found.forecasts]
    table = Table(
        columns(("over, us", "packets", "clusters", *(f"in {name}" for name in names)), right=True),
        title="without a model: packets over a latency, and how many to expect (95 %)",
    )
    unsure = False
    for rows in zip(*(one.levels for one in found.forecasts), strict=True):
        seen = rows[0]
        cells = [row.expected_packets for row in rows]
        unsure |= not all(cell.supported for cell in cells)
        told = (f"{seen.packets:,}", f"{seen.events:,}", *map(_expected, cells))
        table.add(format_us(seen.level_ns), *told)
    table.print()
    if unsure:
        say("(…): too few clusters for 95 %, or they come unevenly")
    for name, one in zip(names, found.forecasts, strict=True):
        say(
            f"{name}: with {_chance(one.exceeded)} some packet is later than all of the run; what "
            f"the run did not show comes at most {one.unseen:,} times (95 %); only a run of "
            f"{format_wait(one.needed_ns / 1e9)} has a largest latency that holds for it (95 %)"
        )


def _expected(cell: ExpectedRecord) -> str:
    interval = f"{_rounded(cell.low)} to {_rounded(cell.high)}"
    return interval if cell.supported else f"({interval})"


def _rounded(number: float) -> str:
    """Three digits, which is more than is known."""
    return f"{float(f'{number:.3g}'):,.0f}"


def _chance(share: float) -> str:
    """A probability, never called certain."""
    return "more than 99.9 %" if share > 0.999 else f"{share:.1%}".replace("%", " %")


def _cells(row: ThresholdRecord) -> list[str]:
    """What is known of one threshold, behind its name."""
    xi, check, goodness = row.xi, row.check, row.anderson_darling
    interval = "" if not xi or xi.low is None else f" ({xi.low:.2f} to {xi.high:.2f})"
    divergence, limit = row.jensen_shannon, row.limit_ns
    return [
        format_us(row.latency_ns),
        f"{row.exceedances:,}" if row.latency_ns is not None else "",
        f"{row.bursts:,}" if row.bursts else "",
        f"{row.extremal_index:.2f}" if row.bursts else "",
        f"{xi.value:.2f}{interval}" if xi else "",
        format_us(row.sigma_ns),
        f"{goodness.p:.3f}" if goodness else "",
        "" if divergence is None else f"{divergence:.4f}",
        format_us(limit) if limit is not None else "none" if xi and not row.refused else "",
        format_us(check.level.value) if check else "",
        str(check.bursts_above) if check else "",
        ", ".join(flag.code for flag in row.flags),
    ]


def _print_papers(found: ModelledRun) -> None:
    from tailtap.cli.console import Table
    from tailtap.show.sections import Column

    _heading(found)
    table = Table(
        (
            Column("threshold", right=True),
            Column("us", right=True),
            Column("packets", right=True, spare=2),
            Column("xi", right=True),
            Column("sigma", right=True, spare=3),
            Column("JS", right=True, spare=4),
            Column("level", right=True),
            Column("limit", right=True, spare=1),
            Column("packets above", right=True),
            Column("clusters above", right=True),
        ),
        title="the published method, latencies in us",
    )
    papers = found.papers
    for row in papers.thresholds:
        latency, limit = format_us(row.latency_ns), row.limit_ns
        if row.xi is None or row.jensen_shannon is None:
            table.add(row.threshold, latency, str(row.exceedances), "no fit")
            continue
        table.add(
            ("> " if row.threshold == papers.chosen else "") + row.threshold,
            latency,
            f"{row.exceedances:,}",
            f"{row.xi:.6f}",
            format_us(row.sigma_ns),
            f"{row.jensen_shannon:.4f}",
            format_us(row.level_ns),
            format_us(limit) if limit is not None else "none",
            "" if row.packets_above is None else str(row.packets_above),
            "" if row.bursts_above is None else str(row.bursts_above),
        )
    table.print()
    _print_warnings(found, of_run=True)


def _print_warnings(found: ModelledRun, *, of_run: bool = False) -> None:
    """All warnings, or only those `of_run`: of the measurement, whatever the method."""
    from tailtap.analysis.tail.analysis import OF_RUN

    for warning in found.warnings:
        if not of_run or warning.code in OF_RUN:
            say(f"  {warning.message} [{warning.code}]")
    say()


def _print_summary(rows: Sequence[RepeatsRow], method: str) -> None:
    from tailtap.cli.console import Table, columns
    from tailtap.show.sections import Column

    prefix = "papers_" if method == "papers" else ""
    table = Table(
        (
            Column("configuration", wrap=16),
            *columns(("runs", "models", "clusters above", "bounded"), right=True),
        ),
        title="over repeats (1 cluster is expected above)",
    )
    for row in rows:
        bursts, bounded = getattr(row, f"{prefix}bursts"), getattr(row, f"{prefix}bounded")
        table.add(
            row.label,
            str(row.runs),
            "" if prefix else str(row.models),
            "" if bursts is None else f"{bursts:.2f}",
            "" if bounded is None else f"{bounded:.1%}",
        )
    table.print()


def _kpss(p: float) -> str:
    """A p-value of a table that ends at 0.01 and 0.1."""
    return "<= 0.01" if p <= 0.01 else ">= 0.1" if p >= 0.1 else f"{p:.2g}"
