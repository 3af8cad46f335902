"""The colours of causes: the same in all reports, in families of one hue.

Interrupts are blue, other work of the kernel green, whoever takes the core orange and red, waiting
yellow, what is outside the kernel's reach purple, and what is no cause grey.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """A colour on white paper and on a dark page."""

    light: str
    dark: str


COLOURS: dict[str, Colour] = {
    "timer": Colour("#1f6fb2", "#5aa9ea"),
    "reschedule-ipi": Colour("#4f9bd9", "#8cc6f0"),
    "function-call-ipi": Colour("#00868f", "#3cc4cc"),
    "tlb-flush": Colour("#4455c7", "#8f9cff"),
    "device-interrupt": Colour("#123f73", "#b9d6f5"),
    "softirq": Colour("#00805a", "#2fc9a0"),
    "foreign-net-rx": Colour("#5f9e2f", "#a5d86c"),
    "kernel-thread": Colour("#d9650b", "#ff9a52"),
    "task": Colour("#c1272d", "#ff7a75"),
    "waiting": Colour("#b08900", "#e8c245"),
    "throttled": Colour("#7d5a00", "#c9a35a"),
    "idle-exit": Colour("#d1ab2a", "#f5de85"),
    "page-fault": Colour("#9a4f2c", "#e0a07e"),
    "frequency": Colour("#8a7f3a", "#cfc58a"),
    "steal": Colour("#8e3a9d", "#d892e6"),
    "gap": Colour("#b8377e", "#f28dc0"),
    "nmi": Colour("#5b2a86", "#b794e0"),
    "own-work": Colour("#5d7183", "#a8bac9"),
    "link": Colour("#3f7f7f", "#86c5c5"),
    "behind": Colour("#8798a8", "#788a9b"),
    "mixed": Colour("#8c8578", "#b3ac9f"),
    "unexplained": Colour("#b9bec3", "#5d666e"),
    "serving": Colour("#c9d8e4", "#3f5365"),
    "idle": Colour("#f0f2f4", "#20272d"),
    "unseen": Colour("#dcdcdc", "#454545"),
}
"""By the names of `taxonomy.CAUSES`, and of what a core does when nothing is wrong."""
