"""The parts of the lab that need no root."""

from __future__ import annotations

import pytest

from tailtap.topology.lab import Lab, cpu_mask


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


def test_a_lab_that_was_not_entered_has_nothing_to_remove() -> None:
    Lab(64).remove()
