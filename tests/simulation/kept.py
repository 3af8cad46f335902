"""Seeds that found a fault of the program: each is tried again, whatever others are."""

from __future__ import annotations

KEPT: dict[str, tuple[int, ...]] = {
    "clocks": (85, 153, 159, 1385),
    "live": (2, 9, 38),
    "pairs": (784, 2106, 3155, 6457, 7510, 8348),
    "requests": (
        29, 43, 74, 145, 147, 218, 372, 374, 385, 493, 549, 624, 795, 1040, 1179, 1566, 1840,
        2134, 2302, 2521, 2611, 2975, 3332, 3335, 3539, 4021, 4392, 5207, 7594, 8014, 8552, 8959,
    ),
}  # fmt: skip
"""By the name of the trial."""
