"""Why packets were late, ``causes.json``, and what had cores meanwhile, ``noise.json``."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.base.seen import Seen
from tailtap.records.evaluation import FlowRecord, PacketsBothWays, UndisturbedRecord
from tailtap.records.record import (
    Count,
    Cpu,
    Notice,
    Number,
    Record,
    Share,
    Texts,
    Whole,
    Width,
    says,
)
from tailtap.records.trace import Task

ClaimKind = Literal["cause", "by-exclusion", "present"]


class Looked(Record, kw_only=True):
    """The packets that coincidences were tested on."""

    threshold_ns: Annotated[Whole, says("Later packets are late")]
    packets: Count
    stalls: Count
    words: Annotated[str, says("What late means")]


class LateRun(Looked, kw_only=True):
    """The late packets of a run."""

    packets: Width
    median_ns: Whole
    delay_ns: Annotated[Count, says("By how much all of them together are later than the median")]
    looked: Annotated[
        Looked | None,
        says("The packets that coincidences were tested on, if they are others"),
    ]


class ServedBy(Record, kw_only=True):
    """By what packets are served."""

    by: Literal["softirq", "task", "poll", "vcpu", "several"]
    cpus: list[Cpu]
    pids: list[Count]


class Segment(Record, kw_only=True):
    """A part of the device."""

    segment: Width
    nodes: Texts
    by: str
    cpus: list[Cpu]
    packets: Count
    excess_ns: Whole
    words: str


class CauseName(Record, kw_only=True):
    """What a cause is called."""

    cause: str
    detail: str


class Without(Record, kw_only=True, forbid_unknown_fields=True):
    """A tail without the time of some causes."""

    p: Share
    measured_ns: Whole
    percentile_ns: Whole
    measured_worst_ns: Whole
    worst_ns: Whole
    least_ns: Annotated[
        Whole, says("Slower packets are known one by one: a value of it is a bound")
    ]

    @property
    def falls(self) -> bool:
        """Whether the percentile or the largest latency is less without them, or may be."""
        return self.below(self.measured_ns, self.measured_worst_ns)

    def below(self, percentile_ns: int, worst_ns: int) -> bool:
        """Whether one of both is less than these, or may be."""
        return (
            self.percentile_ns < percentile_ns
            or self.percentile_ns <= self.least_ns
            or self.worst_ns < worst_ns
        )


class CauseRow(CauseName, kw_only=True):
    """A cause of late packets."""

    claim: ClaimKind
    packets: Count
    behind: Count
    stalls: Count
    delay_ns: Whole
    worst_ns: Whole
    share: Annotated[Share, says("Of the late packets, how many are its own")]
    beyond_chance: Annotated[
        Number | None, says("Of its overlap with late packets, the part that chance does not give")
    ]
    p_value: Number | None
    shifts: Annotated[Count | None, says("Random shifts that it was held against")]
    basis: str
    without: Without | None
    knobs: Annotated[Texts, says("Candidates against it: they were not tried")]
    task: Annotated[
        Task | None, says("Of tasks: the one that had most of its stalls, as far as that is known")
    ] = None
    processes: Annotated[Count, says("How many processes had its stalls; 0 where nobody says")] = 0
    raised_by: Annotated[
        list[CauseName], says("Of softirqs: what raised those of its stalls, the longest first")
    ] = []

    @property
    def is_cause(self) -> bool:
        """Whether it is more than present."""
        return self.basis != "none"


class Unexplained(Record, kw_only=True):
    """Late packets that nothing explains."""

    packets: Count
    untraced: Annotated[
        Count, says("Of these, how many passed while the trace was paused or its records were lost")
    ]
    delay_ns: Whole


class Period(Record, kw_only=True):
    """A period of late packets."""

    cause: str | None
    detail: str | None
    period_ns: Number
    z: Number
    false_alarm: Number
    sharpness: Number
    words: str


class ProvenKnob(Record, kw_only=True):
    """A knob that `tailtap improve` tried and that helped: a percentile without it, and with it."""

    knob: str
    p: Share
    before_ns: Whole
    after_ns: Whole


class Remove(Record, kw_only=True):
    """What removes causes."""

    knobs: Texts
    packets: Count
    share: Share
    causes: list[CauseName]
    lines: Texts
    without: Without | None
    words: str
    proven: Annotated[
        list[ProvenKnob], says("What was shown to help, here, against causes found")
    ] = []


class ChanceTest(Record, kw_only=True):
    """How coincidences were told from chance."""

    seed: Count
    false_claims: Share


class KernelTold(Record, kw_only=True):
    """What was seen of any kernel."""

    events: Count
    lost: Count
    missing: Texts
    substitutes: Texts


class TraceTold(KernelTold, kw_only=True):
    """What was seen of the kernel."""

    mode: str


class TraceCost(Record, kw_only=True):
    """What the trace cost at a percentile, as runs without a trace say."""

    p: Share
    traced_ns: Whole
    plain_ns: Whole
    more: Annotated[Number, says("0.02 is 2 % more with the trace")]
    least: Number
    most: Number


class Control(Record, kw_only=True):
    """Pairs of runs with and without a trace."""

    runs: Count
    percentiles: list[TraceCost]


class HostClockTold(Record, kw_only=True):
    """How the clock of the device's host stood to that of the stamps."""

    at_ns: list[Whole]
    ahead_ns: list[list[Whole]]
    drifts: list[Number]
    bend_ns: Count
    width_ns: Whole
    coarse: Annotated[Count, says("Late packets that it is too coarse for")]


class GuestClockTold(Record, kw_only=True):
    """How a guest's clock stood to its host's."""

    at_ns: Whole
    offset_ns: list[Whole]
    drift: Number
    drifts: list[Number]
    width_ns: Whole
    widest_ns: Whole
    packets: PacketsBothWays


class GuestTold(KernelTold, kw_only=True):
    """What was seen of a guest's kernel."""

    served: ServedBy
    clock: GuestClockTold
    coarse: Count


class CausePart(CauseName, kw_only=True):
    """A part of a late packet's time, or of a gap."""

    ns: Whole


class LatePacket(CauseName, kw_only=True):
    """One of the worst packets."""

    latency: Count
    ingress_ns: Whole
    egress_ns: Whole
    key: str | None
    segment: Width
    cpu: Cpu | None
    state: str
    parts: list[CausePart]
    stall: Width | None
    words: str


class FlowCause(CauseName, kw_only=True):
    """A cause of a flow's late packets."""

    packets: Count


class LateFlow(Record, kw_only=True):
    """The late packets of a flow."""

    flow: Annotated[str, says("Protocol, from where and to where")]
    late: Count
    worst_ns: Whole
    causes: Annotated[list[FlowCause], says("That of most packets first")]
    whole: Annotated[
        FlowRecord | None,
        says("All packets of it, where `tailtap evaluate --by flow` counted them"),
    ]


class CausesRecord(Seen, Record, kw_only=True, tag_field="schema", tag="tailtap.causes/1"):
    """``causes.json``, which ``tailtap explain --json`` prints, too."""

    run: str
    valid: bool | None
    late: LateRun
    served: ServedBy
    segments: list[Segment]
    causes: list[CauseRow]
    unexplained: Unexplained
    periods: list[Period]
    remove: Remove
    test: ChanceTest
    trace: TraceTold
    control: Control | None
    clock: Annotated[HostClockTold | None, says("Null where trace and stamps have one clock")]
    guest: GuestTold | None
    worst: list[LatePacket]
    flows: Annotated[
        list[LateFlow],
        says("Those with most late packets first; empty where the captures hold no frames"),
    ] = []
    warnings: list[Notice]
    made: Annotated[str | None, says("What the tables beside it say, too")] = None
    undisturbed: Annotated[
        UndisturbedRecord | None,
        says("Latencies without pauses from outside; null where nobody knows"),
    ] = None


class ExplainedRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.explained/1"):
    """``tailtap explain --json`` of several runs."""

    runs: list[CausesRecord]


NOISE = "noise.json"
"""What `tailtap host noise` writes into a folder of results."""


class NoisyCpu(Record, kw_only=True):
    """One core, of which a loop read the clock."""

    cpu: Count
    elapsed_ns: Count
    reads: Count
    least_ns: Count
    gaps: Count
    gap_ns: Count
    unkept: Annotated[Count, says("Gaps of which nothing but their sum is known")]
    median_ns: Annotated[Count | None, says("Of the gaps, as are the next two")]
    p99_ns: Count | None
    worst_ns: Count | None


class NoiseCause(CauseName, kw_only=True):
    """What had the cores in their gaps."""

    gaps: Count
    ns: Count
    worst_ns: Count
    share: Annotated[Share, says("Of the time of all cores")]


class WorstGap(Record, kw_only=True):
    """One of the longest gaps."""

    cpu: Count
    start_ns: Annotated[Count, says("By the kernel's monotonic clock")]
    ns: Count
    parts: list[CausePart]


class NoiseRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.noise/1"):
    """``noise.json``, and what ``tailtap host noise --json`` prints."""

    above_ns: Count
    boot_id: str
    kernel: str
    cpus: list[NoisyCpu]
    causes: list[NoiseCause]
    named: Annotated[Number | None, says("The share of the gaps' time that has a cause")]
    worst: list[WorstGap]
    warnings: list[Notice]
