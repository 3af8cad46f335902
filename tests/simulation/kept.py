"""Seeds that found a fault of the program: each is tried again, whatever others are."""

from __future__ import annotations

KEPT: dict[str, tuple[int, ...]] = {}
"""By the name of the trial."""
