"""What is tried of each seed: a file for each part of the program."""

from __future__ import annotations

from tests.simulation.trial import Trial
from tests.simulation.trials import causes, folders, gates, pairs, tail, verdict

TRIALS: tuple[Trial, ...] = (
    pairs.TRIAL,
    tail.TRIAL,
    verdict.TRIAL,
    gates.TRIAL,
    causes.TRIAL,
    folders.TRIAL,
    folders.PAGE,
)
