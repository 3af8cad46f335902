"""`tailtap model`: what to expect of a run's tail on a longer horizon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tailtap.cli.options import Json, Quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtap.tail.analysis import TailModel
    from tailtap.tail.runs import Summary


def model(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|DIR…",
            help="Run folders, what `tailtap evaluate --out` wrote, or experiment folders: then "
            "all their finished runs.",
        ),
    ],
    method: Annotated[
        Literal["tailtap", "papers"],
        typer.Option(
            help="What is printed. tailtap: bursts over each threshold, with intervals and "
            "diagnostics. papers: the published method, every exceedance and no intervals. "
            "tail.json and --json always have both.",
        ),
    ] = "tailtap",
    fit: Annotated[
        str,
        typer.Option(
            metavar="SHARE",
            help="The share of each run that is fitted, from its start; the rest checks the "
            "prediction. 100 % fits everything and checks nothing.",
        ),
    ] = "20 %",
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            metavar="P|TIME",
            help="A threshold: a percentile of the fitted part, such as 99.95, or a latency such "
            "as '30 us'. May be given several times; the papers' five (99.5, 99.9, 99.95, 99.99, "
            "99.999) when not given.",
        ),
    ] = None,
    horizon: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME",
            help="A time to say the level for that is exceeded once in it. May be given several "
            "times; 1 h and 24 h when not given.",
        ),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures",
            help="Also draw the diagnostic plots, as PNG, SVG and PDF, beside tail.json.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where tail.json and the plots go, in a folder for each run; the run's own "
            "folder when not given.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the tail on a longer horizon, and check the prediction.

    The first part of each run is fitted, the rest is held against the prediction. Latencies over
    a threshold are gathered into bursts, as stalled packets come in queues, and a generalised
    Pareto distribution is fitted to their maxima by maximum likelihood. The lowest threshold
    whose diagnostics hold is used: enough bursts, a good fit, one population, a tail index that
    higher thresholds confirm, stationarity, stamps fine enough, hardly any loss. Its return
    levels (what one burst exceeds in 24 h, say) come with 95 % profile likelihood intervals.
    Where no threshold will do, or the rest of the run belies the prediction, that is said and no
    number is given.

    Everything comes from the stored evaluation; captures are not read again. docs/model.md
    explains every column and how far the intervals can be trusted.
    """
    import json as json_module
    import sys

    from tailtap.tail.analysis import Options
    from tailtap.tail.peaks import parse_threshold
    from tailtap.tail.runs import model_runs
    from tailtap.units import parse_time

    def progress(step: str) -> None:
        if not quiet:
            print(f"model: {step}", file=sys.stderr)

    defaults = Options()
    options = Options(
        fit=_share(fit),
        thresholds=tuple(map(parse_threshold, threshold)) if threshold else defaults.thresholds,
        horizons=tuple(map(parse_time, horizon)) if horizon else defaults.horizons,
    )
    found = model_runs(runs, options, out=out, progress=progress)
    if figures:
        from tailtap.report.tails import write_tail_figures

        for modelled in found.runs:
            progress(f"{modelled.run.slug}: drawing")
            write_tail_figures(modelled.model, modelled.folder)
    if json:
        print(json_module.dumps(found.as_json(method), allow_nan=False))
        return
    for modelled in found.runs:
        (_print_papers if method == "papers" else _print_model)(modelled.model)
    if len(found.runs) > 1:
        _print_summary(found.summary, method)
    for warning in found.warnings:
        print(f"warning: {warning.message} [{warning.code}]", file=sys.stderr)


def _share(text: str) -> float:
    from tailtap.errors import InputError

    stripped = text.strip()
    try:
        value = float(stripped.removesuffix("%"))
    except ValueError:
        raise InputError(
            f"'{text}' is not a share: give --fit a percentage such as '20 %'"
        ) from None
    return value / 100 if stripped.endswith("%") else value


def _us(ns: float | None) -> str:
    from tailtap.units import format_us

    return "" if ns is None else format_us(round(ns))


def _heading(found: TailModel) -> None:
    from tailtap.units import format_rate

    tail = found.tail
    print(
        f"{tail.name}: {tail.packets:,} packets at {format_rate(round(tail.rate))}, the first "
        f"{found.fitted.packets:,} fitted, {found.rest.packets:,} checked"
    )


def _print_model(found: TailModel) -> None:
    from rich.table import Table

    from tailtap.cli.console import print_table
    from tailtap.tail.words import level_words

    _heading(found)
    for test in found.stationarity:
        word = "stationary" if test.stationary else "maybe not stationary"
        word = "not stationary" if test.unit_root else word
        print(f"{word}: {test.length} {test.series}, ADF p {test.adf_p:.2g}, KPSS p "
              f"{_kpss(test.kpss_p)}")  # fmt: skip
    table = Table(box=None, title="latencies in us", title_justify="left")
    for heading in ("threshold", "", "packets", "bursts", "index", "xi (95 %)", "sigma", "A² p",
                    "JS", "limit", "level", "above"):  # fmt: skip
        table.add_column(heading, justify="right")
    table.add_column("doubts", justify="left")
    for row in found.assessments:
        fit, check = row.fit, row.check
        low, high = row.xi_interval or (None, None)
        interval = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
        table.add_row(
            ("> " if row is found.chosen else "") + row.threshold.text,
            _us(row.latency),
            f"{row.exceedances:,}" if row.latency is not None else "",
            f"{row.bursts.count:,}" if row.bursts else "",
            f"{row.bursts.extremal_index:.2f}" if row.bursts else "",
            f"{fit.xi:.2f}{interval}" if fit else "",
            _us(fit.sigma) if fit else "",
            f"{row.goodness.p:.3f}" if row.goodness else "",
            f"{row.divergence:.4f}" if row.divergence is not None else "",
            _us(row.limit) if row.limit is not None else "none" if fit else "",
            _us(check.level.value) if check else "",
            str(check.bursts) if check else "",
            ", ".join(flag.code for flag in row.flags),
            style="dim" if row.refused else None,
        )
    print_table(table)
    cross = found.block_maxima
    if cross is not None:
        ends = cross.interval
        interval = f" ({_us(ends[0])} to {_us(ends[1])})" if ends else " (no interval)"
        print(
            f"block maxima: {cross.gev.n} blocks, xi {cross.gev.xi:.2f}, once in "
            f"{cross.packets:,.0f} packets {_us(cross.level)} us{interval}"
        )
    for entry in found.levels:
        print(level_words(entry.horizon_ns, found.tail.rate, entry.level))
    _print_warnings(found)


def _print_papers(found: TailModel) -> None:
    from rich.table import Table

    from tailtap.cli.console import print_table

    _heading(found)
    table = Table(box=None, title="the published method, latencies in us", title_justify="left")
    for heading in ("threshold", "", "packets", "xi", "sigma", "JS", "level", "limit",
                    "packets above", "bursts above"):  # fmt: skip
        table.add_column(heading, justify="right")
    for row in found.papers:
        if row.xi is None or row.divergence is None:
            table.add_row(row.threshold.text, _us(row.latency), str(row.exceedances), "no fit")
            continue
        table.add_row(
            ("> " if row is found.papers_chosen else "") + row.threshold.text,
            _us(row.latency),
            f"{row.exceedances:,}",
            f"{row.xi:.6f}",
            _us(row.sigma),
            f"{row.divergence:.4f}",
            _us(row.level),
            _us(row.limit) if row.limit is not None else "none",
            "" if row.above is None else str(row.above),
            "" if row.bursts is None else str(row.bursts),
        )
    print_table(table)
    _print_warnings(found, of_run=True)


def _print_warnings(found: TailModel, *, of_run: bool = False) -> None:
    """All warnings, or only those `of_run`: of the measurement, whatever the method."""
    from tailtap.tail.analysis import OF_RUN

    for warning in found.warnings:
        if not of_run or warning.code in OF_RUN:
            print(f"  {warning.message} [{warning.code}]")
    print()


def _print_summary(rows: Sequence[Summary], method: str) -> None:
    from rich.table import Table

    from tailtap.cli.console import print_table

    papers = method == "papers"
    table = Table(box=None, title="over repeats (1 burst is expected above)", title_justify="left")
    for heading in ("configuration", "runs", "models", "bursts above", "bounded"):
        table.add_column(heading, justify="left" if heading == "configuration" else "right")
    for row in rows:
        bursts, bounded = (
            (row.papers_bursts, row.papers_bounded) if papers else (row.bursts, row.bounded)
        )
        table.add_row(
            row.label,
            str(row.runs),
            "" if papers else str(row.models),
            "" if bursts is None else f"{bursts:.2f}",
            "" if bounded is None else f"{bounded:.1%}",
        )
    print_table(table)


def _kpss(p: float) -> str:
    """A p-value of a table that ends at 0.01 and 0.1."""
    return "<= 0.01" if p <= 0.01 else ">= 0.1" if p >= 0.1 else f"{p:.2g}"
