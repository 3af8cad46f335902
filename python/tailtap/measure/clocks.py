"""The clocks of a measurement: what the DuT's guest or its host told by another one than that of
the stamps, and those of several machines against each other, by questions and answers.

A question leaves at s of our clock, a machine answers with what its clock shows, r, and the answer
is here at t: so theirs is ahead of ours by r - t at least and by r - s at most (`alignment`). It is
asked before and after the measurement, never during it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from tailtap.base.errors import InputError
from tailtap.records.datapath import ByCard, Tapped
from tailtap.records.machine import Timekeeping
from tailtap.records.record import Anything, Notice, Open, as_json
from tailtap.records.run import Found, HostClock, HostClocks

if TYPE_CHECKING:
    from tailtap.analysis.clocks.alignment import Alignment


def guest_clock_of(
    folder: Path, trace: Anything | None, taps: Mapping[str, Open[Tapped]]
) -> tuple[Anything | None, list[Notice]]:
    """`trace_guest` with its `alignment`, where there is a trace of a guest; or why it has none."""
    if trace is None:
        return None, []
    # `--check` needs no arrays
    from tailtap.analysis.clocks.host import OF_TWO_CLOCKS, guest_clock

    try:
        if len({tap.known.clock_device for tap in taps.values()}) > 1:
            raise InputError(OF_TWO_CLOCKS)
        clock = guest_clock(folder)
    except InputError as error:
        message = (
            "late packets are explained on the host alone: the guest's clock is not known "
            f"({error})"
        )
        return trace, [Notice("guest-clock", message)]
    return {**trace, "alignment": as_json(clock.record())}, []


def with_events_by_stamps(found: Found, ingresses: Sequence[ByCard]) -> tuple[Found, list[Notice]]:
    """`events` by the clock of the stamps; or none of them, and why, where nobody knows that.

    `ingresses` are the taps before the DuT, of all flows.
    """
    if not found.events:
        return found, []
    from tailtap.analysis.clocks.host import events_by_stamps, host_clock  # as above

    try:
        if len({tap.clock_device for tap in ingresses}) > 1:
            raise InputError("the events cannot be joined with stamps of flows by a clock each")
        clock = host_clock(found, "the events", next(iter(ingresses), None))
    except InputError as error:
        return replace(found, events=[]), [Notice("event-failed", str(error))]
    if clock is None:
        return found, []
    return replace(found, events=events_by_stamps(found.events, clock)), []


EXCHANGES = 40
"""Questions to a machine each time: the quickest answers count."""
LOOK_SECONDS = 0.5
"""How long a machine that is far away is asked."""
LONGEST_NS = 1 << 62
"""A measurement is one piece: a clock's rate changes when somebody sets another one, which is
looked for."""

WANDER = 1e-7
"""By how much the rates of two quartzes change against each other during a measurement without
anybody's doing, as the machines get warmer: an assumption."""


class Machine(Protocol):
    """Whose clock can be asked; a `Site` is one."""

    def clock(self) -> int:
        """What its monotonic clock shows, in ns."""
        ...

    def timekeeping(self) -> Timekeeping:
        """How its clock is kept."""
        ...


class Clocks:
    """The clocks of a measurement's machines, by the roles that they have."""

    def __init__(self, machines: Mapping[str, Machine], against: str) -> None:
        """`against` is the role of the machine with the clock of the stamps."""
        self._machines, self._against = machines, against
        self._exchanges: dict[str, list[tuple[int, int, int]]] = {role: [] for role in machines}
        self._kept: dict[str, list[Timekeeping]] = {role: [] for role in machines}
        self._looks: list[int] = []

    def look(self) -> None:
        """Ask all machines now; nothing where all roles are on one. Raises `TailtapError`."""
        if len({id(machine) for machine in self._machines.values()}) < 2:
            return
        for role, machine in self._machines.items():
            self._kept[role].append(machine.timekeeping())
            until = time.monotonic() + LOOK_SECONDS
            for _ in range(EXCHANGES):
                asked = time.monotonic_ns()
                self._exchanges[role].append((asked, machine.clock(), time.monotonic_ns()))
                if time.monotonic() > until:
                    break
        self._looks.append(time.monotonic_ns())

    def reading(self) -> tuple[HostClocks | None, list[Notice]]:
        """For each role on another machine than `against`, by how much its clock
        is ahead of that one's, the least and the most, at the first look and at the last one.
        """
        if not self._looks:
            return None, []
        clocks: dict[str, HostClock] = {}
        warnings: list[Notice] = []
        first = self._aligned(self._against)
        for role, machine in self._machines.items():
            before, after = self._kept[role][0], self._kept[role][-1]
            told = HostClock(timekeeping=after)
            if before.rate_ppb != after.rate_ppb or before.slewing_ns:
                warnings.append(_unsteady(role, "was slewed, or made to run at another rate"))
            if machine is not self._machines[self._against]:
                other = self._aligned(role)
                if first is None or other is None:
                    warnings.append(_unsteady(role, "stepped, or changed its rate"))
                else:
                    told = self._told(first, other, role)
                    told.timekeeping = after
            clocks[role] = told
        return HostClocks(against=self._against, **clocks), list(dict.fromkeys(warnings))

    def _aligned(self, role: str) -> Alignment | None:
        """The clock of a role's machine against ours; None where no line fits."""
        import numpy as np  # `--check` needs no arrays

        from tailtap.analysis.clocks.alignment import Crossings, Stepped, align

        asked, shown, answered = np.array(self._exchanges[role], np.int64).T
        try:
            return align(Crossings(asked, shown), Crossings(answered, shown), LONGEST_NS)
        except Stepped:
            return None

    def _bend(self, role: str) -> int:
        """How far the two clocks may be from a line between the first look and the last, in ns.

        A line that leads from one end of a curve to the other is nowhere farther from it than a
        fourth of the time in between times what the rate changed: as far as where it changes at
        once, in the middle. An offset that is slewed away is added.
        """
        changed, slewed = WANDER, 0
        for one in (role, self._against):
            before, after = self._kept[one][0], self._kept[one][-1]
            changed += abs(after.rate_ppb - before.rate_ppb) / 1e9
            slewed += abs(before.slewing_ns)
        return math.ceil(changed * (self._looks[-1] - self._looks[0]) / 4) + slewed

    def _told(self, first: Alignment, other: Alignment, role: str) -> HostClock:
        import numpy as np

        at = np.array([self._looks[0], self._looks[-1]])
        (least, most), (lowest, highest) = first.ahead_ns(at), other.ahead_ns(at)
        ours, theirs = (one.pieces[0].corners[:, 1] for one in (first, other))
        ahead = np.column_stack([lowest - most, highest - least])
        begins, ends = (at + (least + most) // 2).tolist()
        (first_least, first_most), (last_least, last_most) = ahead.tolist()
        return HostClock(
            at_ns=(begins, ends),
            ahead_ns=((first_least, first_most), (last_least, last_most)),
            drifts=(float(theirs.min() - ours.max()), float(theirs.max() - ours.min())),
            widest_ns=int((ahead[:, 1] - ahead[:, 0]).max()),
            exchanges=len(self._exchanges[role]),
            bend_ns=self._bend(role),
        )


def _unsteady(role: str, what: str) -> Notice:
    return Notice(
        "clock-unsteady",
        f"the clock of the machine of the {role} {what} during the run",
    )
