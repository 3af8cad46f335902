"""A tail model as the JSON object of `tail.json`; docs/files.md describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeAlias

from tailtap.tail.analysis import TailModel
from tailtap.tail.assessment import Assessment, Level
from tailtap.tail.blocks import CrossCheck
from tailtap.tail.papers import PapersFit
from tailtap.tail.peaks import Threshold
from tailtap.tail.words import level_words

Json: TypeAlias = dict[str, Any]

SCHEMA = "tailtap.tail/1"


def record(model: TailModel) -> Json:
    """The object of `tail.json`. Latencies are in ns; what there is not, is null."""
    tail = model.tail
    return {
        "schema": SCHEMA,
        "run": tail.name,
        "packets": {
            "matched": tail.packets,
            "lost": tail.lost,
            "fitted": model.fitted.packets,
            "checked": model.rest.packets,
        },
        "rate": tail.rate,
        "tick_ns": model.tick,
        **({"within_ns": tail.within_ns} if tail.within_ns else {}),
        "fit": model.options.fit,
        "stationarity": [
            {**asdict(test), "stationary": test.stationary, "unit_root": test.unit_root}
            for test in model.stationarity
        ],
        "thresholds": [_assessment(found) for found in model.assessments],
        "chosen": None if model.chosen is None else model.chosen.threshold.text,
        "levels": [
            {
                "horizon_ns": entry.horizon_ns,
                "words": level_words(entry.horizon_ns, tail.rate, entry.level),
                "level": _level(entry.level),
            }
            for entry in model.levels
        ],
        "block_maxima": _block_maxima(model.block_maxima),
        "papers": {
            "thresholds": [_papers(found) for found in model.papers],
            "chosen": None if model.papers_chosen is None else model.papers_chosen.threshold.text,
        },
        "warnings": [warning._asdict() for warning in model.warnings],
    }


def _threshold(threshold: Threshold) -> Json:
    return {"threshold": threshold.text, "percentile": threshold.percentile}


def _level(level: Level | None) -> Json | None:
    if level is None:
        return None
    return {
        "packets": level.packets,
        "value": level.value,
        "low": level.low,
        "high": level.high,
    }


def _assessment(found: Assessment) -> Json:
    fit, bursts, check = found.fit, found.bursts, found.check
    low, high = found.xi_interval or (None, None)
    return {
        **_threshold(found.threshold),
        "latency_ns": found.latency,
        "exceedances": found.exceedances,
        "bursts": bursts.count if bursts else None,
        "extremal_index": bursts.extremal_index if bursts else None,
        "run_length": bursts.run_length if bursts else None,
        "xi": None if fit is None else {"value": fit.xi, "low": low, "high": high},
        "sigma_ns": fit.sigma if fit else None,
        "limit_ns": found.limit,
        "anderson_darling": asdict(found.goodness) if found.goodness else None,
        "jensen_shannon": found.divergence,
        "check": None
        if check is None
        else {
            "level": _level(check.level),
            "packets_above": check.packets,
            "bursts_above": check.bursts,
            "bursts_above_interval": check.beyond,
        },
        "refused": found.refused,
        "flags": [flag._asdict() for flag in found.flags],
    }


def _papers(found: PapersFit) -> Json:
    return {
        **_threshold(found.threshold),
        "latency_ns": found.latency,
        "exceedances": found.exceedances,
        "xi": found.xi,
        "sigma_ns": found.sigma,
        "jensen_shannon": found.divergence,
        "level_ns": found.level,
        "limit_ns": found.limit,
        "bounded": found.bounded,
        "packets_above": found.above,
        "bursts_above": found.bursts,
    }


def _block_maxima(cross: CrossCheck | None) -> Json | None:
    if cross is None:
        return None
    low, high = cross.interval or (None, None)
    return {
        "width_ns": cross.width_ns,
        "blocks": cross.gev.n,
        "mu_ns": cross.gev.mu,
        "sigma_ns": cross.gev.sigma,
        "xi": cross.gev.xi,
        "level": {"packets": cross.packets, "value": cross.level, "low": low, "high": high},
    }
