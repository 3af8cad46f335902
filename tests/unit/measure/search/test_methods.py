"""Both methods find the highest rate of devices that are known; how trials are conducted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from devices import Bench, constant, noisy, rare, sharp, soft
from fake_station import FakeStation, failed
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_rate
from tailtap.experiment.reading import read_experiment
from tailtap.measure.campaign import Campaign, Listener
from tailtap.measure.run import everywhere
from tailtap.measure.search import LossGuard, Plan, Search, search_experiment
from tailtap.measure.search.methods import judge, settings_of
from tailtap.records.record import read
from tailtap.records.run import RunRecord
from tailtap.records.search import SearchAnswer

SETTINGS = settings_of((0.0,), 1_000, 2_000_000)
PDR = settings_of((0.0, 0.005), 1_000, 2_000_000)
METHODS = ("mlr", "binary")


def codes(found: SearchAnswer) -> set[str]:
    return {warning.code for warning in found.warnings}


def brackets(found: SearchAnswer, truth: float, precision: float) -> bool:
    """Whether the truth lies within the bounds, and these are as near as they were asked to be."""
    assert found.rate is not None and found.upper is not None and found.width is not None
    near = found.width <= precision or found.upper - found.rate <= 1
    return near and found.rate <= truth < found.upper


@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None)  # scipy takes long to import
@given(
    limit=st.integers(1_000, 1_900_000),
    precision=st.floats(0.001, 0.2),
    exceed=st.sampled_from([0.0, 0.5]),
    trials=st.integers(1, 5),
)
def test_a_sharp_knee_is_bracketed(
    method: str, limit: int, precision: float, exceed: float, trials: int
) -> None:
    wanted = settings_of((0.0,), 1_000, 2_000_000, precision, exceed=exceed, trials=trials)
    [found] = Bench(sharp(limit)).search(method, wanted)
    assert brackets(found, limit, precision)
    assert found.reason == "loss"
    assert not codes(found)


@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None)  # scipy takes long to import
@given(knee=st.floats(20_000, 1_500_000), precision=st.floats(0.005, 0.1))
def test_a_soft_knee_has_a_rate_for_each_loss(method: str, knee: float, precision: float) -> None:
    wanted = settings_of((0.0005, 0.005, 0.05), 1_000, 2_000_000, precision)
    answers = Bench(soft(knee)).search(method, wanted)
    for found in answers:
        truth = knee * (found.loss / 0.005) ** (1 / 6)
        if truth >= wanted.high:
            assert found.reason == "range"
        else:
            # Whole packets are lost: half of one in a trial moves the truth, up or down.
            slack = (1 + 0.5 / (found.loss * truth * wanted.trial_ns / 1e9)) ** (1 / 6)
            assert found.rate is not None and found.upper is not None
            assert truth * slack >= found.rate >= truth * (1 - precision) / slack
            assert found.upper >= truth / slack
    rates = [found.rate or 0 for found in answers]
    assert rates == sorted(rates)


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_knee_is_found_within_its_noise(seed: int) -> None:
    [found] = Bench(noisy(200_000, 0.05), seed=seed).search("mlr", SETTINGS)
    assert found.rate is not None and found.upper is not None
    assert 190_000 * 0.98 <= found.rate <= 210_000
    assert found.at_rate is not None and found.at_rate.trials >= 2
    if found.at_rate.exceeding:
        assert "trials-disagree" in codes(found)


@pytest.mark.parametrize("seed", range(20))
def test_rare_losses_do_not_decide_about_the_rate_but_are_told(seed: int) -> None:
    """One trial in twenty loses seven packets at any rate."""
    bench = Bench(rare(200_000, 0.05), seed=seed)
    [found] = bench.search("mlr", SETTINGS)
    full = [result for result in bench.results if result.duration_ns == SETTINGS.trial_ns]
    bad = [result for result in full if result.rate <= (found.rate or 0) and result.lost]
    assert ("loss-below" in codes(found) or "trials-disagree" in codes(found)) == bool(bad)
    if not any(result.lost for result in full if result.rate <= 200_000):
        assert brackets(found, 200_000, SETTINGS.precision)


def test_a_single_bad_trial_misleads_the_binary_search_and_not_the_other() -> None:
    """The first trial below the knee loses seven packets; no other one does."""

    def once(trial, chance):  # type: ignore[no-untyped-def]
        first = trial.rate <= 200_000 and not spent
        spent.extend([True] * first)
        return 1e-4 if first else max(0.0, 1 - 200_000 / trial.rate)

    spent: list[bool] = []
    [binary] = Bench(once).search("binary", SETTINGS)
    assert binary.upper is not None and binary.upper <= 200_000
    spent.clear()
    [found] = Bench(once).search("mlr", SETTINGS)
    assert brackets(found, 200_000, SETTINGS.precision)


@pytest.mark.parametrize("method", METHODS)
def test_a_device_that_is_never_overloaded_is_said_to_be_so(method: str) -> None:
    [found] = Bench(constant(0)).search(method, SETTINGS)
    assert (found.rate, found.upper, found.reason) == (2_000_000, None, "range")
    assert codes(found) == {"range-end"}


@pytest.mark.parametrize("method", METHODS)
def test_a_device_that_always_loses_has_no_rate(method: str) -> None:
    none, some = Bench(constant(0.001)).search(method, PDR)
    assert (none.rate, none.upper, none.reason) == (None, 1_000, "loss")
    assert codes(none) == {"none-holds"}
    assert none.loss_limit is None
    assert some.rate == 2_000_000


@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None)  # scipy takes long to import
@given(able=st.floats(1_100, 1_900_000))
def test_the_generators_limit_is_not_the_devices(method: str, able: float) -> None:
    [found] = Bench(sharp(3_000_000), able=able).search(method, SETTINGS)
    assert brackets(found, able, SETTINGS.precision)
    assert found.reason == "generator"
    assert codes(found) == {"generator-limit"}
    assert found.at_upper is not None and found.at_upper.invalid >= SETTINGS.tries


@pytest.mark.parametrize("method", METHODS)
def test_trials_in_which_nothing_was_sent_that_counts_tell_nothing(method: str) -> None:
    """The device's limit is found below the rates at which the generator only warms up."""
    bench = Bench(sharp(80_000), begins=200_000)
    [found] = bench.search(method, SETTINGS)
    assert brackets(found, 80_000, SETTINGS.precision)
    assert found.reason == "loss"
    assert [result for result in bench.results if not result.packets]
    [found] = Bench(sharp(3_000_000), begins=90_000).search(method, SETTINGS)
    assert brackets(found, 90_000, SETTINGS.precision)
    assert (found.reason, codes(found)) == ("generator", {"generator-limit"})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(10))
def test_trials_that_a_busy_machine_spoils_tell_nothing(method: str, seed: int) -> None:
    """A fifth of the trials is spoiled, so that a rate seems out of reach once in 125 times."""
    bench = Bench(sharp(150_000), spoiled=0.2, seed=seed)
    [found] = bench.search(method, SETTINGS)
    if found.reason == "loss":
        assert brackets(found, 150_000, SETTINGS.precision)
    else:
        assert "generator-unsteady" in codes(found) or (found.upper or 0) > 150_000


def test_the_faster_method_is_faster_at_the_same_confidence() -> None:
    """Against a binary search that repeats each trial as often as `mlr` does at its bounds."""
    for limit in (3_000, 47_000, 333_000, 1_234_000):
        fast, slow = Bench(sharp(limit)), Bench(sharp(limit))
        fast.search("mlr", SETTINGS)
        slow.search("binary", SETTINGS)
        assert fast.seconds < 2 * slow.seconds


def test_no_bound_rests_on_one_short_trial() -> None:
    [found] = Bench(sharp(100_000)).search("mlr", SETTINGS)
    assert found.at_rate is not None and found.at_upper is not None
    for bound in (found.at_rate, found.at_upper):
        assert bound.trials >= 2
        assert bound.duration_ns == bound.trials * SETTINGS.trial_ns


def test_a_lost_cause_is_given_up_at_the_largest_loss_of_interest() -> None:
    bench = Bench(sharp(100_000))
    bench.search("mlr", PDR)
    looks = [result for result in bench.results if result.give_up is None]
    assert 1 <= len(looks) <= 2
    assert {r.give_up for r in bench.results if r not in looks} == {0.005}
    assert any(result.given_up for result in bench.results)


@settings(deadline=None)  # scipy takes long to import
@given(
    good=st.integers(0, 6),
    bad=st.integers(0, 6),
    whole=st.integers(1, 6),
    exceed=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_a_rate_is_judged_when_the_rest_cannot_change_it(
    good: int, bad: int, whole: int, exceed: float
) -> None:
    found = judge(good, bad, whole, exceed)
    rest = max(0, whole - good - bad)
    ends = {
        "holds" if bad + more <= exceed * (good + bad + rest) else "loses"
        for more in range(rest + 1)
    }
    assert found == (ends.pop() if len(ends) == 1 else "undecided")


def test_the_limit_of_the_loss_is_clopper_and_pearsons() -> None:
    [found] = Bench(sharp(100_000)).search("mlr", SETTINGS)
    assert found.at_rate is not None and found.loss_limit is not None
    # Without a loss among n packets: 1 - 0.05^(1/n), the rule of three.
    expected = 1 - math.pow(0.05, 1 / found.at_rate.packets)
    assert found.loss_limit == pytest.approx(expected, rel=1e-9)


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
