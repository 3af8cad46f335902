"""`tailtap compare`: which configuration is better, and whether the data can tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailtap.cli.options import Json, Quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailtap.compare.comparison import Comparison, Traits
    from tailtap.compare.ranking import Ranking, Standing, Value

    Row = tuple[Sequence[str], bool]  # cells, and whether they recede

#: Comparisons that are printed; `--json` has all.
PRINTED = 15
TRAITS = ("configuration", "load", "rank", "models", "bursts above", "bounded", "CPUs", "us/packet",
          "memory", "cache", "isolation")  # fmt: skip
#: Columns of texts.
TEXTS = frozenset(("configuration", "repeats", "slower", "faster", "load", "cache", "isolation"))


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUN|DIR…",
            help="Run folders, experiment folders, what `tailtap evaluate --out` wrote, folders or "
            "databases with imported results. Evaluations with the same NAME are repeats of one "
            "configuration.",
        ),
    ],
    percentile: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="What configurations are ranked by: a percentile such as 99.9, or max. When not "
            "given, the highest that every run has ten packets above.",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank configurations by their tail, as far as the data can tell, and recommend.

    Runs that differ in nothing but the repeat are one configuration; configurations are ranked
    among those under the same traffic. Differences are tested over repeats, as packets of one run
    are late together: by exact rank tests, corrected for their number (Holm), so that noise makes
    a ranking with a probability of 5 % at most. Configurations that cannot be told apart share
    their ranks. Beside it stand how predictable each tail is, what it costs, how well its platform
    isolates (a judgement), and the five recommendations of "How low can you go?" held against the
    data. docs/compare.md explains every column.
    """
    import json as json_module
    import sys

    from tailtap.compare import compare_runs
    from tailtap.compare.record import record

    def progress(step: str) -> None:
        if not quiet:
            print(f"compare: {step}", file=sys.stderr)

    found = compare_runs(
        [_source(text) for text in runs], _percentile(percentile), progress=progress
    )
    if json:
        print(json_module.dumps(record(found), allow_nan=False))
        return
    for ranking in found.rankings:
        _print_ranking(ranking)
    _print_traits(found)
    for check in found.checks:
        print(f"{check.name}: {check.answer}: {check.because}")
    print()
    for sentence in found.advice:
        print(sentence)
    if not quiet:
        for warning in found.warnings:
            print(f"warning: {warning.message} [{warning.code}]", file=sys.stderr)


def _source(text: str) -> tuple[str, Path]:
    """A name and a path; a path that exists as it is written has none."""
    name, equals, path = text.partition("=")
    if Path(text).exists() or not equals or not name:
        return "", Path(text)
    return name, Path(path)


def _percentile(text: str | None) -> float | None:
    from tailtap.errors import InputError
    from tailtap.evaluation.percentiles import parse_list

    if text is None:
        return None
    if text.strip().lower() == "max":
        return 1.0
    try:
        (found,) = parse_list(text)
    except (InputError, ValueError):
        raise InputError(
            f"--percentile {text!r} is no percentile: give one such as 99.9, or max"
        ) from None
    return found


def _us(ns: float | None) -> str:
    from tailtap.units import format_us

    return "" if ns is None else format_us(round(ns))


def _print_columns(title: str, heads: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table without the columns that nothing is in; texts stand left, numbers right."""
    from rich.table import Table

    from tailtap.cli.console import print_table

    listed = list(rows)
    known = [place for place in range(len(heads)) if any(cells[place] for cells, _ in listed)]
    print(title)  # a title of the table would be folded to its width
    table = Table(box=None)
    for place in known:
        table.add_column(heads[place], justify="left" if heads[place] in TEXTS else "right")
    for cells, dim in listed:
        table.add_row(*(cells[place] for place in known), style="dim" if dim else None)
    print_table(table)


def _print_ranking(ranking: Ranking) -> None:
    from tailtap.compare.words import percentile_text

    if ranking.reason:
        print(f"{ranking.load.label}: no ranking: {ranking.reason}\n")
        return
    rows = [(_row(found), found.best is None) for found in (*ranking.standings, *ranking.floors)]
    rows += [(["", left.label, "no good run", "", "", ""], True) for left in ranking.unranked]
    name = percentile_text(ranking.percentile)
    title = f"{ranking.load.label}: {name} in us, the worst repeat first"
    heads = ("rank", "configuration", "repeats", "within the worst run", "max", "loss")
    _print_columns(title, heads, rows)
    _print_pairs(ranking)


def _row(standing: Standing) -> list[str]:
    from tailtap.compare.words import share_text

    values = sorted(standing.values, key=lambda value: value.order, reverse=True)
    inside = values[0].interval
    slowest = max((v.sample.maximum for v in values if v.sample.maximum is not None), default=None)
    losses = [value.sample.loss for value in values if value.sample.loss is not None]
    return [
        _rank_text(standing) or "floor",
        standing.configuration.label,
        "  ".join(_value_text(value) for value in values),
        "" if inside.low is None else f"{_us(inside.low)} to {_us(inside.high)}",
        _us(slowest),
        "" if not losses else share_text(max(losses)) if max(losses) else "0",
    ]


def _value_text(value: Value) -> str:
    return "unknown" if value.latency is None else _us(value.latency)


def _print_pairs(ranking: Ranking) -> None:
    from tailtap.compare.significance import ALPHA
    from tailtap.compare.words import ratio_text

    able = [pair for pair in ranking.pairs if pair.least <= ALPHA]
    if not able:
        print(f"comparisons: {len(ranking.pairs)}, all with too few repeats to be decided\n")
        return
    shown = sorted(able, key=lambda pair: (not pair.significant, pair.corrected))[:PRINTED]
    words = {True: "apart", False: "overlap", None: ""}
    rows = [
        (
            [
                ranking.standings[pair.slower].configuration.label,
                ranking.standings[pair.faster].configuration.label,
                ratio_text(pair.shift),
                f"{pair.p:.2g}",
                f"{pair.corrected:.2g}",
                words[pair.apart],
            ],
            not pair.significant,
        )
        for pair in shown
    ]
    heads = ("slower", "faster", "ratio (95 %)", "p", "corrected", "runs' intervals")
    _print_columns("differences", heads, rows)
    if len(ranking.pairs) > len(shown):
        print(f"and {len(ranking.pairs) - len(shown)} more: --json has all")
    print()


def _print_traits(found: Comparison) -> None:
    places = {
        id(standing.configuration): standing
        for ranking in found.rankings
        for standing in ranking.standings
    }
    rows = [_trait_cells(traits, places.get(id(traits.configuration))) for traits in found.traits]
    title = "besides latency (isolation is a judgement, not a measurement)"
    _print_columns(title, TRAITS, [(row, False) for row in rows])
    print()


def _rank_text(standing: Standing | None) -> str:
    if standing is None or standing.best is None:
        return ""
    more = "" if standing.best == standing.last else f" to {standing.last}"
    return f"{standing.best}{more}"


def _trait_cells(traits: Traits, standing: Standing | None) -> Sequence[str]:
    """The cells of one configuration under `TRAITS`."""
    summary, used, cache = traits.predictability, traits.resources, traits.cache
    busy = "" if used.cpus is None else f"{used.cpus:.2f} of {used.reserved}"
    layout = "" if cache is None else cache.layout + (" (virtual)" if cache.virtual else "")
    return (
        traits.configuration.label,
        traits.load.label,
        _rank_text(standing),
        "" if summary is None else f"{summary.models} of {summary.runs}",
        "" if summary is None or summary.bursts is None else f"{summary.bursts:.2f}",
        "" if summary is None or summary.bounded is None else f"{summary.bounded:.0%}",
        busy,
        "" if used.cpu_ns is None else f"{used.cpu_ns / 1000:.2f}",
        "" if used.memory is None else f"{used.memory / 1e6:,.1f} MB",
        layout,
        traits.isolation.grade if traits.isolation else "",
    )
