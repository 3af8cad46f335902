"""Configurations against each other: what ``tailtap compare --json`` prints. Latencies in ns."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tailtap.records.record import (
    Anything,
    Count,
    Notice,
    Number,
    Record,
    Share,
    Texts,
    Whole,
    says,
)

Answer = Literal["slower", "faster", "not shown"]
Choice = Literal["option", "require", "support"]
"""What the percentile is by: what somebody said, what is required, or what all runs support."""
Met = Literal["met", "not met", "cannot be told"]
Layout = Literal["separated", "shared"]


class LeftOut(Record, kw_only=True):
    """A run that is not compared."""

    run: str
    reason: str


class Rank(Record, kw_only=True):
    """The first and the last rank that a configuration may have."""

    best: Count
    last: Count


class Within(Record, kw_only=True):
    """The 95 % interval of a percentile within a run."""

    low: Whole
    high: Whole


class RepeatRow(Record, kw_only=True, omit_defaults=True):
    """A repeat of a configuration."""

    run: str
    number: Count
    repeat: Count
    source: str
    packets: Count | None
    lost: Whole | None
    loss: Number | None
    latency: Annotated[Whole | None, says("Null where more packets were lost than lie above it")]
    supported: Annotated[
        bool | None, says("Whether ten packets lie above it; null where nobody says")
    ]
    interval: Within | None
    no_interval: Annotated[str | None, says("Why it has no interval")]
    max: Whole | None
    within_ns: Annotated[Count, says("What each latency may be off by, to either side")] = 0


class Predictability(Record, kw_only=True):
    """How predictable a tail is, by its models."""

    runs: Count
    models: Count
    bursts_above: Annotated[
        Number | None, says("Clusters above the level that one is expected above")
    ]
    bounded: Annotated[Share | None, says("The share of bounded models")]
    papers_bursts_above: Annotated[Number | None, says("By the published method")]
    papers_bounded: Annotated[Share | None, says("By the published method")]


class Resources(msgspec.Struct, frozen=True):
    """What a configuration costs: medians over repeats; null where no run has the value.

    A CPU is busy when it is neither idle nor stolen by a hypervisor. The kernel measures these two
    times. It samples everything else at its ticks, so all ticks or none see work that runs in step
    with them. Only where a hypervisor takes so much from idle CPUs that these two exceed the time
    that passed, the samples count.
    """

    reserved: Annotated[Count | None, says("CPUs of the device")] = None
    cpus: Annotated[
        Number | None,
        says("How many of them were busy on average while packets were sent"),
    ] = None
    cpu_ns: Annotated[Number | None, says("Their busy time for each packet that arrived")] = None
    memory: Annotated[
        Count | None,
        says(
            "In bytes: what the platform reports, the memory of a virtual machine, or "
            "that of the forwarder's processes"
        ),
    ] = None
    watts: Annotated[Number | None, says("Mean power of the machine's processors and memory")] = (
        None
    )


class Cache(msgspec.Struct, frozen=True):
    """The last-level cache as the machine's topology describes it."""

    layout: Annotated[
        Layout,
        says("`separated`: a package has several, each for a group of cores"),
    ]
    level: str
    groups: Count
    others: Annotated[
        tuple[Count, ...], says("CPUs beyond the device's own that share it with them")
    ]
    virtual: Annotated[bool, says("Whether a hypervisor tells this, which may not be the real one")]


Grade = Literal["weak", "fair", "good", "strong"]


class Isolation(msgspec.Struct, frozen=True):
    """How well a platform isolates its guests: a judgement, not a measurement."""

    grade: Grade
    reason: str
    judgement: bool = True


class Configured(Record, kw_only=True):
    """Runs that differ in nothing but the repeat, and what is known besides their latency.

    Of that, null is what nobody knows; of a floor nothing is told.
    """

    label: str
    imported: bool
    aspects: dict[str, str]
    left_out: list[LeftOut]
    predictability: Predictability | None = None
    resources: Resources | None = None
    cache: Cache | None = None
    isolation: Isolation | None = None


class Standing(Configured, kw_only=True):
    """A configuration with good runs; a floor has no rank."""

    rank: Rank | None
    worst: Annotated[str | None, says("The worst repeat")]
    repeats: list[RepeatRow]
    worst_first: Annotated[list[Count], says("Places in `repeats`, that of the worst one first")]
    over_first: Annotated[str | None, says("The ratio to the first configuration")] = None


class PairRow(Record, kw_only=True):
    """Two configurations, as they were given and by their medians."""

    first: str
    second: str
    answer: Annotated[Answer, says("What is shown of the second one")]
    second_over_first: str
    slower: str
    faster: str
    p: Number
    p_corrected: Number
    smallest_p: Annotated[Number, says("What so many runs can reach")]
    significant: bool
    ratio: Number | None
    ratio_low: Number | None
    ratio_high: Number | None
    ratio_text: str
    shift_ns: Number | None
    runs_apart: Annotated[bool | None, says("Whether the runs' own intervals leave a gap")]


class Counted(Record, kw_only=True):
    """What a configuration counted per packet that came, with those of the warm-up."""

    counter: str
    chosen: Annotated[
        bool,
        says("Whether somebody chose it; else a kind of interrupt or softirq"),
    ]
    configuration: str
    values: Annotated[list[Number], says("One for each run that counted it")]
    mean: Number
    deviation: Annotated[Number | None, says("The standard deviation over runs; null of one run")]


class CounterPair(Record, kw_only=True):
    """A counter of two configurations, as they were given. Intervals are 95 %, of one test each."""

    counter: str
    first: str
    second: str
    answer: Annotated[
        Literal["more", "fewer", "not shown"],
        says("What is shown of the second one"),
    ]
    difference: Annotated[Number | None, says("How many more per packet in the second one")]
    difference_low: Number | None
    difference_high: Number | None
    ratio: Annotated[Number | None, says("The second over the first")]
    ratio_low: Number | None
    ratio_high: Number | None
    p: Number
    p_corrected: Annotated[
        Number, says("For all tests of events, or for all of kinds of interrupts")
    ]
    smallest_p: Annotated[Number, says("What so many runs can reach")]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted under one load."""

    counted: list[Counted] = []
    comparisons: list[CounterPair] = []


class LoadRow(Record, kw_only=True):
    """The configurations under one load."""

    load: str
    traffic: Annotated[Anything, says("What is known of it")]
    percentile: Annotated[Share | None, says("What they are ranked by; 1 is the maximum")]
    percentile_text: str | None
    percentile_by: Choice | None
    configurations: list[Standing]
    floors: Annotated[list[Standing], says("The lab without a device")]
    unranked: Annotated[list[Configured], says("Those without a good run")]
    comparisons: list[PairRow]
    reason: Annotated[str | None, says("Why there is no ranking")]
    counters: Counters = Counters()


class Recommendation(msgspec.Struct, frozen=True):
    """A recommendation of "How low can you go?", and what the data say."""

    name: str
    advice: str
    answer: Met
    because: str


class CompareRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.compare/1"):
    """``tailtap compare --json``."""

    alpha: Annotated[Share, says("The level of all tests together")]
    worst_repeat: Annotated[str, says("How the worst repeat is chosen")]
    undisturbed: Annotated[
        bool, says("Whether latencies without pauses from outside were compared")
    ] = False
    loads: list[LoadRow]
    recommendations: list[Recommendation]
    advice: Texts
    repeats_needed: Annotated[Count, says("How many of each let every comparison be decided")]
    warnings: list[Notice]
