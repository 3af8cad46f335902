"""Configurations against each other: what ``tailtap compare --json`` prints. Latencies in ns."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tailtap.base.seen import Seen
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
    no_interval: str | None
    max: Whole | None
    within_ns: Annotated[Count, says("What each latency may be off by, to either side")] = 0


class Predictability(Record, kw_only=True):
    """How predictable a tail is, by its models."""

    runs: Count
    models: Count
    bursts_above: Annotated[
        Number | None, says("Clusters above the level that one is expected above")
    ]
    bounded: Share | None
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
    cpus: Number | None = None
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
    worst: str | None
    repeats: list[RepeatRow]
    worst_first: Annotated[list[Count], says("Places in `repeats`, that of the worst one first")]
    over_first: str | None = None


class Tested(Record, kw_only=True):
    """A test of two configurations, as they were given."""

    first: str
    second: str
    ratio: Number | None
    ratio_low: Number | None
    ratio_high: Number | None
    p: Number
    p_corrected: Annotated[
        Number, says("For all tests of latencies, of events, or of kinds of interrupts")
    ]
    smallest_p: Annotated[Number, says("What so many runs can reach")]


class PairRow(Tested, kw_only=True):
    """Two configurations by their medians."""

    answer: Annotated[Answer, says("What is shown of the second one")]
    second_over_first: str
    slower: str
    faster: str
    significant: bool
    ratio_text: str
    shift_ns: Number | None
    runs_apart: Annotated[bool | None, says("Whether the runs' own intervals leave a gap")]


class Counted(Record, kw_only=True):
    """What a configuration counted per packet that came, with those of the warm-up."""

    counter: str
    chosen: bool
    configuration: str
    values: Annotated[list[Number], says("One for each run that counted it")]
    mean: Number
    deviation: Number | None


class CounterPair(Tested, kw_only=True):
    """A counter of two configurations. Intervals are 95 %, of one test each."""

    counter: str
    answer: Annotated[
        Literal["more", "fewer", "not shown"],
        says("What is shown of the second one"),
    ]
    difference: Annotated[Number | None, says("How many more per packet in the second one")]
    difference_low: Number | None
    difference_high: Number | None


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted under one load."""

    counted: list[Counted] = []
    comparisons: list[CounterPair] = []


class LoadRow(Record, kw_only=True):
    """The configurations under one load."""

    load: str
    traffic: Anything
    percentile: Annotated[Share | None, says("What they are ranked by; 1 is the maximum")]
    percentile_text: str | None
    percentile_by: Choice | None
    configurations: list[Standing]
    floors: Annotated[list[Standing], says("The lab without a device")]
    unranked: list[Configured]
    comparisons: list[PairRow]
    reason: str | None
    counters: Counters = Counters()


class Recommendation(msgspec.Struct, frozen=True):
    """A recommendation of "How low can you go?", and what the data say."""

    name: str
    advice: str
    answer: Met
    because: str


class CompareRecord(Seen, Record, kw_only=True, tag_field="schema", tag="tailtap.compare/1"):
    """``tailtap compare --json``."""

    alpha: Annotated[Share, says("The level of all tests together")]
    worst_repeat: str
    undisturbed: bool = False
    loads: list[LoadRow]
    recommendations: list[Recommendation]
    advice: Texts
    repeats_needed: Annotated[Count, says("How many of each let every comparison be decided")]
    warnings: list[Notice]


GateAnswer = Literal["better", "no worse", "worse", "not shown"]
"""What is shown of the new one: faster, slower by less than the margin, slower by more."""


class GateRow(Record, kw_only=True):
    """One configuration under one load, before and after the change. Latencies in ns."""

    configuration: str
    load: str
    percentile: Annotated[Share | None, says("1 is the maximum")]
    percentile_text: str
    answer: GateAnswer
    reason: str
    base: list[RepeatRow]
    new: list[RepeatRow]
    ratio: Number | None
    ratio_low: Annotated[Number | None, says("Its 95 % interval")]
    ratio_high: Number | None
    p_worse: Annotated[
        Number | None, says("Of so high a latency, were it worse by the margin only")
    ]
    p_no_worse: Annotated[
        Number | None, says("Of so low a latency, were it worse by the whole margin")
    ]
    p_better: Annotated[Number | None, says("Of so low a latency, were there no difference")]
    repeats_needed: Annotated[
        Count | None,
        says("Of each, to tell no difference from the margin at this scatter"),
    ]


class GateRecord(Seen, Record, kw_only=True, tag_field="schema", tag="tailtap.gate/1"):
    """``tailtap compare --worse-than --json``."""

    answer: Annotated[GateAnswer, says("That of the worst row")]
    answers: dict[GateAnswer, Count]
    base: str
    new: str
    margin: Share
    alpha: Annotated[Share, says("The probability that any `worse`, or any `better`, is false")]
    alpha_no_worse: Annotated[Share, says("The probability of a false `no worse`")]
    rows: list[GateRow]
    warnings: list[Notice]


Origin = Literal["program", "machine", "unclear"]
"""What a change is of: nothing else changed; the floor changed, too; the machine changed."""


class AddedRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.history-added/1"):
    """``tailtap history add --json``."""

    history: str
    commit: str
    date: str
    runs: Count
    replaced: Annotated[Count, says("How many of them were there already")]
    left_out: Annotated[Texts, says("Runs without a good result, with the reason")]


class Point(Record, kw_only=True):
    """A commit in a series."""

    commit: str
    date: str
    runs: Count
    value: Annotated[
        Whole | None,
        says("The median of its runs; null where lost packets leave it unknown"),
    ]
    low: Annotated[
        Whole | None,
        says("The lowest of its runs, or of one run the lower end of its interval"),
    ]
    high: Whole | None


class Mark(Record, kw_only=True):
    """A change between two commits of a series."""

    place: Annotated[Count, says("That of the first commit behind it, from 0")]
    before: str
    suspects: Annotated[Texts, says("Commits, the most probable one first")]
    ratio: Annotated[Number | None, says("Of the medians behind and before it")]
    origin: Origin
    floor: Annotated[Number | None, says("The same ratio of `wire`; null where it is not known")]
    noise: Annotated[
        Number | None,
        says("The same ratio of `host noise`; null where it is not known"),
    ] = None
    machine: Texts


class Series(Record, kw_only=True):
    """One configuration under one load, commit by commit."""

    experiment: str
    configuration: str
    load: str
    wire: bool
    percentile: Share
    percentile_text: str
    points: list[Point]
    marks: list[Mark]
    newest: Annotated[
        bool, says("Whether the last change is one of the newest commits, by their own test")
    ] = False
    undecided: Annotated[
        str, says("Why nothing can be said of the newest commits; empty where something can")
    ] = ""


class HistoryRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.history/1"):
    """``tailtap history show --json``."""

    history: str
    commits: Texts
    series: list[Series]
    warnings: list[Notice]
