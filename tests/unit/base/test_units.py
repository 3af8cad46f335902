"""Quantities as people write them, and as nobody should."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import InputError
from tailtap.base.units import (
    TIME_UNITS,
    cpu_mask,
    list_cpus,
    parse_cpus,
    parse_rate,
    parse_share,
    parse_size,
    parse_time,
)

LARGEST = 9 * 10**18


@given(
    whole=st.integers(0, 10**20),
    decimals=st.text("0123456789", max_size=30),
    exponent=st.none() | st.integers(0, 10**13),
    unit=st.sampled_from(list(TIME_UNITS)),
)
def test_a_time_is_exact_or_refused(
    whole: int, decimals: str, exponent: int | None, unit: str
) -> None:
    number = f"{whole}.{decimals}" if decimals else str(whole)
    text = f"{number}{'' if exponent is None else f'e{exponent}'} {unit}"
    with localcontext(prec=200):
        value = Decimal(number) * TIME_UNITS[unit]
        value = value.scaleb(exponent or 0) if (exponent or 0) <= 30 else Decimal("inf")
        if value > LARGEST:
            with pytest.raises(InputError):
                parse_time(text)
        else:
            assert parse_time(text) == int(value.to_integral_value(ROUND_HALF_EVEN))


def test_the_largest_quantities() -> None:
    assert parse_time("9e18 ns") == parse_size("9000000000000000000 B") == LARGEST
    assert parse_rate("9000000000000.000000 Mpkt/s") == LARGEST
    with pytest.raises(InputError, match="is too large for a time: the most is 9e18 ns"):
        parse_time("9000000000000000001 ns")


@pytest.mark.parametrize(
    ("text", "share"), [("100 %", 1.0), ("1", 1.0), ("0.5%", 0.005), ("0.005", 0.005), ("0", 0.0)]
)
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["1.01", "100.1 %", "1e30", "1e999999999", "1e999999999%"])
def test_a_share_of_more_than_everything(text: str) -> None:
    with pytest.raises(InputError, match="more than everything"):
        parse_share(text)


def test_lists_of_cpus() -> None:
    assert parse_cpus("0-2,5,8-9\n") == (0, 1, 2, 5, 8, 9)
    assert parse_cpus("\n") == ()
    assert list_cpus((3, 1)) == "1,3"


@pytest.mark.parametrize(
    ("cpus", "mask"),
    [
        ([0], "00000001"),
        ([1], "00000002"),
        ([0, 1, 5], "00000023"),
        ([31], "80000000"),
        ([32], "00000001,00000000"),
        ([0, 64], "00000001,00000000,00000001"),
    ],
)
def test_cpu_masks_are_written_as_the_kernel_reads_them(cpus: list[int], mask: str) -> None:
    assert cpu_mask(cpus) == mask


def test_a_list_holds_no_more_cpus_than_a_kernel_has() -> None:
    for text in ("0-99999999999", "99999999999"):
        with pytest.raises(ValueError, match="no machine has a CPU 99999999999"):
            parse_cpus(text)
    assert parse_cpus("0-8191")[-1] == 8191
