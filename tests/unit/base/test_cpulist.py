"""Sets of CPUs as the kernel writes them."""

from __future__ import annotations

import pytest

from tailtap.base.units import cpu_mask, list_cpus, parse_cpus


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
