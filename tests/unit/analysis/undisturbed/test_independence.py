"""Pauses that come when the device is busy are told from pauses that come at any time."""

from __future__ import annotations

import numpy as np
from queues import Case, simulate

from tailtap.analysis.undisturbed.stretches import LEAST_P, independence, leave_out

TURNS = Case(1e4, 0.3, swing=0.5, pauses=20, pause_ns=200_000)
CASES = 10


def p_of(case: Case, seed: int) -> float | None:
    made = simulate(case, np.random.default_rng([5, seed]))
    left = leave_out(made.pauses, made.ingress_ns, made.plain_ns)
    return independence(made.pauses, left, made.ingress_ns)


def test_pauses_at_any_time_are_independent() -> None:
    found = [p_of(TURNS, seed) for seed in range(CASES)]
    assert all(p is not None and p >= LEAST_P for p in found), found
    assert np.mean([p for p in found if p is not None]) > 0.25


def test_pauses_while_the_load_is_high_are_not() -> None:
    dependent = Case(**{**vars(TURNS), "following": 1.0})
    found = [p_of(dependent, seed) for seed in range(CASES)]
    assert all(p is not None and p < LEAST_P for p in found), found


def test_few_pauses_tell_nothing() -> None:
    assert p_of(Case(1e4, 0.3, pauses=0.5), 1) is None
