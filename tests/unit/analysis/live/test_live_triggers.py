"""What makes an incident, of counts that are made."""

from __future__ import annotations

import numpy as np
import pytest

from tailtap.analysis.evaluation.values import WorstPacket
from tailtap.analysis.live.counting import Counted, Span
from tailtap.analysis.live.triggers import (
    Above,
    Episodes,
    Found,
    Lost,
    PercentileAbove,
    parse_trigger,
)
from tailtap.base.errors import InputError

SECOND = 1_000_000_000


def counted(second: int, latencies: dict[int, int], *, lost: tuple[int, ...] = ()) -> Counted:
    """A second with so many packets of each latency."""
    from_ns = second * SECOND
    values = np.array(sorted(latencies), np.int64)
    counts = np.array([latencies[int(value)] for value in values], np.int64)
    worst = [
        WorstPacket(value, from_ns + 5, from_ns + 5 + value, "k")
        for value in sorted(latencies, reverse=True)
    ]
    return Counted(
        Span(from_ns, from_ns + SECOND),
        {"lost": len(lost)},
        (values, counts),
        worst,
        np.array(lost, np.int64),
    )


def test_latencies_above_a_threshold_are_counted_and_placed() -> None:
    trigger = Above(1000)
    assert trigger.look(counted(1, {1000: 5})) is None
    found = trigger.look(counted(2, {900: 5, 1001: 3, 4000: 2}))
    assert found == (2 * SECOND + 5, 2 * SECOND + 5 + 4000, 5, "4 us, above 1 us")


def test_lost_packets_are_placed_by_their_stamps() -> None:
    assert Lost().look(counted(1, {5: 1})) is None
    assert Lost().look(counted(1, {5: 1}, lost=(7, 9)))[:3] == (7, 9, 2)  # type: ignore[index]


def test_a_percentile_makes_one_incident_each_time_that_it_rises() -> None:
    trigger = PercentileAbove(0.99, 1000, 3 * SECOND)
    low, high = {100: 1000}, {100: 900, 5000: 100}
    seconds = [low, low, high, high, low, low, low, low, high]
    seen = [trigger.look(counted(at, one)) is not None for at, one in enumerate(seconds)]
    assert seen == [False, False, True, False, False, False, False, False, True]


def test_a_percentile_that_few_packets_support_makes_none() -> None:
    assert PercentileAbove(0.99, 1000, SECOND).look(counted(1, {5000: 500})) is None


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("200 us", Above(200_000)),
        (" loss ", Lost()),
        ("p99.9 > 1 ms over 10 s", PercentileAbove(0.999, 1_000_000, 10 * SECOND)),
    ],
)
def test_triggers_are_read(text: str, trigger: object) -> None:
    assert parse_trigger(text) == trigger


@pytest.mark.parametrize("text", ["", "200", "p99.9 > 1 ms", "p100 > 1 ms over 1 s", "loss > 1"])
def test_what_is_no_trigger_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--above"):
        parse_trigger(text)


def found(first: int, last: int) -> Found:
    return Found(first * SECOND, last * SECOND, 1, f"{first}")


def test_what_is_near_is_one_episode_and_what_is_far_another() -> None:
    episodes = Episodes(2 * SECOND)
    assert episodes.add([found(10, 11), found(12, 12)]) == []
    assert episodes.over(13 * SECOND) == []
    [over] = episodes.add([found(20, 20)])
    assert (over.begin_ns, over.end_ns, over.packets) == (8 * SECOND, 12 * SECOND, 2)
    assert over.words == ["10", "12"]
    [over] = episodes.over(22 * SECOND)
    assert (over.begin_ns, over.end_ns, episodes.open) == (18 * SECOND, 20 * SECOND, None)


def test_an_episode_does_not_become_longer_and_longer() -> None:
    episodes = Episodes(SECOND)
    over = [one for at in range(100) for one in episodes.add([found(at, at)])]
    assert len(over) >= 8
    assert all(one.end_ns - one.begin_ns <= 10 * SECOND for one in over)
