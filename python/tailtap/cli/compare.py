"""`tailtap compare`: rank configurations by their tail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtap.base.errors import InputError
from tailtap.base.units import format_share, format_us
from tailtap.cli.command import PATH, PERCENTILE, SHARE, Answer, command
from tailtap.cli.gate import Gate, bisected, print_gate, status_of
from tailtap.cli.options import undisturbed_latencies
from tailtap.cli.terminal import say, steps, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailtap.records.compare import (
        CompareRecord,
        Configured,
        GateRecord,
        LoadRow,
        PairRow,
        RepeatRow,
        Standing,
    )
    from tailtap.records.record import Notice

    Row = tuple[Sequence[str], bool]  # cells, and whether they recede

#: Comparisons that are printed; `--json` has all.
PRINTED = 15
#: Rows of counters that are printed.
COUNTED = 40
TRAITS = ("configuration", "load", "rank", "models", "clusters above", "bounded", "CPUs",
          "us/packet", "memory", "power", "cache", "isolation")  # fmt: skip
#: Columns of texts, and how narrow they may become.
TEXTS = {"counter": 12, "configuration": 16, "repeats": 10, "against": 16, "is": 6, "load": 10,
         "cache": 8, "isolation": 9}  # fmt: skip
#: What a narrow terminal leaves out, the highest first.
SPARE = {"power": 8, "cache": 7, "memory": 6, "models": 5, "bounded": 4, "clusters above": 3,
         "us/packet": 2, "within the worst run": 2, "p": 2, "runs' intervals": 1}  # fmt: skip


@command(
    cls=Gate,
    computes=True,
    examples=(
        (
            "tailtap compare results/first",
            "the configurations of one experiment",
        ),
        (
            "tailtap compare old=results/monday new=results/friday --percentile 99.9",
            "two experiments, by a percentile",
        ),
        (
            "tailtap compare baseline results/change --worse-than '10 %' --at p99.9",
            "whether a change made the tail worse",
        ),
    ),
)
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="[NAME=]RUN|DIR…",
    help="Run folders, experiment folders, what `tailtap evaluate --out` wrote, folders or "
    "databases with imported results. Evaluations with the same NAME are repeats of one "
    "configuration.",
)
@click.option(
    "--percentile",
    "--at",
    "percentile",
    type=PERCENTILE,
    metavar="P",
    help="What configurations are ranked by: a percentile such as 99.9 or p99.9, or max. When not "
    "given, what `require` in their experiment files asks for, or else the highest that every run "
    "has ten packets above.",
)
@click.option(
    "--worse-than",
    type=SHARE,
    metavar="SHARE",
    help="Say of the first and the second whether the second one is worse by more than this, such "
    "as '5 %', of the latency: better, no worse, worse, or not shown.",
)
@click.option(
    "--bisect",
    is_flag=True,
    help="With --worse-than: end as `git bisect run` wants it, with 125 where nothing is shown, "
    "and with 128 where no answer can be had.",
)
@click.option(
    "--junit",
    type=PATH,
    metavar="FILE",
    help="With --worse-than: also write JUnit XML, with one test case for each configuration.",
)
@click.option(
    "--markdown",
    type=PATH,
    metavar="FILE",
    help="With --worse-than: also write a summary in Markdown, as for a pull request.",
)
@undisturbed_latencies("compare")
def compare(
    runs: tuple[str, ...],
    percentile: float | None,
    undisturbed: bool,
    worse_than: float | None,
    bisect: bool,
    junit: Path | None,
    markdown: Path | None,
    json: bool,
    quiet: bool,
) -> Answer:
    """Rank configurations by their tail, as far as the data can distinguish them.

    Runs that differ only in the repeat are one configuration. Configurations with the same traffic
    are ranked together. Packets of one run are late together, so differences are tested over
    repeats: by exact rank tests, corrected for their number (Holm). The probability that noise
    makes a ranking is 5 % at most. Configurations that the tests cannot distinguish share their
    ranks. A difference is told of the one that was given later, against the one before. What was
    counted per packet is compared in the same way. Further
    tables show how predictable each tail is, what it costs, how well its platform isolates (a
    judgement), and whether the data meets the five recommendations of "How low can you go?".
    docs/howto/compare.md explains every column.

    With --worse-than, the question is whether a change made the tail worse. The exit status is the
    answer: 0 for better and no worse, 1 for worse, 5 for not shown. docs/howto/ci.md tells how to
    use it.
    """
    from tailtap.analysis.compare import compare_runs, judge_change
    from tailtap.analysis.compare.comparison import record

    progress = steps("compare", quiet=quiet)

    sources = [_source(text) for text in runs]
    if worse_than is not None:
        with bisected(bisect):
            change = judge_change(
                sources, worse_than, percentile, undisturbed=undisturbed, progress=progress
            )
            _write(change, junit, markdown)
        status = status_of(change.answer, bisect=bisect)
        return Answer(change, lambda: _print_change(change, quiet=quiet), status)
    if bisect or junit or markdown:
        raise InputError("--bisect, --junit and --markdown are about --worse-than: give that, too")
    found = record(compare_runs(sources, percentile, undisturbed=undisturbed, progress=progress))
    return Answer(found, lambda: _print(found, quiet=quiet))


def _print_change(change: GateRecord, *, quiet: bool) -> None:
    print_gate(change)
    _tell(change.warnings, quiet=quiet)


def _print(found: CompareRecord, *, quiet: bool) -> None:
    if found.undisturbed:
        say("of undisturbed latencies: without the time around pauses from outside")
    for load in found.loads:
        _print_load(load, found.alpha)
    for load in found.loads:
        _print_counters(load)
    _print_traits(found.loads)
    for check in found.recommendations:
        say(f"{check.name}: {check.answer}: {check.because}")
    say()
    for sentence in found.advice:
        say(sentence)
    _tell(found.warnings, quiet=quiet)


def _write(found: GateRecord, junit: Path | None, markdown: Path | None) -> None:
    from tailtap.analysis.compare.gate_files import write_junit, write_markdown

    if junit is not None:
        write_junit(found, junit)
    if markdown is not None:
        write_markdown(found, markdown)


def _tell(warnings: Sequence[Notice], *, quiet: bool) -> None:
    if not quiet:
        for warning in warnings:
            warn(f"warning: {warning.message} [{warning.code}]")


def _source(text: str) -> tuple[str, Path]:
    """A name and a path; a path that exists as it is written has none."""
    name, equals, path = text.partition("=")
    if Path(text).exists() or not equals or not name:
        return "", Path(text)
    return name, Path(path)


def _print_columns(title: str, heads: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table; texts stand left, numbers right."""
    from tailtap.cli.console import Column, Table

    table = Table(
        [
            Column(head, right=head not in TEXTS, wrap=TEXTS.get(head, 0), spare=SPARE.get(head, 0))
            for head in heads
        ],
        title,
    )
    for cells, dim in rows:
        table.add(*cells, style="dim" if dim else "")
    table.print()


def _print_load(found: LoadRow, alpha: float) -> None:
    """Print the ranking under one load, and what differs."""
    if found.reason:
        say(f"{found.load}: no ranking: {found.reason}")
        say()
        return
    ranked = [*found.configurations, *found.floors]
    rows = [(_row(configuration), configuration.rank is None) for configuration in ranked]
    rows += [(["", left.label, "no good run", "", "", ""], True) for left in found.unranked]
    by = " (as required)" if found.percentile_by == "require" else ""
    title = f"{found.load}: {found.percentile_text}{by} in us, the worst repeat first"
    heads = ("rank", "configuration", "repeats", "within the worst run", "max", "loss")
    _print_columns(title, heads, rows)
    _print_comparisons(found.comparisons, alpha)


def _row(found: Standing) -> list[str]:
    from tailtap.analysis.compare.significance import rank_text

    repeats = [found.repeats[place] for place in found.worst_first]
    inside = repeats[0].interval
    slowest = max((run.max for run in repeats if run.max is not None), default=None)
    losses = [run.loss for run in repeats if run.loss is not None]
    return [
        rank_text(found.rank) or "floor",
        found.label,
        "  ".join(_repeat(run) for run in repeats),
        "" if inside is None else f"{format_us(inside.low)} to {format_us(inside.high)}",
        format_us(slowest),
        "" if not losses else format_share(max(losses)),
    ]


def _repeat(run: RepeatRow) -> str:
    """A run's latency, and what it may be off by by its clocks and stamps."""
    if run.latency is None:
        return "unknown"
    return format_us(run.latency) + (f" ± {format_us(run.within_ns)}" if run.within_ns else "")


def _print_comparisons(pairs: Sequence[PairRow], alpha: float) -> None:
    able = [pair for pair in pairs if pair.smallest_p <= alpha]
    if not able:
        say(f"comparisons: {len(pairs)}, all with too few repeats to be decided")
        say()
        return
    shown = sorted(able, key=lambda pair: (not pair.significant, pair.p_corrected))[:PRINTED]
    words = {True: "apart", False: "overlap", None: ""}
    rows = [
        (
            [
                pair.second,
                pair.first,
                pair.answer,
                pair.second_over_first,
                f"{pair.p:.2g}",
                f"{pair.p_corrected:.2g}",
                words[pair.runs_apart],
            ],
            not pair.significant,
        )
        for pair in shown
    ]
    heads = ("configuration", "against", "is", "ratio (95 %)", "p", "corrected", "runs' intervals")
    _print_columns("differences", heads, rows)
    if len(pairs) > len(shown):
        say(f"and {len(pairs) - len(shown)} more: --json has all")
    say()


def _print_counters(found: LoadRow) -> None:
    """Print what was counted per packet under one load, and where that differs."""
    from tailtap.analysis.runs.text import number_text

    rows = sorted(found.counters.counted, key=lambda row: not row.chosen)
    if not rows:
        return
    cells = [
        (
            [row.counter, row.configuration, number_text(row.mean, 4),
             "" if row.deviation is None else number_text(row.deviation, 2), str(len(row.values))],
            False,
        )
        for row in rows[:COUNTED]
    ]  # fmt: skip
    means = ("counter", "configuration", "mean", "deviation", "runs")
    _print_columns(f"{found.load}: counted per packet", means, cells)
    left = len(rows) - len(cells)
    pairs = sorted(found.counters.comparisons, key=lambda pair: (pair.p_corrected, pair.p))
    shown = [pair for pair in pairs if pair.difference_low is not None][:PRINTED]
    told = [
        (
            [pair.counter, pair.second, pair.first, pair.answer,
             _between(pair.difference, pair.difference_low, pair.difference_high, signed=True),
             _between(pair.ratio, pair.ratio_low, pair.ratio_high),
             f"{pair.p_corrected:.2g}"],
            pair.answer == "not shown",
        )
        for pair in shown
    ]  # fmt: skip
    heads = ("counter", "configuration", "against", "is", "per packet (95 %)", "ratio (95 %)",
             "corrected")  # fmt: skip
    if told:
        _print_columns("differences of what was counted", heads, told)
    elif pairs:
        say(f"differences of what was counted: {len(pairs)}, all with too few repeats")
    left += len(pairs) - len(shown) if told else 0
    if left:
        say(f"and {left} more: --json has all")
    say()


def _between(
    middle: float | None, low: float | None, high: float | None, *, signed: bool = False
) -> str:
    from tailtap.analysis.runs.text import number_text

    if middle is None or low is None or high is None:
        return ""
    first, least, most = (number_text(value, signed=signed) for value in (middle, low, high))
    return f"{first} ({least} to {most})"


def _print_traits(loads: Sequence[LoadRow]) -> None:
    from tailtap.analysis.compare.significance import rank_text

    found: list[tuple[str, str, Configured]] = []
    for load in loads:
        found += [(load.load, rank_text(one.rank), one) for one in load.configurations]
        found += [(load.load, "", one) for one in load.unranked]
    rows = [(_trait_cells(*row), False) for row in found if row[-1].resources]
    title = "other than latency (isolation is a judgement, not a measurement)"
    _print_columns(title, TRAITS, rows)
    say()


def _trait_cells(load: str, rank: str, found: Configured) -> Sequence[str]:
    """The cells of one configuration under `TRAITS`."""
    from tailtap.records.compare import Resources

    used = found.resources or Resources()
    cache, summary = found.cache, found.predictability
    bursts, bounded = (summary.bursts_above, summary.bounded) if summary else (None, None)
    busy = "" if used.cpus is None else f"{used.cpus:.2f} of {used.reserved}"
    virtual = " (virtual)" if cache and cache.virtual else ""
    return (
        found.label,
        load,
        rank,
        f"{summary.models} of {summary.runs}" if summary else "",
        "" if bursts is None else f"{bursts:.2f}",
        "" if bounded is None else f"{bounded:.0%}",
        busy,
        "" if used.cpu_ns is None else f"{used.cpu_ns / 1000:.2f}",
        "" if used.memory is None else f"{used.memory / 1e6:,.1f} MB",
        "" if used.watts is None else f"{used.watts:,.1f} W",
        f"{cache.layout}{virtual}" if cache else "",
        found.isolation.grade if found.isolation else "",
    )
