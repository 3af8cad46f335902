"""What the record of a run says of a device that was observed, and not made: `tailtap observe`."""

from __future__ import annotations

from typing import Literal

from tailtap.records.record import Count, Cpu, Number, Record, Texts
from tailtap.records.trace import By

Moment = Literal["arrival", "egress"]
"""When packets of an interface are stamped: as they come in by it, or as they leave by it."""


class ObservedPoint(Record, kw_only=True, omit_defaults=True):
    """An interface at which packets were stamped."""

    target: str
    """As it was asked for."""
    interface: str
    at: Moment
    kind: str
    """What kind of interface it is, in words: ``veth, a port of the bridge br0``."""
    namespace: str
    """Whose network namespace it is in, in words."""
    inode: Count
    """The number of that namespace."""
    stamped: str
    """Where its packets are stamped, and what of their way lies outside."""
    xdp: Texts = []
    """XDP programs that ran before its packets were stamped."""
    xdp_dropped: Count | None = None
    """Packets that these dropped meanwhile, where the interface's driver counts them."""


class ObservedServer(Record, kw_only=True, omit_defaults=True):
    """What serves packets."""

    by: By
    cpus: list[Cpu]
    threads: dict[str, str] = {}
    """The number of each thread, and its name."""
    share: Number | None = None
    """Of the packets of the look, those that left while it had the core."""


class ObservedCost(Record, kw_only=True):
    """What observing took of the time of the cores that were seen serving; 1 is all of it."""

    budget: Number | None = None
    taps: Number
    trace: Number
    measured_ns: Count
    """For how long that was measured."""


class Observed(Record, kw_only=True, omit_defaults=True):
    """How a device was observed."""

    points: list[ObservedPoint]
    """Before the device, and behind it."""
    servers: list[ObservedServer]
    traced: list[Cpu] = []
    found: Texts = []
    """What was found out of who serves packets, and how, a sentence each."""
    unknown: Texts = []
    """What of that could not be found out."""
    looked_ns: Count = 0
    """How long packets were looked at before."""
    filter: str | None = None
    sample: Count = 1
    """One packet in so many was asked for."""
    cost: ObservedCost | None = None
