"""What is tried of each seed: a file for each part of the program."""

from __future__ import annotations

import atexit
import gc

from tests.simulation.trial import Trial
from tests.simulation.trials import (
    causes,
    clocks,
    damage,
    devices,
    equals,
    folders,
    gates,
    guests,
    hops,
    hosts,
    imports,
    lines,
    live,
    model,
    pairs,
    quality,
    requests,
    segments,
    stations,
    tail,
    verdict,
    workers,
)

TRIALS: tuple[Trial, ...] = (
    pairs.TRIAL,
    damage.TRIAL,
    equals.TRIAL,
    segments.TRIAL,
    segments.FRAGMENTS,
    devices.TRIAL,
    clocks.TRIAL,
    live.TRIAL,
    hops.TRIAL,
    hosts.TRIAL,
    requests.TRIAL,
    tail.TRIAL,
    model.TRIAL,
    verdict.TRIAL,
    gates.TRIAL,
    quality.TRIAL,
    causes.TRIAL,
    guests.TRIAL,
    lines.TRIAL,
    workers.TRIAL,
    folders.TRIAL,
    folders.PAGE,
    stations.TRIAL,
    imports.TRIAL,
    imports.TREES,
)

gc.freeze()
"""What was imported is no garbage: no collection looks through it."""
atexit.register(gc.unfreeze)
