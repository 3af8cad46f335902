"""The same seeds each time in CI; TAILTAP_SEEDS says how many."""

from __future__ import annotations

import os

import pytest

from tests.simulation.kept import KEPT
from tests.simulation.trial import Case, Trial, added, shrunk, wrong_rates
from tests.simulation.trials import TRIALS

SEEDS = int(os.environ.get("TAILTAP_SEEDS", "300"))
BATCHES = 10
"""Tests that share them out, so that several CPUs do."""


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_seeds(trial: Trial, batch: int) -> None:
    kept = KEPT.get(trial.name, ()) if batch == 0 else ()
    seeds = [*kept, *(at for at in range(batch, SEEDS, BATCHES) if at % trial.every == 0)]
    tallies = []
    for seed in seeds:
        case = Case(trial, seed)
        _, tally, failure = case.tried()
        if failure is not None:
            smallest, failure = shrunk(case)
            pytest.fail(f"{failure}repeat with: {smallest.command()}", pytrace=False)
        tallies.append(tally)
    assert wrong_rates(trial, added(tallies)) == []
