"""How much of a trace is kept in memory while packets are sent, and who writes what is more.

A writer that wakes while packets are sent takes a core from whoever sends or serves them. So there
is room for what a run records, and nothing is written before its last packet has passed. A trace
that does not fit is written meanwhile, on a CPU that neither sends nor serves where there is one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tailtap.host.facts import machine as facts

USED = 2
"""The tracer begins to write when half of the room is used."""
SPARE = 65_536
"""Records that a run has whatever it sends: ticks, tasks, what the tracer itself causes."""
STEERED, THIN, FULL = 2, 5, 8
"""Records for each packet, with a margin: in a thin trace where usual packets have none, in any
other one, and in a full one."""
RECORD_BYTES = 32
SHARE = 8
"""The rings of all CPUs take an eighth of the memory that is available at most."""
LEAST, MOST = 1 << 16, 1 << 26
"""Bounds of the records of a ring; the latter is the tracer's."""


@dataclass(frozen=True)
class Room:
    """What a trace has of memory and of CPUs."""

    records: int
    """What each CPU's ring holds, a power of two."""
    whole: bool
    """Whether all that a run records fits, so that nothing is written while packets are sent."""
    cpu: int | None
    """Where the writer runs; None where every CPU sends or serves."""

    def bytes(self, cpus: int) -> int:
        """What the rings of so many CPUs take."""
        return self.records * RECORD_BYTES * cpus

    def sentence(self, cpus: int) -> str:
        """What `tailtap run --check` says of it."""
        mib = self.bytes(cpus) >> 20
        size = f"trace: {mib} MiB hold {self.records:,} records of each CPU"
        if self.whole:
            return f"{size}; nothing is written before the last packet"
        if self.cpu is not None:
            return f"{size}, and a run may have more: they are written meanwhile on CPU {self.cpu}"
        return (
            f"{size}, and a run may have more: they are written meanwhile on a CPU that sends or "
            "serves, as there is no other, and that makes packets late; shorter runs do not need it"
        )


def room_of(
    packets: int,
    mode: str,
    *,
    steered: bool,
    cpus: int,
    spare: int | None,
    memory: int | None = None,
) -> Room:
    """The room of a run that sends so many packets, on a machine with so much free `memory`.

    `cpus` is how many CPUs are traced, and `spare` one that neither sends nor serves. Unless given,
    the memory is what is free now.
    """
    wanted = records_of(packets, mode, steered=steered)
    if memory is None:
        memory = facts.memory("MemAvailable")
    most = MOST if memory is None else memory // SHARE // RECORD_BYTES // max(1, cpus)
    held = min(wanted, max(LEAST, min(MOST, 1 << max(0, most.bit_length() - 1))))
    return Room(held, held == wanted, spare)


def records_of(packets: int, mode: str, *, steered: bool = False) -> int:
    """What the ring of a CPU should hold for so many packets, a power of two."""
    each = FULL if mode == "full" else STEERED if steered else THIN
    return _power(USED * (packets * each + SPARE))


def spare_cpu(available: Collection[int], busy: Collection[int]) -> int | None:
    """A CPU of those `available` that is not `busy`, the last one; None where there is none."""
    return max(set(available) - set(busy), default=None)


def _power(records: int) -> int:
    """The next power of two."""
    return 1 << (records - 1).bit_length()
