"""What `tailtap compare --json` prints, made of a comparison or of a change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from tailtap.analysis.compare.comparison import Comparison, Traits
from tailtap.analysis.compare.configurations import Configuration
from tailtap.analysis.compare.ranking import RULE, Pair, Ranking, Standing
from tailtap.analysis.compare.significance import ALPHA, percentile_text, ratio_text
from tailtap.records import compare
from tailtap.records.compare import CompareRecord, LoadRow, PairRow


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
        "repeats": [value.row for value in standing.values],
        "worst_first": [
            standing.values.index(value)
            for value in sorted(standing.values, key=lambda value: value.order, reverse=True)
        ],
    }


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
