"""The JSON object of `tailtap compare --json`; docs/reference/files.md describes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import msgspec

from tailtap.analysis.compare import isolation
from tailtap.analysis.compare.comparison import Comparison, Traits
from tailtap.analysis.compare.configurations import Configuration
from tailtap.analysis.compare.ranking import RULE, Pair, Ranking, Standing, Value
from tailtap.analysis.compare.significance import ALPHA
from tailtap.analysis.compare.words import percentile_text, ratio_text

Json: TypeAlias = dict[str, Any]

SCHEMA = "tailtap.compare/1"


def record(found: Comparison) -> Json:
    """The object that `tailtap compare --json` prints. Latencies are in ns."""
    return {
        "schema": SCHEMA,
        "alpha": ALPHA,
        "worst_repeat": RULE,
        "loads": [load_record(ranking, found.traits) for ranking in found.rankings],
        "recommendations": [
            {
                "name": check.name,
                "advice": check.advice,
                "answer": check.answer,
                "because": check.because,
            }
            for check in found.checks
        ],
        "advice": list(found.advice),
        "repeats_needed": found.repeats_needed,
        "warnings": msgspec.to_builtins(found.warnings),
    }


def load_record(ranking: Ranking, found: Sequence[Traits] = ()) -> Json:
    """The configurations under one load, with what is known of them besides their latency."""
    traits = {id(entry.configuration): entry for entry in found}
    percentile = None if math.isnan(ranking.percentile) else ranking.percentile
    labels, pairs = [one.configuration.label for one in ranking.standings], ranking.pairs
    return {
        "load": ranking.load.label,
        "traffic": dict(ranking.load.load),
        "percentile": percentile,
        "percentile_text": None if percentile is None else percentile_text(percentile),
        "percentile_by": None if percentile is None else ranking.chosen_by,
        "configurations": [
            {
                **_standing(standing, traits.get(id(standing.configuration))),
                "over_first": ratio_text(ranking.over(place, 0)) if place and pairs else None,
            }
            for place, standing in enumerate(ranking.standings)
        ],
        "floors": [_standing(standing, None) for standing in ranking.floors],
        "unranked": [
            {**_configuration(left), **_traits(traits.get(id(left)))} for left in ranking.unranked
        ],
        "comparisons": [_pair(pair, ranking, labels) for pair in pairs],
        "reason": ranking.reason or None,
    }


def _configuration(found: Configuration) -> Json:
    return {
        "label": found.label,
        "imported": found.imported,
        "aspects": dict(found.aspects),
        "left_out": [{"run": run.slug, "reason": run.excluded} for run in found.excluded],
    }


def _standing(standing: Standing, traits: Traits | None) -> Json:
    worst = standing.worst
    return {
        **_configuration(standing.configuration),
        "rank": None if standing.best is None else {"best": standing.best, "last": standing.last},
        "worst": None if worst is None else worst.run.slug,
        "repeats": [_value(value) for value in standing.values],
        "worst_first": [
            standing.values.index(value)
            for value in sorted(standing.values, key=lambda value: value.order, reverse=True)
        ],
        **_traits(traits),
    }


def _value(value: Value) -> Json:
    run, interval = value.run, value.interval
    return {
        "run": run.slug,
        "number": run.number,
        "repeat": run.repeat,
        "source": run.origin.source if run.origin else str(run.folder),
        "packets": run.packets,
        "lost": run.lost,
        "loss": run.loss,
        "latency": value.latency,
        "supported": value.supported,
        "interval": None if interval.low is None else {"low": interval.low, "high": interval.high},
        "no_interval": interval.reason or None,
        "max": run.maximum,
        **({"within_ns": run.within_ns} if run.within_ns else {}),
    }


def _traits(traits: Traits | None) -> Json:
    if traits is None:
        return {}
    summary, judged = traits.predictability, traits.isolation
    return {
        "predictability": None
        if summary is None
        else {
            "runs": summary.runs,
            "models": summary.models,
            "bursts_above": summary.bursts,
            "bounded": summary.bounded,
            "papers_bursts_above": summary.papers_bursts,
            "papers_bounded": summary.papers_bounded,
        },
        "resources": asdict(traits.resources),
        "cache": isolation.as_json(traits.cache),
        "isolation": None
        if judged is None
        else {"grade": judged.grade, "judgement": True, "reason": judged.reason},
    }


def _pair(pair: Pair, ranking: Ranking, labels: list[str]) -> Json:
    """A comparison: `slower` and `faster` by their medians, `first` and `second` as given."""
    first, second = ranking.given(pair)
    return {
        "first": labels[first],
        "second": labels[second],
        "answer": ranking.answer(pair),
        "second_over_first": ratio_text(ranking.over(second, first)),
        "slower": labels[pair.slower],
        "faster": labels[pair.faster],
        "p": pair.p,
        "p_corrected": pair.corrected,
        "smallest_p": pair.least,
        "significant": pair.significant,
        "ratio": pair.shift.ratio,
        "ratio_low": pair.shift.low,
        "ratio_high": pair.shift.high,
        "ratio_text": ratio_text(pair.shift),
        "shift_ns": pair.shift.ns,
        "runs_apart": pair.apart,
    }
