"""The table of knobs: what on a host adds tail latency, a file for each group.

A row is a `Knob` (`knob.py`) in the `ROWS` of its group's file. What it removes and costs stands in
`tailtap.records.knobs`, which explaining a run reads; nothing else has to know of it.
Packages of others add rows by entry points of the group ``tailtap.knobs``, each of which names a
`Knob`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.base.errors import InputError, did_you_mean
from tailtap.base.registry import Registry
from tailtap.host.knobs import (
    cards,
    cpus,
    frequency,
    guests,
    interrupts,
    memory,
    scheduling,
    services,
)
from tailtap.host.knobs.knob import GROUPS, Knob

FILES = (
    cpus,
    interrupts,
    memory,
    frequency,
    cards,
    scheduling,
    guests,
    services,
)


TABLE: Registry[Knob] = Registry(
    "knob",
    "tailtap.knobs",
    Knob,
    lambda: {knob.name: knob for file in FILES for knob in file.ROWS},
)
"""Every row by its name, those of other packages included."""
KNOBS: tuple[Knob, ...] = tuple(
    sorted((knob for _, knob in TABLE.working()), key=lambda knob: GROUPS.index(knob.group))
)
"""Every row that works, group by group."""


def named(name: str) -> Knob | None:
    """The knob of that name."""
    return next((knob for knob in KNOBS if knob.name == name), None)


def select(names: Sequence[str]) -> list[Knob]:
    """The knobs and the knobs of the groups `names`, in the order of the table; all by default.

    Raises `InputError` for a name that is neither, and `MachineError` for the knob of a package
    that does not work.
    """
    known = [*(knob.name for knob in KNOBS), *GROUPS]
    for name in names:
        if name not in known:
            if name in TABLE:
                _ = TABLE[name]  # says why it does not work
            raise InputError(f"there is no knob or group {name!r}: {did_you_mean(name, known)}")
    return [knob for knob in KNOBS if not names or knob.name in names or knob.group in names]
