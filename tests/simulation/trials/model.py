"""The tail model of whole runs: right where it gives a number, and none where none can be right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.runs.tail import SECOND_NS
from tailtap.analysis.tail import Options, StoredTail, TailModel, analyse
from tailtap.analysis.tail.analysis import record
from tailtap.analysis.tail.peaks import Threshold
from tailtap.records.record import printed
from tests.simulation.draw import Draw
from tests.simulation.latencies import Floats, Law, pareto, shares, stored
from tests.simulation.trial import Tally, Trial

RATE = 10_000
NEAR_NS, HORIZON_NS = 1_000_000, 20 * SECOND_NS
"""In the first no cluster over a threshold is expected."""


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a run, whose half is fitted, and the reasons of which one says so."""

    change: Callable[[Floats, np.random.Generator], Floats]
    reasons: frozenset[str]
    lost: int = 0
    fit: float = 0.5


def constant(latency: Floats, random: np.random.Generator) -> Floats:
    return np.full(latency.size, 5_000.0)


def coarse(latency: Floats, random: np.random.Generator) -> Floats:
    """A step of four scales of the tail, or of eight."""
    step = random.choice([4_000, 8_000])
    return np.asarray(np.rint(latency / step) * step)


def drifting(latency: Floats, random: np.random.Generator) -> Floats:
    return latency + np.linspace(0, 10 * latency.std(), latency.size)


def stalled(latency: Floats, random: np.random.Generator) -> Floats:
    """Stalls that are too few for a model of their own."""
    late = random.random(latency.size) < 2e-3
    return latency + late * random.normal(60_000, 3_000, latency.size)


def slower(latency: Floats, random: np.random.Generator) -> Floats:
    """The tail is four times as long in the half that is not fitted."""
    later = np.arange(latency.size) > latency.size // 2
    return np.where(later & (latency > np.quantile(latency, 0.9)), 4 * latency, latency)


def cut(latency: Floats, random: np.random.Generator) -> Floats:
    return latency[: int(random.integers(1, 500))]


def same(latency: Floats, random: np.random.Generator) -> Floats:
    return latency


TROUBLES: Mapping[str, Trouble] = {
    "constant latencies": Trouble(constant, frozenset(("coarse-stamps",))),
    "coarse stamps": Trouble(coarse, frozenset(("coarse-stamps", "no-tail"))),
    "few packets": Trouble(cut, frozenset(("too-few", "below-stored", "no-tail"))),
    "much loss": Trouble(same, frozenset(("loss",)), lost=2_000),
    "a drift": Trouble(drifting, frozenset(("not-stationary",)), fit=1.0),
    "stalls": Trouble(stalled, frozenset(("mixture",))),
    "a later tail": Trouble(slower, frozenset(("prediction-failed",))),
}


def run(draw: Draw, folder: Path) -> Tally:
    """A run with a tail that is known, or with trouble."""
    random = draw.stream("packets")
    name = draw.choice("kind of trouble", tuple(TROUBLES)) if draw.has("trouble", 0.6) else ""
    trouble = TROUBLES.get(name)
    xi = float(random.uniform(-0.2, 0.3))
    if name in ("", "a later tail") and draw.has("an odd tail", 0.3):
        xi = -0.75 if trouble else draw.choice("odd", (-0.75, 1.3))
    law = pareto(5_000, 1_000, xi)
    index = 0.5 if draw.has("clusters of late packets", 0.3) else 1.0
    latency = law.exceeded(shares(random, 40_000, index))
    if trouble is not None:
        latency = trouble.change(latency, draw.stream(name))
    ticks = trouble is None and draw.has("ticks of the clocks", 0.3)
    latency = np.rint(latency / 12.5) * 12.5 if ticks else latency
    tail = stored(np.rint(latency).astype(np.int64), RATE, trouble.lost if trouble else 0)
    if draw.has("two clocks", 0.3):
        tail = replace(tail, within=Within(draw.magnitude("within", 10, 5_000)))
    options = Options(
        fit=trouble.fit if trouble else draw.choice("fit", (0.5, 1.0)),
        thresholds=(Threshold(99.0), Threshold(98.0)),
        horizons=(NEAR_NS, HORIZON_NS),
    )
    model = analyse(tail, options)
    consistent(model, tail)
    checked = model.chosen is not None and model.chosen.check is not None
    assert checked == (model.chosen is not None and options.fit < 1)
    near, far = (entry.level for entry in model.levels)
    if trouble is not None:
        reasons = {flag.code for found in model.assessments for flag in found.flags}
        assert far is None and not trouble.reasons.isdisjoint(reasons), (name, reasons)
        return {}
    assert model.tick == (12.5 if ticks else 1)
    assert near is None
    if far is None:
        return {"a model": (0, 1)}
    right = far.low is None or far.low <= level(law, index) <= (far.high or np.inf)
    return {"a model": (1, 1), "its level": (int(right), 1)}


def level(law: Law, index: float) -> float:
    """What one cluster exceeds in the horizon."""
    return float(law.exceeded(np.array(SECOND_NS / (HORIZON_NS * RATE * index))))


def consistent(model: TailModel, tail: StoredTail) -> None:
    """Nothing that is refused gives a number, what is counted is there, and clocks widen levels."""
    told = record(model)
    assert json.loads(printed(told))["schema"] == "tailtap.tail/1"
    codes = {warning.code for warning in model.warnings}
    usable = model.chosen is not None and not model.chosen.refused
    assert usable or all(entry.level is None for entry in model.levels)
    assert ("no-model" in codes) == (model.chosen is None)
    assert not usable or "near" in codes
    assert told.block_maxima is None or usable or told.block_maxima.level is None
    for row in told.thresholds:
        assert not row.refused or (row.check is None and row.limit_ns is None)
    if usable:
        lowest = min(one.latency or 0 for one in model.assessments if not one.refused)
        assert model.chosen is not None and model.chosen.latency == lowest
    for one in model.assessments:
        flags = {flag.code for flag in one.flags}
        if one.bursts is not None:
            assert tail.loss * one.fitted <= 0.1 * one.exceedances
            few = one.goodness is not None and one.bursts.count < 500
            assert ("few-bursts" in flags) == few
        if one.fit is not None and one.fit.interior:
            assert ("irregular" in flags) == (one.fit.xi <= -0.5) == (one.profile is None)
            assert ("no-mean" in flags) == (one.fit.xi >= 1)
    for forecast in model.forecasts:
        for over in forecast.levels:
            assert over.packets == (tail.latency_ns > over.level_ns).sum()
    fitted = tail.position < model.fitted.packets
    for papers in model.papers:
        if papers.latency_ns is not None:
            late = tail.latency_ns > papers.latency_ns
            assert papers.exceedances == (late & fitted).sum()
        if papers.level_ns is not None:
            beyond = tail.latency_ns > papers.level_ns
            assert papers.packets_above == (beyond & ~fitted).sum()
    assert ("two-clocks" in codes) == (tail.within.ns > 0)
    if tail.within.ns:
        plain = analyse(replace(tail, within=Within()), model.options)
        for here, there in zip(model.levels, plain.levels, strict=True):
            assert here.level == (there.level and there.level.widened(tail.within.ns))


TRIAL = Trial(
    "model",
    run,
    every=6,
    rates={
        "a model": (0.85, 1.0),
        "its level": (0.925, 0.98),
    },
)
