"""What is called a cause or a period, over many runs and points whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from stamps import write_stamps
from traced import DUT, IDLE, IRQ, SECOND, START, Integers, Record, encode

from tailtap import _core
from tailtap.analysis.causes.claims import (
    FALSE_ALARM,
    FALSE_CLAIMS,
    SHIFTS,
    benjamini_hochberg,
    periods,
    tick,
)

LENGTH = 2 * SECOND


def events(count: int, length: int, random: np.random.Generator) -> Integers:
    return START + np.sort(random.integers(0, LENGTH - length, count))


def p_values(
    folder: Path, starts: Sequence[Integers], length: int, windows: Integers, wide: int, seed: int
) -> list[float]:
    """P-values of interrupts that begin at `starts`, one number each, against windows."""
    records = [Record(int(t), length, IRQ, number) for number, ts in enumerate(starts) for t in ts]
    records += [Record(START + at * SECOND, SECOND, IDLE) for at in range(LENGTH // SECOND)]
    (folder / "trace.events").write_bytes(encode(records))
    write_stamps(folder / "egress.stamps", [START], [0])
    cores, _ = _core.Cores.read(folder / "trace.events", [DUT], START + LENGTH)
    served = {IRQ: 2, IDLE: 1}  # whoever is not interrupted serves
    rows = [
        served.get(kind, 0) + (number if kind == IRQ else 0) for kind, number, _ in cores.owners
    ]
    constant = np.full(windows.size, DUT), np.full(windows.size, length)
    found = cores.test(
        rows, list(range(2, 2 + len(starts))), (windows, windows + wide, *constant),
        (START, START + LENGTH), shifts=SHIFTS, seed=seed,
    )  # fmt: skip
    return [p for *_, p in found]


def test_runs_without_a_cause_get_none(tmp_path: Path) -> None:
    claims = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        starts = [events(count, 20_000, random) for count in (5, 50, 500, 2000)]
        # Periodic events, and windows that come in groups, as behind real stalls.
        starts.append(START + np.arange(0, LENGTH - 20_000, 4_000_000))
        windows = np.repeat(events(10, 100_000, random), 4) + np.tile(
            [0, 9_000, 21_000, 30_000], 10
        )
        ps = p_values(tmp_path, starts, 20_000, windows, 60_000, seed)
        claims += any(benjamini_hochberg(ps))
    # Two of 200 are expected; seven or more have a probability below 1 %.
    assert claims < 7, f"{claims} of 200 runs without a cause have one"


def test_a_cause_among_others_is_found_alone(tmp_path: Path) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        cause = events(12, 20_000, random)
        starts = [cause, *(events(count, 20_000, random) for count in (20, 200, 2000))]
        ps = p_values(tmp_path, starts, 20_000, cause - 5_000, 40_000, seed)
        assert ps[0] == pytest.approx(1 / (SHIFTS + 1))
        assert benjamini_hochberg(ps)[0]


def test_the_rule_is_that_of_its_paper() -> None:
    # The example of Benjamini and Hochberg, section 3.2: four of fifteen at 5 %.
    ps = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
          0.5719, 0.6528, 0.7590, 1.0000]  # fmt: skip
    assert benjamini_hochberg(ps, 0.05) == [True] * 4 + [False] * 11
    assert benjamini_hochberg([], FALSE_CLAIMS) == []


SPAN = (START, START + 30 * SECOND)


def test_random_points_have_no_period() -> None:
    alarms = 0
    for seed in range(100):
        points = np.sort(np.random.default_rng(seed).integers(*SPAN, 400))
        alarms += bool(periods(points, SPAN, 20_000.0, 250.0))
    # At most two families are tried in each: known periods, and all frequencies.
    assert alarms <= 2 + 100 * 2 * FALSE_ALARM


def test_points_that_come_in_groups_have_none_either() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        groups = random.integers(*SPAN, 20)
        points = (groups[:, None] + random.integers(0, SECOND // 2, (20, 15))).ravel()
        assert not periods(np.sort(points), SPAN, None, 250.0), seed


@pytest.mark.parametrize("period_ns", [1_000_000, 4_000_000, 7_300_000, 100_000_000, SECOND])
def test_a_period_is_found_among_random_points(period_ns: int) -> None:
    random = np.random.default_rng(1)
    times = START + np.arange(123_456, 30 * SECOND, period_ns)
    chosen = np.sort(random.choice(times, min(times.size, 200), replace=False))
    points = np.sort(np.concatenate((chosen, random.integers(*SPAN, chosen.size // 2))))
    found = periods(points, SPAN, None, None)[0]
    assert found.period_ns == pytest.approx(period_ns, rel=1e-3)
    assert found.false_alarm < FALSE_ALARM


def test_the_tick_has_its_name() -> None:
    times = START + np.arange(777, 30 * SECOND, 4_000_000)
    assert tick(times) == 250.0
    found = periods(times[::7], SPAN, None, 250.0)
    assert found[0].period_ns == pytest.approx(28_000_000, rel=1e-5)
    found = periods(np.sort(np.random.default_rng(1).choice(times, 500)), SPAN, None, 250.0)
    assert found[0].words == "the tick (250 Hz)"


def test_timers_at_any_time_are_no_tick() -> None:
    assert tick(np.sort(np.random.default_rng(1).integers(*SPAN, 5000))) is None
    assert tick(np.array([1, 2])) is None


def test_a_beat_of_packets_with_the_tick_is_named() -> None:
    """A packet every 333,200 ns meets a tick of 4 ms at a phase that drifts."""
    rate = 1e9 / 333_200
    packets = START + np.arange(0, 30 * SECOND, 333_200)
    met = packets[(packets - START) % 4_000_000 < 20_000]
    beat = abs(rate - 250 * round(rate / 250))
    found = periods(met, SPAN, rate, 250.0)
    words = " ".join(period.words for period in found)
    assert "the beat of 3,001.20 pkt/s with the tick (250 Hz)" in words, (found, beat)
