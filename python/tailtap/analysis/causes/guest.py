"""What a guest's kernel did, below what its host did: its trace, its clock, and its seats.

A seat is a core of the guest, which is a thread of the host. docs/explanation/causes.md, "Guests",
says who has the time of a seat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailtap import _core
from tailtap.analysis.causes.taxonomy import TASK, Kernel
from tailtap.analysis.causes.trace import (
    GUEST_EVENTS,
    GUEST_RECORD,
    Trace,
    load_guest,
)
from tailtap.analysis.clocks.host import EGRESS, OF_TWO_CLOCKS, GuestClock, guest_clock
from tailtap.analysis.evaluation.values import Column
from tailtap.base.errors import InputError
from tailtap.records.record import Notice
from tailtap.records.stamps import read_stamps

_LATEST_NS = 1 << 62
_SEAT = re.compile(r"CPU (\d+)/")
"""What QEMU calls the thread of a virtual CPU."""


@dataclass(frozen=True)
class Guest:
    """The guest of a run."""

    trace: Trace
    clock: GuestClock
    seats: Mapping[int, int]
    """The core of the guest that a thread of the host is."""

    @property
    def kernel(self) -> Kernel:
        """By what its packets are served, and what it calls things."""
        return Kernel(self.trace.names, self.trace.served)

    def below(self, host: _core.Cores) -> tuple[_core.Cores, Mapping[str, Any]]:
        """The cores of its host with its own below them, and what the reader of its trace found
        out. Raises `InputError`.
        """
        served = self.trace.served
        cores, notes = _core.Cores.read(
            self.trace.events,
            list(served.cpus),
            self.trace.record.ended_ns,
            serving=served.serving([self.trace.events.parent / EGRESS]),
        )
        seats = [self.seats.get(id) if kind == TASK else None for kind, id, _ in host.owners]
        theirs, ours = (side.tolist() for side in self.clock.moments())
        moments = list(zip(theirs, ours, strict=True))
        return host.with_guest(cores, seats, moments), notes

    def cores_of(self, egress_ns: Column, host: _core.Cores, cpus: Sequence[int]) -> Column:
        """For packets that left its host at some times, the core among `cpus` whose virtual CPU had
        them last; -1 where nobody says.

        The host's stamp does not tell that: it is taken where QEMU's own threads run. Raises
        `InputError`.
        """
        folder = self.trace.events.parent
        ours, theirs = read_stamps(folder / "egress.stamps"), read_stamps(folder / EGRESS)
        place = np.searchsorted(ours["time_ns"], egress_ns.astype(np.uint64))
        ids = ours["id"][np.minimum(place, ours.size - 1)]
        mine = theirs[np.isin(theirs["id"], ids)]
        mine = mine[np.argsort(mine["id"], kind="stable")]
        known = np.append(mine["id"].astype(np.int64), -1)
        at = np.searchsorted(known[:-1], ids)
        seats = self._cores_of_seats(host, cpus)
        core = np.array([seats.get(cpu, -1) for cpu in [*mine["cpu"].tolist(), -1]], np.int64)
        found: Column = np.where(known[at] == ids, core[at], -1)
        return found

    def _cores_of_seats(self, host: _core.Cores, cpus: Sequence[int]) -> dict[int, int]:
        """The core that each virtual CPU's thread has most stretches on; it is pinned to one."""
        found = {}
        for pid, seat in self.seats.items():
            owners = [
                at for at, (kind, id, _) in enumerate(host.owners) if kind == TASK and id == pid
            ]
            found[seat] = max(cpus, key=lambda cpu: len(host.starts(cpu, owners, 0, _LATEST_NS)))
        return found


def guest_of(folder: Path, host: Trace) -> tuple[Guest | None, list[Notice]]:
    """The guest of the run in a folder; None where there is none, or nothing is known of it.

    In the latter case a warning says why.
    """
    if host.served.by != "vcpu":
        return None, []
    if host.clocks is not None:
        return None, [_unknown("guest-clock", OF_TWO_CLOCKS)]
    if not (folder / GUEST_RECORD).is_file():
        cut_off = (folder / GUEST_EVENTS).is_file()
        reason = "it was cut off before its end" if cut_off else "the run has none"
        return None, [_unknown("guest-untraced", reason)]
    try:
        trace = load_guest(folder)
    except InputError as error:
        return None, [_unknown("guest-untraced", str(error))]
    try:
        clock = guest_clock(folder)
    except InputError as error:
        return None, [_unknown("guest-clock", str(error))]
    seats = {pid: int(found[1]) for pid, name in host.names.pids.items()
             if pid in host.served.pids and (found := _SEAT.match(name))}  # fmt: skip
    serving = {pid: cpu for pid, cpu in seats.items() if cpu in trace.served.cpus}
    if not serving:
        reason = "no thread of the host is known to be one of its CPUs that serve"
        return None, [_unknown("guest-untraced", reason)]
    return Guest(trace, clock, serving), []


def _unknown(code: str, reason: str) -> Notice:
    what = "clock" if code == "guest-clock" else "trace"
    return Notice(
        code,
        f"late packets are explained on the host alone: the guest's {what} is not known ({reason})",
    )
