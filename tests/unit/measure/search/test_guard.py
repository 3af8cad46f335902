"""A trial ends early when its loss is sure, and not before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailtap.measure.search import LossGuard

RATE = 10_000
REACH = 0.15


def given_up_at(
    guard: LossGuard, share: float, *, delay: float = 0.0, warm_up_share: float = 0.0,
    seconds: float = 5.0, warm_up: float = 0.5,
) -> float | None:  # fmt: skip
    """When the guard ends a trial of a device that loses `share` and delays by `delay` s."""
    steps = int(seconds / guard.period)
    for step in range(1, steps + 1):
        now = step * guard.period
        came = int(RATE * now)
        out = max(0.0, now - delay)
        left = RATE * (
            min(out, warm_up) * (1 - warm_up_share) + max(0, out - warm_up) * (1 - share)
        )
        if guard.over(now, came, int(left), REACH):
            return now
    return None


@given(
    share=st.floats(0, 1),
    allowed=st.floats(0, 10_000),
    delay=st.floats(0, REACH),
    before=st.floats(0, 1),
)
def test_it_never_gives_up_before_more_than_allowed_is_lost(
    share: float, allowed: float, delay: float, before: float
) -> None:
    guard = LossGuard(allowed, RATE // 2, 5.0)
    ended = given_up_at(guard, share, delay=delay, warm_up_share=before)
    assert guard.gave_up == (ended is not None)
    assert not guard.overtime
    if ended is not None:
        # What the warm-up lost does not count.
        assert share * RATE * max(0, ended - 0.5) > allowed


def test_an_overload_is_noticed_as_soon_as_it_is_sure() -> None:
    """Once the loss makes up for what may be under way, and for the time between two looks."""
    guard = LossGuard(100, RATE // 2, 5.0)
    share, late = 0.3, REACH + guard.period
    ended = given_up_at(guard, share)
    assert ended is not None
    assert 0.5 < ended <= 0.5 + (100 / RATE + late) / share + 2 * guard.period


def test_a_device_that_is_only_slow_is_not_given_up() -> None:
    assert given_up_at(LossGuard(0, RATE // 2, 5.0), 0.0, delay=REACH) is None


def test_a_generator_that_takes_far_too_long_is_ended() -> None:
    guard = LossGuard(float("inf"), 0, 1.0)
    assert given_up_at(guard, 0.0, seconds=2.2) is None
    guard = LossGuard(float("inf"), 0, 1.0)
    assert given_up_at(guard, 0.0, seconds=4.0) is not None
    assert guard.overtime and not guard.gave_up


def test_a_generator_that_takes_long_to_start_is_waited_for() -> None:
    guard = LossGuard(0, 10, 1.0)
    assert not any(guard.over(now, 5, 5, REACH) for now in (1.0, 5.0, 30.0))
    assert not guard.over(30.2, 6, 6, REACH)
    assert guard.over(33.0, 40, 6, REACH) and guard.overtime
