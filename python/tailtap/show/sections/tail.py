"""What tail models of runs predict, and what is known without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.tail.analysis import OF_RUN
from tailtap.base.units import exact_time, format_rate, format_share, format_us, format_wait
from tailtap.records.tail import (
    ExpectedRecord,
    ModelledRun,
    PapersThreshold,
    RepeatsRow,
    ThresholdRecord,
)
from tailtap.show.sections import COUNT, TIME, Column, Row, Section, Table, row, table

THRESHOLDS = (
    Column("threshold", right=True),
    Column("us", TIME),
    Column("packets", COUNT, spare=5),
    Column("clusters", COUNT),
    Column("index", right=True, spare=7),
    Column("xi (95 %)", right=True, wrap=8),
    Column("sigma", TIME, spare=6),
    Column("A² p", right=True, spare=2),
    Column("JS", right=True, spare=4),
    Column("limit", TIME, spare=3),
    Column("level", TIME),
    Column("above", COUNT, spare=1),
    Column("warnings", wrap=20),
)
PAPERS = (
    Column("threshold", right=True),
    Column("us", TIME),
    Column("packets", COUNT, spare=2),
    Column("xi", right=True),
    Column("sigma", TIME, spare=3),
    Column("JS", right=True, spare=4),
    Column("level", TIME),
    Column("limit", TIME, spare=1),
    Column("packets above", COUNT),
    Column("clusters above", COUNT),
)


def model_sections(found: ModelledRun) -> Iterator[Section]:
    """The model of a run, and what each horizon brings, whether a model holds or not."""
    rows = [
        row(_marked(one.threshold, found.chosen), *_threshold(one),
            look="present" if one.refused else "")
        for one in found.thresholds
    ]  # fmt: skip
    yield _section(found, table("latencies", THRESHOLDS, rows), _fitted(found))
    names = [exact_time(one.horizon_ns) for one in found.forecasts]
    yield Section("", [], [_forecasts(found, names)], [*_chances(found, names), *_warnings(found)])


def papers_section(found: ModelledRun) -> Section:
    """The published method on a run."""
    rows = [_published(one, found.papers.chosen) for one in found.papers.thresholds]
    shown = table("latencies, by the published method", PAPERS, rows)
    return _section(found, shown, _warnings(found, of_run=True))


def repeats_table(rows: Sequence[RepeatsRow], *, papers: bool) -> Table:
    """How well the models of the repeats of each configuration predict."""
    columns = (
        Column("configuration", wrap=16),
        *(Column(name, right=True) for name in ("runs", "models", "clusters above", "bounded")),
    )
    shown = (
        (one, one.papers_bursts, one.papers_bounded) if papers else (one, one.bursts, one.bounded)
        for one in rows
    )
    return table(
        "over repeats (1 cluster is expected above)",
        columns,
        (
            row(
                one.label,
                str(one.runs),
                "" if papers else str(one.models),
                None if bursts is None else f"{bursts:.2f}",
                None if bounded is None else format_share(bounded),
            )
            for one, bursts, bounded in shown
        ),
    )


def _section(found: ModelledRun, shown: Table, notes: Iterator[str]) -> Section:
    packets, within = found.packets, Within(found.within_ns, found.resolution_ns)
    heading = (
        f"{packets.matched:,} packets at {format_rate(found.rate)}, "
        f"the first {packets.fitted:,} fitted, {packets.checked:,} checked"
        + (f", {within.text}" if within.ns else "")
    )
    name = f"{found.run} (invalid)" if found.valid is False else found.run
    return Section(name, [heading], [shown], list(notes))


def _marked(threshold: str, chosen: str | None) -> str:
    return f"> {threshold}" if threshold == chosen else threshold


def _threshold(one: ThresholdRecord) -> tuple[object, ...]:
    """What is known of one threshold, behind its name."""
    xi, check, goodness = one.xi, one.check, one.anderson_darling
    interval = "" if not xi or xi.low is None else f" ({xi.low:.2f} to {xi.high:.2f})"
    divergence = one.jensen_shannon
    return (
        one.latency_ns,
        None if one.latency_ns is None else one.exceedances,
        one.bursts or None,
        f"{one.extremal_index:.2f}" if one.bursts else None,
        f"{xi.value:.2f}{interval}" if xi else None,
        one.sigma_ns,
        f"{goodness.p:.3f}" if goodness else None,
        None if divergence is None else f"{divergence:.4f}",
        "none" if one.limit_ns is None and xi and not one.refused else one.limit_ns,
        check and check.level.value,
        check and check.bursts_above,
        ", ".join(flag.code for flag in one.flags),
    )


def _published(one: PapersThreshold, chosen: str | None) -> Row:
    if one.xi is None or one.jensen_shannon is None:
        return row(one.threshold, one.latency_ns, one.exceedances, "no fit")
    return row(
        _marked(one.threshold, chosen),
        one.latency_ns,
        one.exceedances,
        f"{one.xi:.6f}",
        one.sigma_ns,
        f"{one.jensen_shannon:.4f}",
        one.level_ns,
        "none" if one.limit_ns is None else one.limit_ns,
        one.packets_above,
        one.bursts_above,
    )


def _fitted(found: ModelledRun) -> Iterator[str]:
    """Whether the run is stationary, and what the model says of horizons."""
    for test in found.stationarity:
        word = "stationary" if test.stationary else "maybe not stationary"
        word = "not stationary" if test.unit_root else word
        p = test.kpss_p  # of a table that ends at 0.01 and 0.1
        kpss = "<= 0.01" if p <= 0.01 else ">= 0.1" if p >= 0.1 else f"{p:.2g}"
        yield f"{word}: {test.length} {test.series}, ADF p {test.adf_p:.2g}, KPSS p {kpss}"
    if (cross := found.block_maxima) is not None:
        once = ""
        if (level := cross.level) is not None:
            ends = "no interval"
            if level.low is not None:
                ends = f"{format_us(level.low)} to {format_us(level.high)}"
            once = f", once in {level.packets:,.0f} packets {format_us(level.value)} us ({ends})"
        yield f"block maxima: {cross.blocks} blocks, xi {cross.xi:.2f}{once}"
    yield from (one.words for one in found.levels)


def _forecasts(found: ModelledRun, names: Sequence[str]) -> Table:
    columns = (
        Column("over", TIME),
        Column("packets", COUNT),
        Column("clusters", COUNT),
        *(Column(f"in {name}", right=True) for name in names),
    )
    rows = (
        row(levels[0].level_ns, levels[0].packets, levels[0].events,
            *(_expected(one.expected_packets) for one in levels))
        for levels in zip(*(one.levels for one in found.forecasts), strict=True)
    )  # fmt: skip
    title = "without a model: packets over a latency, and how many to expect (95 %)"
    return table(title, columns, rows)


def _expected(cell: ExpectedRecord) -> str:
    """An interval of three digits, which is more than is known."""
    low, high = (f"{float(f'{end:.3g}'):,.0f}" for end in (cell.low, cell.high))
    return f"{low} to {high}" if cell.supported else f"({low} to {high})"


def _chances(found: ModelledRun, names: Sequence[str]) -> Iterator[str]:
    levels = (level for one in found.forecasts for level in one.levels)
    if not all(level.expected_packets.supported for level in levels):
        yield "(…): too few clusters for 95 %, or they come unevenly"
    for name, one in zip(names, found.forecasts, strict=True):
        share = one.exceeded  # never called certain
        chance = "more than 99.9 %" if share > 0.999 else format_share(share)
        yield (
            f"{name}: some packet is later than the run's maximum with {chance} probability; what "
            f"the run did not show comes at most {one.unseen:,} times (95 %); the maximum of a run "
            f"of {format_wait(one.needed_ns / 1e9)} would hold for {name} (95 %)"
        )


def _warnings(found: ModelledRun, *, of_run: bool = False) -> Iterator[str]:
    """All warnings, or only those `of_run`: of the measurement, whatever the method."""
    for warning in found.warnings:
        if not of_run or warning.code in OF_RUN:
            yield f"  {warning.message} [{warning.code}]"
