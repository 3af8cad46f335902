"""Which counters rise where packets are late, by one clock, by two, or by clocks nobody tied."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import HOG, SECOND, START, traffic, write_run
from two_machines import Apart, say_apart

from tailtap.analysis.interrupts import Options, interrupts_of
from tailtap.analysis.interrupts.association import (
    LEVEL,
    SCALE,
    SHIFTS,
    Integers,
    Late,
    Windows,
    associated,
    latest,
    own_effect,
    scores,
    suggest,
    windows_of,
)
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import InputError
from tailtap.records.interrupts import FILE, Samples

MS = 1_000_000


def late_of(times: Integers, excess: Integers, last_ns: int) -> Late:
    return Late(times, excess + 3_000, excess, 0, last_ns)


def at_random(seed: int, *, windows: int = 200, counters: int = 8) -> tuple[Windows, Late]:
    """Counters and late packets in bursts, which know nothing of each other."""
    random = np.random.default_rng(seed)
    bounds = np.cumsum(random.integers(9 * MS, 11 * MS, windows + 1))
    rises = random.poisson(random.gamma(0.3, 5, (counters, windows)))
    centres = random.integers(0, bounds[-1], 40)
    times = np.sort((centres[:, None] + random.integers(0, 4 * MS, (40, 9))).ravel())
    late = late_of(times, random.integers(1, MS, times.size), int(bounds[-1]))
    return Windows(bounds, tuple(f"c{k}" for k in range(counters)), rises), late


def follows(windows: Windows, late: Late, *, counter: int = 0, rises: int = 30) -> Windows:
    """The same, but a counter rises with every late packet."""
    increments = windows.increments.copy()
    increments[counter] += rises * (late.lateness(windows.bounds_ns) > 0)
    return Windows(windows.bounds_ns, windows.names, increments)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_scores_are_the_means_of_exponential_order_statistics(values: list[int]) -> None:
    number, ordered = len(values), sorted(values)
    by_rank = [
        sum(Fraction(1, number - below) for below in range(rank + 1)) for rank in range(number)
    ]
    expected = []
    for value in values:
        shared = [by_rank[rank] for rank in range(number) if ordered[rank] == value]
        expected.append(float(sum(shared) / len(shared) * SCALE))
    assert scores(np.array(values)).tolist() == pytest.approx(expected, abs=0.51)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(-20, 500), st.integers(1, 9)), max_size=20),
    st.integers(0, 2000),
)
def test_lateness_is_that_of_packets_in_each_window_shifted_in_a_circle(
    lengths: list[int], packets: list[tuple[int, int]], shift: int
) -> None:
    bounds = [0]
    for length in lengths:
        bounds.append(bounds[-1] + length)
    expected = [0] * len(lengths)
    for time, excess in packets:
        if not 0 <= time < bounds[-1]:
            continue
        shifted = (time + shift) % bounds[-1]
        [place] = [n for n in range(len(lengths)) if bounds[n] <= shifted < bounds[n + 1]]
        expected[place] += excess
    times = np.array([time for time, _ in packets], np.int64)
    excess_ns = np.array([excess for _, excess in packets], np.int64)
    late = late_of(times, excess_ns, bounds[-1])
    assert late.lateness(np.array(bounds), shift).tolist() == expected


@settings(max_examples=1)
@given(st.integers(0, 2**32))
def test_p_values_are_those_of_a_slow_computation(seed: int) -> None:
    windows, late = at_random(seed, windows=12, counters=2)
    windows = follows(windows, late, rises=2)
    span = int(windows.bounds_ns[-1] - windows.bounds_ns[0])
    shifts = [0, *np.random.default_rng(1).integers(0, span, SHIFTS).tolist()]
    lengths = np.diff(windows.bounds_ns)
    rates = [scores(row * 10**11 // lengths) for row in windows.increments]
    table = np.array(
        [
            [int(sum(map(int, rate * scores(late.lateness(windows.bounds_ns, s))))) for s in shifts]
            for rate in rates
        ],
        np.float64,
    )
    heights = (table - table.mean(axis=1, keepdims=True)) / table.std(axis=1, keepdims=True)
    tops = heights.max(axis=0)
    expected = {f"c{k}": float(np.mean(tops >= heights[k, 0])) for k in range(2)}
    found = {row.name: row.p_value for row in associated(windows, late)}
    for name, p_value in expected.items():
        # A tie of floats may fall on either side.
        assert found[name] == pytest.approx(p_value, abs=0.0021)


def test_what_has_nothing_in_common_is_rarely_associated() -> None:
    """In 20 experiments with eight counters each, at a level of 1 % for all eight together."""
    claims = sum(
        any(row.associated for row in associated(*at_random(seed, windows=100)))
        for seed in range(20)
    )
    assert claims <= 2  # binomial(20, 0.01): more in 1 of 1,000 such tests


@pytest.mark.parametrize("seed", range(5))
def test_what_rises_with_late_packets_is_associated_and_nothing_else(seed: int) -> None:
    windows, late = at_random(seed)
    first, *others = associated(follows(windows, late), late)
    assert first.name == "c0"
    assert first.p_value == pytest.approx(1 / (1 + SHIFTS), abs=0.003)
    assert first.late_per_s > 3 * first.elsewhere_per_s
    assert not any(row.associated for row in others)


def test_counters_that_hardly_rose_are_not_tested() -> None:
    windows, late = at_random(1)
    once = windows.increments.copy()
    once[3] = 0
    once[3, np.argmax(late.lateness(windows.bounds_ns))] = 1
    rows = associated(Windows(windows.bounds_ns, windows.names, once), late)
    assert {row.name: row.p_value for row in rows}["c3"] is None


def test_late_windows_are_a_tenth_at_most_and_have_late_packets() -> None:
    assert latest(np.array([0, 5, 0, 9, 1] + [0] * 15)).nonzero()[0].tolist() == [1, 3]
    assert latest(np.array([0, 5, 0, 0, 0] + [0] * 15)).nonzero()[0].tolist() == [1]
    assert not latest(np.zeros(20, np.int64)).any()


def test_a_sampler_that_makes_packets_late_is_told() -> None:
    starts = np.arange(200) * 10 * MS
    took = np.full(200, 5_000)
    hit = late_of(starts[5:190] + 1_000, np.full(185, 5_000), int(starts[-1]))
    found = own_effect(starts, took, hit)
    assert found is not None and found.delays
    assert found.packets == 185 and found.expected < 10
    beside = late_of(starts[5:190] + 5 * MS, np.full(185, 5_000), int(starts[-1]))
    found = own_effect(starts, took, beside)
    assert found is not None and not found.delays and found.packets == 0
    # In the device as the sample began, though it came before.
    earlier = late_of(starts[5:190] - 4_000, np.full(185, 5_000), int(starts[-1]))
    found = own_effect(starts, took, earlier)
    assert found is not None and found.packets == 185


def samples_of(*values: int | None) -> Samples:
    return Samples([10 * place for place in range(len(values))], None, {"c": list(values)})


@pytest.mark.parametrize(
    ("values", "rises"),
    [
        ((3, 5, 5), [2, 0]),
        ((None, None, 4, 6), [0, 4, 2]),  # listed later: it counts from 0
        ((4, None, 6), [0, 2]),
        ((2**32 - 3, 2), [5]),  # wrapped
        ((100, 7), [7]),  # began anew
    ],
)
def test_increments(values: tuple[int | None, ...], rises: list[int]) -> None:
    assert windows_of(samples_of(*values)).increments.tolist() == [rises]


def test_windows_lie_within_the_captures_as_a_whole() -> None:
    windows = windows_of(samples_of(0, 1, 2, 3, 4), offset_ns=100)
    assert windows.within(101, 139).bounds_ns.tolist() == [110, 120, 130]
    assert windows.within(100, 140).number == 4
    assert windows.within(101, 109).number == windows.within(900, 999).number == 0
    assert LEVEL == 0.01


PERIOD = 10 * MS
SPAN = 4_000 * MS


def tied(seed: int, offset_ns: int, *, rises: int = 20, period_ns: int = 0) -> tuple[Windows, Late]:
    """A counter that rises with bursts of late packets, by a clock that is behind by `offset_ns`.

    Bursts come at random, or once each `period_ns`.
    """
    random = np.random.default_rng(seed)
    bounds = np.arange(0, SPAN + PERIOD, PERIOD)
    bursts = random.integers(0, SPAN, 40)
    if period_ns:
        bursts = np.arange(period_ns // 2, SPAN, period_ns)
    increments = random.poisson(0.5, (3, len(bounds) - 1))
    np.add.at(increments[1], bursts // PERIOD, rises)
    times = (bursts[:, None] + np.arange(5) * 200_000).ravel()
    times = np.concatenate((times, random.integers(0, SPAN, 20)))
    excess = random.integers(1, MS, times.size)
    first = offset_ns + 300 * MS
    inside = (times + offset_ns >= first) & (times + offset_ns < first + SPAN // 2)
    late = Late(
        (times + offset_ns)[inside], excess[inside] + 9, excess[inside], first, first + SPAN // 2
    )
    return Windows(bounds, ("a", "b", "c"), increments), late


@pytest.mark.parametrize("offset_ns", [0, 12_345_678_901, -987_654_321])
def test_the_true_offset_is_within_the_interval(offset_ns: int) -> None:
    told = 0
    for seed in range(6):
        found = suggest(*tied(seed, offset_ns))
        assert found is not None
        assert abs(found.best_ns - offset_ns) <= PERIOD
        assert found.low_ns <= offset_ns <= found.high_ns
        assert found.counters["b"] <= 0.01
        told += found.tells
    assert told >= 5  # by chance another offset fits as well, once in a hundred


def test_nothing_is_suggested_where_nothing_ties_them() -> None:
    """In 20 experiments at a level of 1 %."""
    tells = 0
    for seed in range(20):
        found = suggest(*tied(seed, 5_000 * MS, rises=0))
        tells += found is not None and found.tells
    assert tells <= 2  # binomial(20, 0.01): more in 1 of 1,000 such tests


def test_what_returns_with_a_period_fits_again_after_it() -> None:
    found = suggest(*tied(1, 700 * MS, period_ns=100 * MS))
    assert found is not None and not found.tells


def test_without_a_counter_that_rises_there_is_no_suggestion() -> None:
    windows, late = tied(1, 0)
    assert suggest(Windows(windows.bounds_ns, ("a",), windows.increments[:1] * 0), late) is None
    assert suggest(Windows(windows.bounds_ns[:1], (), windows.increments[:0, :0]), late) is None
    nobody = np.empty(0, np.int64)
    assert suggest(windows, Late(nobody, nobody, nobody, 0, SPAN)) is None


SECONDS, PERIOD_NS, TOOK_NS = 2.0, 5_000_000, 1000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Twenty bursts of late packets."""
    return write_run(
        tmp_path / "001-apart", traffic(11, SECONDS, (HOG, 20, (1_500_000, 1_600_000)), rate=5_000)
    )


def sampled(run: Path, clock: Apart, **more: bool) -> None:
    """Samples by the clock of the DuT: a counter rises where packets are late, another does not."""
    [found] = finished_runs(run)
    worst = found.stored.worst_packets
    bounds = np.arange(START, START + int(SECONDS * SECOND), PERIOD_NS)
    late = np.histogram(worst.ingress_ns[worst.latency_ns > 1_000_000], bounds)[0]
    decoy = np.random.default_rng(3).poisson(3, bounds.size - 1)
    counts = [np.append(0, np.cumsum(rises)) for rises in (50 * late, decoy)]
    rows = ["timestamp_us;monotonic_ns;took_ns;LOC_timer_CPU1;7_decoy_CPU1"]
    for at, time in enumerate(bounds.tolist()):
        values = ";".join(str(column[at]) for column in counts)
        rows.append(f"{(time - START) // 1000};{clock.shows(time)};{TOOK_NS};{values}")
    (run / FILE).write_text("".join(f"{row}\r\n" for row in rows))
    say_apart(run, clock, START, START + int(SECONDS * SECOND), **more)


def told(run: Path, options: Options | None = None) -> dict[str, Any]:
    _, [found] = interrupts_of([run], options)
    content: dict[str, Any] = msgspec.to_builtins(found.sampled.record)
    return content


def risen(finding: dict[str, Any]) -> list[str]:
    return [row["name"] for row in finding["counters"] if row["associated"]]


@pytest.mark.parametrize(
    "clock",
    [Apart(), Apart(3_000_000_000), Apart(-70_000_000, drift=1e-4, off=-1.0)],
    ids=str,
)
def test_samples_are_held_against_packets_by_the_clocks(run: Path, clock: Apart) -> None:
    sampled(run, clock)
    found = told(run)
    assert risen(found) == ["LOC_timer_CPU1"]
    offset = found["offset"]
    assert offset["source"] == "clocks"
    middle = START + int(SECONDS * SECOND) // 2
    assert offset["low_ns"] <= middle - clock.shows(middle) <= offset["high_ns"]
    assert offset["high_ns"] - offset["low_ns"] == pytest.approx(clock.width_ns, abs=2)
    assert found["sampler"] is None  # it took a tenth of what the clocks leave open


def test_a_clock_that_is_known_worse_than_a_period_tells_nothing(run: Path) -> None:
    sampled(run, Apart(width_ns=12_000_000))
    found = told(run)
    assert found["answer"] == "cannot-tell"
    assert found["reason"].startswith(
        "the clock of the samples is known to 12 ms only, which is longer than the 5 ms between"
    )
    assert risen(found) == []


def test_a_clock_that_stepped_is_refused_unless_somebody_knows_the_offset(run: Path) -> None:
    sampled(run, Apart(70_000_000), stepped=True)
    with pytest.raises(InputError, match=r"interrupts.csv: the samples cannot be joined with "):
        told(run)
    assert risen(told(run, Options(-70_000_000))) == ["LOC_timer_CPU1"]
