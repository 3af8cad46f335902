"""The clock of the DuT's host against that of the stamps, where these are of two machines.

On a testbed packets are stamped on one host, and what the DuT's kernel did is recorded on another.
Both were asked what their clocks show before and after the run (`measure.hosts_clocks`), so that
the difference is known as an interval at two moments. Between them the truth is a line, but for
what the rates of the clocks changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tailtap.analysis.clocks.alignment import Times, on_lines
from tailtap.base.errors import InputError
from tailtap.records.causes import HostClockTold
from tailtap.records.run import Event, Found


@dataclass(frozen=True)
class HostClock:
    """What the clock of the DuT's host shows, said by that of the stamps."""

    at_ns: tuple[int, int]
    """Two moments of the stamps' clock."""
    ahead_ns: tuple[tuple[int, int], tuple[int, int]]
    """By how much the DuT's is ahead then, the least and the most."""
    drifts: tuple[float, float]
    """How much faster it runs, the least and the most."""
    bend_ns: int
    """How far from a line the clocks may have been in between."""

    def moments(self) -> tuple[Times, Times]:
        """Moments of the DuT's clock and of the stamps', in ns: the clock is the line between."""
        ours = np.array(self.at_ns, np.int64)
        least, most = np.array(self.ahead_ns, np.int64).T
        return ours + (least + most) // 2, ours

    def stamps_ns(self, times: Times) -> Times:
        """The stamps' time for times of the DuT, by this line, in ns."""
        return on_lines(times, *self.moments())

    def off_ns(self, times: Times) -> Times:
        """How far this line may be from the truth at times of the stamps, in ns."""
        first, last = self.at_ns
        half = [-(-(most - least) // 2) for least, most in self.ahead_ns]
        between = on_lines(np.clip(times, first, last), np.array(self.at_ns), np.array(half))
        beyond = np.maximum(first - times, 0) + np.maximum(times - last, 0)
        wandered = np.ceil(beyond * (self.drifts[1] - self.drifts[0])).astype(np.int64)
        off: Times = between + wandered + self.bend_ns
        return off

    @property
    def width_ns(self) -> int:
        """How wide the interval of the clocks' difference is at most, during the run."""
        return 2 * int(self.off_ns(np.array(self.at_ns, np.int64)).max())

    def record(self, coarse: int) -> HostClockTold:
        """What `causes.json` says of it; it is too `coarse` for so many late packets."""
        return HostClockTold(
            at_ns=list(self.at_ns),
            ahead_ns=[list(ends) for ends in self.ahead_ns],
            drifts=list(self.drifts),
            bend_ns=self.bend_ns,
            width_ns=self.width_ns,
            coarse=coarse,
        )


def host_clock(found: Found | None, what: str) -> HostClock | None:
    """The clock of the DuT's host, by what was found in a run; None where it is that of the stamps.

    Hosts that share a kernel have one clock. Raises `InputError` where the machines are two and
    nobody knows how their clocks stand; `what` is what cannot be joined with the stamps then.
    """
    clocks = found.clocks if found else None
    if found is None or clocks is None or clocks.against not in found.stations:
        return None
    told = clocks.dut
    if told is None or told.at_ns is None or told.ahead_ns is None or told.drifts is None:
        raise InputError(
            f"{what} cannot be joined with stamps that another machine took: the clock of one of "
            "them stepped, or changed its rate, during the run (clock-unsteady): measure again, "
            "with clocks that are slewed"
        )
    clock = HostClock(told.at_ns, told.ahead_ns, told.drifts, told.bend_ns)
    if clock.at_ns[0] >= clock.at_ns[1]:
        raise InputError("clocks of run.json: damaged: their moments do not ascend; measure again")
    return clock


def events_by_stamps(events: Sequence[Event], clock: HostClock) -> list[Event]:
    """Events that the DuT's host told of, by the clock of the stamps, and how far they may be off.

    One that has not ended has no end here either.
    """
    times = np.array(
        [(one.begin_ns, one.begin_ns if one.end_ns is None else one.end_ns) for one in events],
        np.int64,
    ).reshape(-1, 2)
    stamps = clock.stamps_ns(times)
    return [
        replace(
            event, begin_ns=begin, end_ns=None if event.end_ns is None else end, within_ns=within
        )
        for event, (begin, end), within in zip(
            events, stamps.tolist(), clock.off_ns(stamps).max(axis=1).tolist(), strict=True
        )
    ]
