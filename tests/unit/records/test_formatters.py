"""One function for each kind of number that is shown."""

from __future__ import annotations

import pytest

from tailtap.records.units import exact_rate, format_share, parse_rate


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0, 2, "0"),
        (1, 2, "100 %"),
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
