"""One function for each kind of number that is shown."""

from __future__ import annotations

import pytest

from tailtap.base.units import (
    exact_rate,
    exact_time,
    format_count,
    format_share,
    format_time,
    format_us,
    format_wait,
    parse_rate,
)


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0, 2, "0"),
        (1, 2, "100 %"),
        (0.999991, 2, "99.9991 %"),
        (0.87, 2, "87 %"),
        (0.954, 2, "95.4 %"),
        (0.99999999999999999, 2, "100 %"),
        (0.5, 2, "50 %"),
        (0.00012345, 2, "0.012 %"),
        (0.00125, 3, "0.125 %"),
        (3e-8, 2, "0.000003 %"),
        (1.234, 2, "120 %"),
    ],
)
def test_a_share_has_so_many_digits_and_no_exponent(share: float, digits: int, text: str) -> None:
    assert format_share(share, digits) == text


@pytest.mark.parametrize("rate", [1, 999, 1_000, 12_345, 1_000_001, 123_456_789])
def test_a_rate_in_a_file_is_exact(rate: int) -> None:
    assert parse_rate(exact_rate(rate)) == rate


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 h"), (90_000_000_000, "90 s"), (86_400_000_000_000, "24 h"), (1_500, "1500 ns")],
)
def test_a_horizon_is_exact(ns: int, text: str) -> None:
    assert exact_time(ns) == text


def test_what_is_no_whole_number_is_rounded_where_it_is_shown() -> None:
    assert (format_time(4_311.6), format_us(4_311.6), format_us(None)) == ("4.312 us", "4.312", "")
    assert (format_wait(20), format_wait(10_000), format_wait(200_000)) == (
        "20 s",
        "2.78 h",
        "2.31 days",
    )
    assert (format_count(1, "packet"), format_count(1_000, "run")) == ("1 packet", "1,000 runs")
