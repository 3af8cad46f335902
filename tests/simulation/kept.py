"""Seeds that found a fault of the program: each is tried again, whatever others are."""

from __future__ import annotations

KEPT: dict[str, tuple[int, ...]] = {
    "clocks": (85, 153, 159, 1385),
    "live": (2, 9, 38),
}
"""By the name of the trial."""
