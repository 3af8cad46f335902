"""What is known of a measurement while it runs, for pages, terminals and monitoring."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.causes import CauseName
from tailtap.records.evaluation import Percentile, WorstRecord
from tailtap.records.record import Count, Cpu, Number, Record, Texts, Whole, says
from tailtap.records.trace import By


class LiveCause(CauseName, kw_only=True):
    """What made packets late, of all that was explained so far: runs that are done, incidents, or a
    second now and then where there are none.
    """

    packets: Count
    delay_ns: Count


class LiveBucket(Record, kw_only=True):
    """A bucket of an exponential histogram of schema 5, as Prometheus numbers them."""

    index: Annotated[Whole, says("It is up to 2^(index / 32) s")]
    count: Count


class LiveFlow(Record, kw_only=True, omit_defaults=True):
    """A flow so far."""

    name: str
    ingress: Count
    egress: Count
    matched: Count
    lost: Count
    left_out: Annotated[
        Count,
        says(
            "Packets whose key repeats within the window, copies, and packets behind "
            "the device that nobody saw before it"
        ),
    ]
    rate: Number
    until_ns: Annotated[Count, says("Packets stamped before this time are counted")]
    sum_ns: Count
    max_ns: Count | None = None
    percentiles: Annotated[
        list[Percentile], says("Each is at most a thousandth larger than it is")
    ] = []
    below: Annotated[
        list[Count],
        says("Matched packets not later than 1 us, 2 us, 5 us, … 5 s; exact"),
    ] = []
    exponential: Annotated[list[LiveBucket], says("Matched packets later than 0 ns")] = []
    worst: list[WorstRecord] = []
    tap_lost: Annotated[
        Count | None, says("Stamps that found no room; none where the taps do not tell")
    ] = None


class LiveIncidents(Record, kw_only=True):
    """What a flight recorder kept, and what it did not."""

    kept: Count
    dropped: Count
    late: Annotated[Count, says("Packets above the threshold, kept or not")]
    last: str | None = None


class LiveRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.live/1"):
    """What is known of a measurement while it runs."""

    run: str
    number: Count = 1
    runs: Count = 1
    running: bool = True
    time_ns: Annotated[Count, says("When this was made, by the clock of the taps")]
    elapsed_s: Number
    left_s: Annotated[Number | None, says("Until the end; none where nobody knows it")] = None
    window_ns: Annotated[Count, says("After this time a packet is lost")]
    flows: list[LiveFlow] = []
    trace_lost: Annotated[
        Count | None, says("Records of the trace that found no room; none without a "
                           "trace that tells meanwhile")
    ] = None  # fmt: skip
    causes: list[LiveCause] = []
    incidents: LiveIncidents | None = None
    notes: Texts = []


class RecordingRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.recording/1"):
    """``recording.json``: what a flight recorder saw from its beginning to its end."""

    started: str
    finished: str | None = None
    above: Texts
    keep_ns: Count
    most_incidents: Count
    memory_bytes: Annotated[Count, says("What segments may take in memory")]
    peak_bytes: Count = 0
    dropped_limit: Annotated[Count, says("Incidents beyond --incidents")] = 0
    dropped_rate: Annotated[Count, says("Incidents beyond --rate")] = 0
    dropped_busy: Annotated[
        Count, says("Incidents whose segments were gone, as too much came at once")
    ] = 0
    dropped_disk: Annotated[Count, says("Incidents that the disk had no room for")] = 0
    ended: Annotated[str | None, says("Why incidents were not kept any more, before the end")] = (
        None
    )
    numbers: LiveRecord


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
