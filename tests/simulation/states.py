"""Machines whose runs scatter: by themselves, by states that stay, by disturbances."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from comparisons import sample

from tailtap.analysis.runs.run import Run
from tests.simulation.draw import Draw
from tests.simulation.latencies import Floats, Integers

FIRST = datetime(2026, 11, 1)
LEVEL = 5e5
"""The latency in ns of a usual run."""


def staying(random: np.random.Generator, runs: int) -> Floats:
    """Half of the variance is a state that stays for some runs, such as a boot brings."""
    found = random.normal(size=runs)
    changed = np.cumsum(random.random(runs) < 1 / 11)
    return np.asarray((found + random.normal(size=runs)[changed]) / math.sqrt(2))


def scatter(draw: Draw, name: str, runs: int) -> Floats:
    """The logarithms of a machine's runs, in the order of time, about that of its level."""
    random = draw.stream(name)
    found = staying(random, runs) if draw.has("states", 0.5) else random.normal(size=runs)
    found *= float(random.uniform(0.02, 0.5))
    if draw.has("disturbed runs", 0.3):
        found += (random.random(runs) < 0.2) * np.log1p(5 * random.pareto(1.5, runs))
    return found


def side(name: str, logs: Floats, places: Integers | None = None) -> list[Run]:
    """Runs of one measurement; `places` are theirs in the order of time, if anybody knows it."""
    found = []
    for number, log in enumerate(logs):
        more = {}
        if places is not None:
            more["started"] = f"{FIRST + timedelta(minutes=int(places[number])):%Y-%m-%dT%H:%M:%SZ}"
        run = sample("bare-metal", number + 1, LEVEL * math.exp(log), more=more)
        found.append(replace(run, alias=name))
    return found
