"""Percentiles, return levels and forecasts: their intervals hold the truth as often as stated."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from msgspec.structs import astuple

from tailtap.analysis.compare.ranking import interval
from tailtap.analysis.evaluation.values import percentiles_of
from tailtap.analysis.runs.tail import SECOND_NS
from tailtap.analysis.tail.assessment import assess
from tailtap.analysis.tail.forecast import forecast
from tailtap.analysis.tail.peaks import Part, Threshold
from tests.simulation.draw import Draw
from tests.simulation.folders import ranked
from tests.simulation.latencies import INDICES, few, law, pareto, shares, stored
from tests.simulation.trial import Tally, Trial

TIMES = 5
Held = dict[str, tuple[int, int]]


def percentile(draw: Draw) -> Held:
    """A percentile of packets that do not depend on each other."""
    found, random = law(draw), draw.stream("packets")
    packets = draw.count("packets", 1, 5_000)
    p = float(draw.choice("p", (0.5, 0.9, 0.99, 0.999, 0.99999)))
    truth, right, of = found.at(1 - p), 0, 0
    for _ in range(TIMES):
        latency = found.at(1 - random.random(packets))
        [row] = percentiles_of(np.unique(latency, return_counts=True), [p])
        assert astuple(row) == ranked(latency, [p])[0]
        if row.low is not None and row.high is not None:
            right, of = right + int(row.low <= truth <= row.high), of + 1
    return {"percentile": (right, of)}


def level(draw: Draw) -> Held:
    """The tail's shape, and what one cluster exceeds in fewer packets, or more."""
    random = draw.stream("level")
    xi = float(random.uniform(-0.3, 0.5))
    index = float(random.choice(INDICES)) if draw.has("clusters of late packets", 0.5) else 1.0
    packets = round(draw.magnitude("clusters", 100, 300) / index / 0.01)
    made = pareto(5_000, 1_000, xi)
    latency = made.exceeded(shares(random, packets, index))
    part = Part(0, packets, np.arange(packets), latency)
    found = assess(part, Threshold(99.0), tick=1e-3, loss=0)
    horizon = packets * draw.choice("horizon of a level", (0.1, 4.0))
    once = found.level(horizon)
    if once is None or once.low is None or found.xi_interval is None:
        return {}
    low, high = found.xi_interval
    truth = float(made.exceeded(np.array(1 / (horizon * index))))
    name = "level" + " of clusters" * (index < 1)
    return {
        "xi": (int(low <= xi <= high), 1),
        name: (int(once.low <= truth and (once.high is None or truth <= once.high)), 1),
        "fitted": (int(not found.refused), 1),
    }


def within_run(draw: Draw) -> Held:
    """A percentile of packets of which late ones come together, by stretches of the run."""
    if not draw.has("a bootstrap", 0.4):
        return {}
    index = draw.choice("index", INDICES)
    made = pareto(5_000, 1_000, 0.2)
    tail = stored(made.at(shares(draw.stream("stretches"), 30_000, index)))
    found, truth = interval(tail, 0.99), made.at(0.01)
    if found.low is None or found.high is None:
        return {}
    return {"bootstrap": (int(found.low <= truth <= found.high), 1)}


def horizon(draw: Draw) -> Held:
    """Events come as a Poisson process, and so do those of a horizon."""
    random = draw.stream("events")
    mean = draw.magnitude("events", 20, 500)
    ratio = draw.choice("horizon", (0.5, 3.0, 50.0))
    size = draw.choice("sizes", (1.0, 0.2, 0.1))
    held = dict.fromkeys(("packets", "events"), (0, 0))
    for _ in range(TIMES):
        sizes = random.geometric(size, max(random.poisson(mean), 1))
        first = np.sort(random.choice(20 * sizes.size, sizes.size, replace=False)) * 1_000
        every = zip(first, sizes, strict=True)
        place = np.concatenate([begin + np.arange(many) for begin, many in every])
        tail = few(20_000 * sizes.size, place, np.full(place.size, 2_000), 100_000)
        told = forecast(tail, (1_000,), round(ratio * sizes.size * SECOND_NS / 5))
        assert told is not None
        [over] = told.levels
        assert over.packets == place.size
        coming = random.geometric(size, random.poisson(mean * ratio))
        for name, bounds, many in (
            ("packets", over.expected_packets, coming.sum()),
            ("events", over.expected_events, coming.size),
        ):
            if bounds.supported:
                right, of = held[name]
                held[name] = right + int(bounds.low <= many <= bounds.high), of + 1
    # Of blocks that are exchangeable the horizon's largest are larger one after the other.
    again = ratio / (1 + ratio)
    assert told is not None
    assert math.isclose(told.exceeded, again)
    assert told.unseen == math.ceil(math.log(0.05) / math.log(again)) - 1
    assert math.isclose(told.horizon_ns / (told.horizon_ns + told.needed_ns), 0.05, rel_tol=1e-6)
    return held


def run(draw: Draw, folder: Path) -> Tally:
    """One run of each."""
    return {**percentile(draw), **level(draw), **within_run(draw), **horizon(draw)}


TRIAL = Trial(
    "tail",
    run,
    rates={
        "percentile": (0.95, 1.0),
        "xi": (0.925, 0.97),
        "level": (0.925, 0.97),
        "level of clusters": (0.915, 0.97),
        "bootstrap": (0.88, 0.98),
        "fitted": (0.93, 0.98),
        "packets": (0.93, 0.97),
        "events": (0.93, 0.99),
    },
)
