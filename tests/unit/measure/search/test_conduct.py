"""How trials are conducted, and when one is given up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_station import FakeStation, failed
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_rate
from tailtap.experiment.reading import read_experiment
from tailtap.measure.campaign import Campaign, Listener
from tailtap.measure.run import everywhere
from tailtap.measure.search import LossGuard, Plan, Search, search_experiment
from tailtap.measure.search.methods import settings_of
from tailtap.records.record import read
from tailtap.records.run import RunRecord

TEXT = "name: paper\ntraffic: {warm_up: 10 ms}\n"
MILLISECOND = 1_000_000
LONGEST = 12_000
"""The rate up to which the station's generator gets past its warm-up."""
UNREACHED: dict[str, Any] = {
    "sent": 0, "interrupted": True, "achieved_rate": None, "slip_ns": None,
}  # fmt: skip


class Slow(FakeStation):
    """Its generator sends packets that count up to `LONGEST`, and above it none."""

    def open(self, setup: Any) -> Any:
        rate = parse_rate(setup.experiment["traffic"]["rate"])
        self.sent = {"scheduled_rate": float(rate), "achieved_rate": float(rate)}
        if rate > LONGEST:
            self.sent |= UNREACHED
        return super().open(setup)


class Noted(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def noted(self, sentence: str) -> None:
        self.lines.append(sentence)


def search(tmp_path: Path, station: FakeStation, *, resume: bool = False) -> tuple[Search, str]:
    source, told = tmp_path / "e.yaml", Noted()
    source.write_text(TEXT)
    settings = settings_of(
        (0.0,), 4_000, 64_000, 0.3, method="binary", trial_ns=100 * MILLISECOND, trials=1,
        short_ns=50 * MILLISECOND,
    )  # fmt: skip
    campaign = Campaign(tmp_path / "out", resume, [told], everywhere(station))
    plan = Plan(read_experiment(source), source, settings, shares=())
    return search_experiment(plan, campaign), "\n".join(told.lines)


def test_a_rate_at_which_the_generator_only_warms_up_is_tried_and_left(tmp_path: Path) -> None:
    found, said = search(tmp_path, Slow())
    [answer] = found.record.answers
    assert answer.rate is not None and answer.upper is not None
    assert answer.rate <= LONGEST < answer.upper <= 16_000
    assert answer.reason == "generator"
    [limit] = answer.warnings
    assert limit.code == "generator-limit"
    assert "in each of 3 trials the generator did not reach it" in limit.message
    assert "64 kpkt/s for 100 ms: invalid: the generator did not reach it: it was still" in said
    stored = json.loads((tmp_path / "out/search.json").read_text())
    assert stored["status"] == "done"
    for row in stored["trials"]:
        record = read(tmp_path / "out/trials/runs" / row["slug"] / "run.json", RunRecord)
        unreached = row["rate"] > LONGEST
        assert (row["doubt"] is not None, row["packets"] == 0) == (unreached, unreached)
        assert record.status == ("failed" if unreached else "done")
        assert record.generator is not None
        assert record.generator.known.still_warming_up is unreached
    # The trials are what a resumed search goes on with.
    again, said = search(tmp_path, FakeStation(), resume=True)
    assert (again.record.answers, said) == (found.record.answers, "")


def test_a_trial_that_fails_otherwise_ends_the_search(tmp_path: Path) -> None:
    station = Slow(happens={"timestamper": failed("the tap ended")})
    with pytest.raises(MachineError, match="trial 1 failed: the tap ended"):
        search(tmp_path, station)
    assert json.loads((tmp_path / "out/search.json").read_text())["status"] == "failed"


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
