"""The parts of the lab that need no root."""

from __future__ import annotations

from tailtap.topology.lab import Lab
from tailtap.topology.smallest import smallest


def test_a_lab_that_was_not_entered_has_nothing_to_remove() -> None:
    Lab(smallest()).remove()
