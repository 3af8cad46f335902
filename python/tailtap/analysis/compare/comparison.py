"""`compare_runs`: the library function behind `tailtap compare`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from tailtap.analysis.compare.checks import advise, check
from tailtap.analysis.compare.configurations import Configuration, Load, exclusions, gather
from tailtap.analysis.compare.ranking import RULE, Pair, Ranking, Standing, needed, rank
from tailtap.analysis.compare.resources import common_cache, counters, judge, resources
from tailtap.analysis.compare.significance import ALPHA, percentile_text, ratio_text
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.runs.run import Run
from tailtap.analysis.tail import analyse
from tailtap.analysis.tail.runs import sum_up
from tailtap.analysis.undisturbed import undisturbed_run
from tailtap.analysis.verdict.runs import required_percentiles
from tailtap.base.errors import InputError
from tailtap.base.units import format_count, format_share
from tailtap.records import compare
from tailtap.records.compare import CompareRecord, Configured, LoadRow, PairRow
from tailtap.records.record import Notice

_REASONS = 3


def compare_runs(
    sources: Sequence[tuple[str, Path]],
    percentile: float | None = None,
    *,
    undisturbed: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> CompareRecord:
    """Compare the configurations of runs, each of `sources` a name (or "") and a path.

    A path is a run, an experiment, what `tailtap evaluate --out` wrote, or a folder or database
    with imported results; runs of one name are repeats of each other where nothing was varied.
    `percentile` (0 to 1; 1 is the maximum) is what configurations are ranked by. When not given, it
    is what their experiment files require, or the highest that all of them support. With
    `undisturbed`, the latencies without pauses from outside are compared; runs of which these are
    not shown are left out. Raises `InputError` when there is nothing to compare.
    """
    runs = read(sources, progress)
    if undisturbed:
        runs = [undisturbed_run(run) for run in runs]
    required = set() if percentile else required_percentiles(path for _, path in sources)
    found = compare_loaded(runs, percentile, required=required, progress=progress)
    found.undisturbed = undisturbed
    return found


def compare_loaded(
    runs: Sequence[Run],
    percentile: float | None = None,
    *,
    required: Collection[float] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> CompareRecord:
    """The same for runs that have been read, and of which these percentiles are `required`."""
    loads = gather(runs)
    _require_two(runs, loads)
    progress("comparing")
    rankings = rank(loads, percentile, required)
    if all(ranking.reason for ranking in rankings):
        reasons = dict.fromkeys(f"{found.load.label}: {found.reason}" for found in rankings)
        raise InputError(f"nothing can be ranked: {'; '.join(list(reasons)[:_REASONS])}")
    rows, damage = [load_record(ranking) for ranking in rankings], list[Notice]()
    told = counters([ranking.load for ranking in rankings])
    for ranking, row, counted in zip(rankings, rows, told, strict=True):
        row.counters = counted
        ranked = [one.configuration for one in ranking.standings]
        for configuration, one in zip(ranked, row.configurations, strict=True):
            _describe(one, configuration, progress, damage)
        for configuration, left in zip(ranking.unranked, row.unranked, strict=True):
            if configuration.runs:
                _describe(left, configuration, progress, damage)
    return CompareRecord(
        alpha=ALPHA,
        worst_repeat=RULE,
        loads=rows,
        recommendations=check(rankings),
        advice=advise(rankings),
        repeats_needed=needed(rankings),
        warnings=[*_warnings(runs, rankings, required), *damage],
    )


def _require_two(runs: Sequence[Run], loads: Sequence[Load]) -> None:
    if any(len(load.ranked) > 1 for load in loads):
        return
    good = [(load, configuration) for load in loads for configuration in load.ranked]
    left = "; ".join(exclusions(runs))
    why = f" (left out: {left})" if left else ""
    labels = list(dict.fromkeys(configuration.label for _, configuration in good))
    if not good:
        raise InputError(f"no run of a device can be compared{why}; measure again, or give others")
    floors = {found.label for load in loads for found in load.configurations if found.wire}
    if len(labels) == 1 and floors:
        raise InputError(
            f"there is only one device, {labels[0]}{why}: wire is the lab without a device, the "
            "floor of a measurement, and is not compared; add runs of another device"
        )
    if len(labels) == 1:
        raise InputError(
            f"there is only one configuration with good runs, {labels[0]}{why}: nothing to compare "
            "it with; give runs that differ in more than the repeat and the traffic"
        )
    told = "; ".join(f"{configuration.label} at {load.label}" for load, configuration in good[:4])
    raise InputError(
        f"the runs are of different traffic ({told}){why}: no two configurations had the same "
        "load; measure them at the same traffic.rate, size and pattern"
    )


def _describe(
    row: Configured,
    configuration: Configuration,
    progress: Callable[[str], None],
    damage: list[Notice],
) -> None:
    """Say what is known besides latency; `damage` is told which tails cannot be read."""
    runs, models = configuration.runs, []
    for run in runs:
        if not isinstance(run.evaluation, Evaluation):
            continue  # imported, or without the time around pauses
        progress(f"{run.slug}: its tail model")
        try:
            models.append(analyse(run.tail))
        except InputError as error:
            damage.append(Notice("no-tail", str(error)))
    if models:
        tails = sum_up(configuration.label, models)
        row.predictability = compare.Predictability(
            runs=tails.runs,
            models=tails.models,
            bursts_above=tails.bursts,
            bounded=tails.bounded,
            papers_bursts_above=tails.papers_bursts,
            papers_bounded=tails.papers_bounded,
        )
    row.resources, row.cache = resources(runs), common_cache(runs)
    row.isolation = judge(configuration.traits, row.cache.layout if row.cache else None)


def _warnings(
    runs: Sequence[Run], rankings: Sequence[Ranking], required: Collection[float]
) -> Iterator[Notice]:
    yield from doubts(runs)
    for ranking in rankings:
        yield from notices(ranking)
        if required and ranking.chosen_by == "support" and not ranking.reason:
            asked = ", ".join(percentile_text(p) for p in sorted(required))
            yield Notice(
                "few-samples",
                f"{ranking.load.label}: {asked} is required, and not every run has ten packets "
                f"above it: ranked by {percentile_text(ranking.percentile)}",
            )


def doubts(runs: Sequence[Run]) -> Iterator[Notice]:
    """Which runs are left out, and which warnings the others have."""
    for left in exclusions(runs):
        yield Notice("left-out", f"left out: {left}")
    codes = Counter(
        code
        for run in runs
        if not run.excluded
        for code in {warning.code for warning in run.all_warnings}
    )
    for code, count in sorted(codes.items()):
        yield Notice("doubts", f"{format_count(count, 'run')} with the warning {code}")


def notices(ranking: Ranking) -> Iterator[Notice]:
    """What makes the ranking under one load doubtful."""
    where, p = ranking.load.label, percentile_text(ranking.percentile)
    if ranking.reason:
        yield Notice("no-ranking", f"{where}: {ranking.reason}")
        return
    for standing in ranking.standings:
        for value in standing.values:
            if value.latency is None:
                loss = value.run.loss or 0.0
                failed = value.run.gone > loss
                told = f"{'failed for' if failed else 'lost'} {format_share(value.run.gone)}"
                text = (
                    f"{value.run.slug} {told}, more than lie above {p}; their latencies are "
                    "unknown, so it ranks behind all others"
                )
                yield Notice("requests-failed", text) if failed else Notice("loss", text)
            elif value.run.gone > (value.run.loss or 0.0):
                yield Notice(
                    "requests-failed",
                    f"{value.run.slug} failed for {format_share(value.run.gone)} of its requests: "
                    "it is ranked by its answers alone",
                )
        twins = Counter(
            (one.packets, one.lost, value.latency, one.maximum)
            for value in standing.values
            if (one := value.run).packets is not None
        )
        same = sum(count for count in twins.values() if count > 1)
        if same:
            yield Notice(
                "equal-repeats",
                f"{where}: {same} repeats of {standing.configuration.label} are equal to the "
                "nanosecond: copies of a run add nothing",
            )
    few = [v for s in ranking.standings for v in s.values if v.supported is False]
    if few:
        yield Notice(
            "few-samples",
            f"{where}: fewer than ten packets lie above {p} in {len(few)} runs: it is not to be "
            "relied on",
        )
    untold = [v for s in ranking.standings for v in s.values if v.supported is None]
    if untold:
        yield Notice(
            "unknown-samples",
            f"{where}: {len(untold)} runs do not say how many packets they are of",
        )
    machines = {s.configuration.aspects.get("machine", "unknown") for s in ranking.standings}
    if len(machines) > 1:
        yield Notice(
            "different-machines",
            f"{where}: the runs are from different machines ({'; '.join(sorted(machines))}): what "
            "differs may be the machine",
        )
    untestable = [pair for pair in ranking.pairs if pair.least > ALPHA]
    if untestable:
        repeats = [len(standing.values) for standing in ranking.standings]
        yield Notice(
            "few-repeats",
            f"{where}: too few repeats ({min(repeats)}) for {len(untestable)} of "
            f"{format_count(len(ranking.pairs), 'comparison')}, whatever the latencies",
        )


def read(
    sources: Sequence[tuple[str, Path]], progress: Callable[[str], None] = lambda _: None
) -> list[Run]:
    """The runs of all `sources`, each a name (or "") and a path; none is read twice.

    Raises `InputError` when a path holds no runs, or some that cannot be read.
    """
    found: dict[object, Run] = {}
    for name, path in sources:
        progress(f"reading {path}")
        experiment = read_runs(path)
        if experiment.warnings:
            raise InputError(experiment.warnings[0].message)
        for run in experiment.runs:
            found.setdefault(_identity(run), replace(run, alias=name))
    return list(found.values())


def _identity(run: Run) -> object:
    if run.folder is not None:
        return run.folder.resolve()
    return run.root, run.slug, run.origin.source if run.origin else ""


def load_record(ranking: Ranking) -> LoadRow:
    """The configurations under one load, by their latency."""
    percentile = None if math.isnan(ranking.percentile) else ranking.percentile
    labels, pairs = [one.configuration.label for one in ranking.standings], ranking.pairs
    rows = [_standing(standing) for standing in ranking.standings]
    for place, row in enumerate(rows):
        row.over_first = ratio_text(ranking.over(place, 0)) if place and pairs else None
    return LoadRow(
        load=ranking.load.label,
        traffic=dict(ranking.load.load),
        percentile=percentile,
        percentile_text=None if percentile is None else percentile_text(percentile),
        percentile_by=None if percentile is None else ranking.chosen_by,
        configurations=rows,
        floors=[_standing(standing) for standing in ranking.floors],
        unranked=[_configured(left) for left in ranking.unranked],
        comparisons=[_pair(pair, ranking, labels) for pair in pairs],
        reason=ranking.reason or None,
    )


def _configured(found: Configuration) -> Configured:
    left_out = [compare.LeftOut(run=run.slug, reason=run.excluded or "") for run in found.excluded]
    return Configured(
        label=found.label,
        imported=found.imported,
        aspects=dict(found.aspects),
        left_out=left_out,
    )


def _standing(standing: Standing) -> compare.Standing:
    worst, best, last = standing.worst, standing.best, standing.last
    return compare.Standing(
        **structs.asdict(_configured(standing.configuration)),
        rank=None if best is None or last is None else compare.Rank(best=best, last=last),
        worst=None if worst is None else worst.run.slug,
        repeats=[value.row for value in standing.values],
        worst_first=[
            standing.values.index(value)
            for value in sorted(standing.values, key=lambda value: value.order, reverse=True)
        ],
    )


def _pair(pair: Pair, ranking: Ranking, labels: list[str]) -> PairRow:
    first, second = ranking.given(pair)
    return PairRow(
        first=labels[first],
        second=labels[second],
        answer=ranking.answer(pair),
        second_over_first=ratio_text(ranking.over(second, first)),
        slower=labels[pair.slower],
        faster=labels[pair.faster],
        p=pair.p,
        p_corrected=pair.corrected,
        smallest_p=pair.least,
        significant=pair.significant,
        ratio=pair.shift.ratio,
        ratio_low=pair.shift.low,
        ratio_high=pair.shift.high,
        ratio_text=ratio_text(pair.shift),
        shift_ns=pair.shift.difference,
        runs_apart=pair.apart,
    )
