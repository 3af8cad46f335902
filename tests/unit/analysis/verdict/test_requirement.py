"""Requirements, and how often verdicts are wrong, by exact sums and by simulation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from tailtap.analysis.verdict import shares
from tailtap.analysis.verdict.requirement import (
    PROFILES,
    QUANTITIES,
    parse_requirement,
    parse_requirements,
    profile,
)
from tailtap.analysis.verdict.shares import design_effect, judge, lower, needed, upper
from tailtap.base.errors import InputError

MS = 1_000_000
HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("text", "quantity", "argument", "comparator", "limit"),
    [
        ("p99.999 < 1 ms", "percentile", Fraction(99_999, 100_000), "<", MS),
        ("p50<=5us", "percentile", Fraction(1, 2), "<=", 5_000),
        ("median < 5 us", "percentile", Fraction(1, 2), "<", 5_000),
        ("  mean   <  4.312 us ", "mean", None, "<", 4_312),
        ("max < 500 us", "max", None, "<", 500_000),
        ("loss == 0", "loss", None, "==", 0),
        ("loss < 0.1 %", "loss", None, "<", Fraction(1, 1000)),
        ("loss <= 0.1ppm", "loss", None, "<=", Fraction(1, 10_000_000)),
        ("duplicates == 0", "duplicates", None, "==", 0),
        ("reordered < 1 %", "reordered", None, "<", Fraction(1, 100)),
        ("reliability(1 ms) >= 99.999 %", "reliability", MS, ">=", Fraction(99_999, 100_000)),
        ("reliability( 0.5 ms )>99 %", "reliability", MS // 2, ">", Fraction(99, 100)),
        ("return_level(24 h) < 1 ms", "return_level", 24 * HOUR, "<", MS),
        ("gap(p99.9) < 200 us", "gap", Fraction(999, 1000), "<", 200_000),
        ("gap(max) < 1 ms", "gap", 1, "<", MS),
        ("blocked(reload) < 50 ms", "blocked", None, "<", 50 * MS),
    ],
)
def test_what_is_understood(
    text: str, quantity: str, argument: object, comparator: str, limit: object
) -> None:
    found = parse_requirement(text)
    assert (found.quantity, found.argument) == (quantity, argument)
    assert (found.comparator, found.limit) == (comparator, limit)
    assert parse_requirement(found.text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "compares nothing: write a quantity, < or <=, and a limit"),
        ("p99.999", "'p99.999' compares nothing"),
        ("urllc-5g", "'urllc-5g' is a profile, not a requirement: write profile urllc-5g"),
        ("p99.999 1 ms", "compares nothing"),
        ("p99 < 1 mss", "'1 mss' is not a time"),
        ("p99 < 1", "1 has no unit: write '1 s', or take one of ns, us"),
        ("p99 <", "'' is not a time"),
        ("p99 < 0 ms", "'0 ms' must be more than nothing"),
        ("p99 < -1 ms", "'-1 ms' is not a time"),
        ("p100 < 1 ms", "'p100' is no percentile: write p and a number above 0 and below 100"),
        ("p100 < 1 ms", "; write max"),
        ("p0 < 1 ms", "'p0' is no percentile"),
        ("p9.9.9 < 1 ms", "'p9.9.9' is no percentile"),
        ("p99,9 < 1 ms", "'p99,9' is no percentile: write p and a number above 0"),
        ("P99 < 1 ms", "'P99' is no percentile"),
        ("p99 > 1 ms", "'>' does not go with p99: write < or <="),
        ("p99 =< 1 ms", "'=<' does not go with p99"),
        ("p99 == 1 ms", "'==' does not go with p99"),
        ("p99 < 1 ms < 2 ms", "'1 ms < 2 ms' is not a time"),
        ("los == 0", "there is no quantity 'los': did you mean 'loss'?"),
        (
            "throughput > 1 ms",
            "there is no quantity 'throughput': known: median, p99.999, mean, max",
        ),
        ("percentile < 1 ms", "there is no quantity 'percentile': known: median, p99.999"),
        ("< 1 ms", "there is no quantity ''"),
        ("loss < 5", "'5' is no share of packets: write a number and % or ppm, such as 0.1 %"),
        ("loss == 1 %", "== is for 0 only; write < or <="),
        ("loss < 0", "nothing is below 0; write == 0"),
        ("loss < 101 %", "'101 %' is more than all packets"),
        ("loss(1 ms) == 0", "'loss(1 ms)' is written loss"),
        ("reliability >= 99 %", "'reliability' is written reliability(1 ms)"),
        ("reliability() >= 99 %", "'' is not a time"),
        ("reliability(1 ms) < 99 %", "'<' does not go with reliability(1 ms): write >= or >"),
        ("reliability(1 ms) > 100 %", "nothing is above 100 %; write >= 100 %"),
        ("return_level(a day) < 1 ms", "'a day' is not a time"),
        ("gap(1 ms) < 1 ms", "'1 ms' is no percentile"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_requirement(text)
    message = str(caught.value)
    assert said in message and "\n" not in message
    assert message.startswith(f"'{' '.join(text.split())}'")


@given(st.text(max_size=40))
def test_any_text_is_a_requirement_or_one_line(text: str) -> None:
    try:
        found = parse_requirement(text)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.quantity in QUANTITIES


@given(
    st.decimals("0.0001", "99.9999999", places=7),
    st.sampled_from(["<", "<="]),
    st.integers(1, 10**6),
    st.sampled_from(["ns", "us", "ms", "s"]),
)
def test_percentiles_are_exact(p: object, comparator: str, limit: int, unit: str) -> None:
    found = parse_requirement(f"p{p}{comparator}{limit} {unit}")
    assert found.argument == Fraction(str(p)) / 100
    assert found.limit.denominator == 1 and found.strict == (comparator == "<")


def test_profiles_are_requirements_with_a_source() -> None:
    for name, row in PROFILES.items():
        required = profile(name)
        assert required and {one.profile for one in required} == {name}
        assert row.source and all(len(text) < 200 for text in (row.source, row.reading))
    (urllc,) = profile("urllc-5g")
    assert (urllc.argument, urllc.limit) == (Fraction(MS), Fraction(99_999, 100_000))


def test_lists_of_requirements_and_profiles() -> None:
    found = parse_requirements(["loss == 0", "profile fronthaul", "loss == 0"])
    assert [one.text for one in found] == ["loss == 0", "max <= 100 us", "loss <= 0.1 ppm"]
    with pytest.raises(InputError, match=r"no profile 'urllc': did you mean 'urllc-5g'\?"):
        parse_requirements(["profile urllc"])
    with pytest.raises(InputError, match="99 is no requirement"):
        parse_requirements([99])  # type: ignore[list-item]


@given(st.integers(0, 2000), st.integers(1, 10**10), st.floats(0.5, 0.9999))
@example(999, 10**9, 0.95)  # scipy's own inverse is wrong there
def test_bounds_are_those_of_clopper_and_pearson(k: int, n: int, sure: float) -> None:
    """At the bound, as many or as few late packets are just as improbable as was asked for."""
    k = min(k, n)
    if k < n:
        assert stats.binom.cdf(k, n, upper(k, n, sure)) == pytest.approx(1 - sure, rel=1e-6)
    else:
        assert upper(k, n, sure) == 1
    if k:
        assert stats.binom.sf(k - 1, n, lower(k, n, sure)) == pytest.approx(1 - sure, rel=1e-6)
    else:
        assert lower(k, n, sure) == 0


@settings(deadline=None)
@given(
    st.integers(0, 2000),
    st.floats(1e-7, 0.5),
    st.one_of(st.just(1.0), st.floats(1, 300)),
    st.floats(0.5, 0.999),
)
@example(12, 1e-7, 1.0, 0.8436111407725688)  # a packet short, by rounding
@example(999, 1e-7, 1.0, 0.5)
def test_what_is_needed_is_enough_and_hardly_more(
    late: int, allowed: float, effect: float, sure: float
) -> None:
    n = needed(late, allowed, effect, sure)
    assert judge((late, late), n, allowed, effect, sure) == "holds"
    fewer = int(n - effect) - 1
    assert judge((late, late), fewer, allowed, effect, sure) != "holds" or late > fewer


def test_the_design_effect_of_known_bursts() -> None:
    position = np.concatenate([start + np.arange(10) for start in range(0, 1_000_000, 50_000)])
    latency = np.full(position.size, 5_000)
    assert design_effect(position, latency, 1_000_000, 4_000) == 10
    # None is late: the largest latencies tell.
    assert design_effect(position, latency, 1_000_000, 6_000) == 10
    alone = np.arange(0, 1_000_000, 5_000)
    assert design_effect(alone, np.full(alone.size, 5_000), 1_000_000, 4_000) == 1


def test_no_design_effect_of_hardly_any_packets() -> None:
    for packets in (0, 1, 5, 60):
        position = np.arange(packets)
        assert design_effect(position, np.full(packets, 7), packets, 5) == 1
        assert design_effect(position, np.full(packets, 7), packets, 9) == 1


def test_what_counts_as_support_is_what_evaluations_call_so() -> None:
    for nines, packets in ((1, 100), (3, 10_000), (5, 1_000_000), (6, 10_000_000)):
        assert shares.supporting(10.0**-nines) == packets
