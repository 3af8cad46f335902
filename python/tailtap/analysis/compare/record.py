"""What `tailtap compare --json` prints, made of a comparison or of a change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from tailtap.analysis.compare.comparison import Comparison, Traits
from tailtap.analysis.compare.configurations import Configuration
from tailtap.analysis.compare.gate import ALPHA as ALPHA_GATE
from tailtap.analysis.compare.gate import ALPHA_NO_WORSE, ORDER, Gate, Judged
from tailtap.analysis.compare.ranking import RULE, Pair, Ranking, Standing, Value
from tailtap.analysis.compare.significance import ALPHA, percentile_text, ratio_text
from tailtap.records import compare
from tailtap.records.compare import CompareRecord, GateRecord, GateRow, LoadRow, PairRow, RepeatRow


def record(found: Comparison) -> CompareRecord:
    """What `tailtap compare --json` prints."""
    return CompareRecord(
        alpha=ALPHA,
        worst_repeat=RULE,
        undisturbed=found.undisturbed,
        loads=[
            structs.replace(load_record(ranking, found.traits), counters=counted)
            for ranking, counted in zip(found.rankings, found.counters, strict=True)
        ],
        recommendations=list(found.checks),
        advice=list(found.advice),
        repeats_needed=found.repeats_needed,
        warnings=list(found.warnings),
    )


def gate_record(found: Gate) -> GateRecord:
    """What `tailtap compare --worse-than --json` prints."""
    return GateRecord(
        answer=found.answer,
        answers={name: [row.answer for row in found.rows].count(name) for name in ORDER},
        base=found.base,
        new=found.new,
        margin=found.margin,
        alpha=ALPHA_GATE,
        alpha_no_worse=ALPHA_NO_WORSE,
        rows=[_gate_row(row) for row in found.rows],
        warnings=list(found.warnings),
    )


def _gate_row(row: Judged) -> GateRow:
    known, ratio = not math.isnan(row.percentile), row.ratio
    return GateRow(
        configuration=row.configuration,
        load=row.load,
        percentile=row.percentile if known else None,
        percentile_text=percentile_text(row.percentile) if known else "",
        answer=row.answer,
        reason=row.reason,
        base=[_value(value) for value in row.base.values] if row.base else [],
        new=[_value(value) for value in row.new.values] if row.new else [],
        ratio=ratio.ratio if ratio else None,
        ratio_low=ratio.low if ratio else None,
        ratio_high=ratio.high if ratio else None,
        p_worse=row.p_worse,
        p_no_worse=row.p_no_worse,
        p_better=row.p_better,
        repeats_needed=row.needed,
    )


def load_record(ranking: Ranking, found: Sequence[Traits] = ()) -> LoadRow:
    """The configurations under one load, with what is known of them besides their latency."""
    traits = {id(entry.configuration): entry for entry in found}
    percentile = None if math.isnan(ranking.percentile) else ranking.percentile
    labels, pairs = [one.configuration.label for one in ranking.standings], ranking.pairs
    return LoadRow(
        load=ranking.load.label,
        traffic=dict(ranking.load.load),
        percentile=percentile,
        percentile_text=None if percentile is None else percentile_text(percentile),
        percentile_by=None if percentile is None else ranking.chosen_by,
        configurations=[
            compare.Standing(
                **_standing(standing),
                **_traits(traits.get(id(standing.configuration))),
                over_first=ratio_text(ranking.over(place, 0)) if place and pairs else None,
            )
            for place, standing in enumerate(ranking.standings)
        ],
        floors=[compare.Standing(**_standing(standing)) for standing in ranking.floors],
        unranked=[
            compare.Configured(**_configuration(left), **_traits(traits.get(id(left))))
            for left in ranking.unranked
        ],
        comparisons=[_pair(pair, ranking, labels) for pair in pairs],
        reason=ranking.reason or None,
    )


def _configuration(found: Configuration) -> dict[str, Any]:
    return {
        "label": found.label,
        "imported": found.imported,
        "aspects": dict(found.aspects),
        "left_out": [
            compare.LeftOut(run=run.slug, reason=run.excluded or "") for run in found.excluded
        ],
    }


def _standing(standing: Standing) -> dict[str, Any]:
    worst, best, last = standing.worst, standing.best, standing.last
    return {
        **_configuration(standing.configuration),
        "rank": None if best is None or last is None else compare.Rank(best=best, last=last),
        "worst": None if worst is None else worst.run.slug,
        "repeats": [_value(value) for value in standing.values],
        "worst_first": [
            standing.values.index(value)
            for value in sorted(standing.values, key=lambda value: value.order, reverse=True)
        ],
    }


def _value(value: Value) -> RepeatRow:
    run, low, high = value.run, value.interval.low, value.interval.high
    return RepeatRow(
        run=run.slug,
        number=run.number,
        repeat=run.repeat,
        source=run.origin.source if run.origin else str(run.folder),
        packets=run.packets,
        lost=run.lost,
        loss=run.loss,
        latency=value.latency,
        supported=value.supported,
        interval=None if low is None or high is None else compare.Within(low=low, high=high),
        no_interval=value.interval.reason or None,
        max=run.maximum,
        within_ns=run.within_ns,
    )


def _traits(traits: Traits | None) -> dict[str, Any]:
    if traits is None:
        return {}
    summary = traits.predictability
    return {
        "predictability": None
        if summary is None
        else compare.Predictability(
            runs=summary.runs,
            models=summary.models,
            bursts_above=summary.bursts,
            bounded=summary.bounded,
            papers_bursts_above=summary.papers_bursts,
            papers_bounded=summary.papers_bounded,
        ),
        "resources": traits.resources,
        "cache": traits.cache,
        "isolation": traits.isolation,
    }


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
