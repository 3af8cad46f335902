"""An evaluation: ``evaluation.json``, which ``tailtap evaluate --json`` prints, too."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailtap.records.record import (
    Count,
    Cpu,
    Extremes,
    Notice,
    Number,
    Record,
    Share,
    Texts,
    Whole,
    Width,
    says,
)


class Percentile(msgspec.Struct, frozen=True):
    """A percentile of the latency with its 95 % confidence interval, in nanoseconds.

    `low` or `high` is None where no packet bounds the interval on that side. `above` counts the
    packets of higher rank; with fewer than ten the percentile is not `supported`.
    """

    p: Share
    value: Whole
    low: Whole | None
    high: Whole | None
    above: Count
    supported: bool


Ends = Annotated[list[Number], Meta(min_length=2, max_length=2)]
"""The least and the most that something may be."""
Interval = Annotated[list[Whole], Meta(min_length=2, max_length=2)]
"""The same in whole numbers."""


class Bounds(Record, kw_only=True):
    """What minimum, mean and maximum are at least and at most, where latencies are uncertain."""

    min: Interval
    mean: Ends
    max: Interval


class Latency(Record, kw_only=True, omit_defaults=True):
    """The latency of an evaluation in short, in ns."""

    min: Whole
    mean: Number
    max: Whole
    percentiles: list[Percentile]
    bounds: Bounds | None = None


class Counts(Record, kw_only=True):
    """What became of packets."""

    ingress: Annotated[Count, says("Packets captured before the device")]
    egress: Annotated[Count, says("Packets captured after the device")]
    matched: Annotated[Count, says("Packets seen on both sides: the latencies are of these")]
    lost: Annotated[
        Count,
        says(
            "Packets seen before the device and not after it within the window, of the common time"
        ),
    ]
    unmatched_egress: Annotated[Count, says("Packets after the device without a match before it")]
    duplicate_ingress: Annotated[
        Count, says("Packets whose key repeats before the device; left out")
    ]
    duplicate_egress: Annotated[Count, says("Further copies after the device: in no statistic")]
    reordered: Annotated[Count, says("Packets that left after one that had arrived later")]
    noncausal: Annotated[Count, says("Packets stamped after the device before they were before it")]
    trimmed_ingress: Annotated[Count, says("Packets left out at the start, before the device")]
    trimmed_egress: Annotated[
        Count,
        says("Packets left out at the start, or as the sample changed, after the device"),
    ]
    unkeyed_ingress: Annotated[Count, says("Packets before the device without the key")]
    unkeyed_egress: Annotated[Count, says("Packets after the device without the key")]
    unread_ingress: Annotated[Count, says("Packets before the device that were not read")]
    unread_egress: Annotated[Count, says("Packets after the device that were not read")]
    matched_in_order: Annotated[
        Count,
        says("Pairs of packets that are equal to others, told apart by their order"),
    ] = 0
    merged_ingress: Annotated[
        Count, says("Packets that left the device in one packet with others")
    ] = 0
    parts_egress: Annotated[
        Count,
        says("Pieces of packets, after the device; the last of each is a match"),
    ] = 0
    outside_ingress: Annotated[
        Count,
        says("Packets before the device that the capture after it may have begun or ended without"),
    ] = 0
    outside_egress: Annotated[
        Count,
        says("Packets after the device that the capture before it may have begun or ended without"),
    ] = 0
    not_forwarded: Annotated[
        Count, says("Packets that no such device forwards, and that did not leave it")
    ] = 0
    to_device: Annotated[
        Count, says("Packets that were addressed to the device, and did not leave it")
    ] = 0
    noncausal_ingress: Annotated[
        Count, says("Packets before the device whose copies after it all have earlier stamps")
    ] = 0


class FileRecord(Record, kw_only=True):
    """A file of several that make one capture."""

    path: str
    packets: Annotated[Count, says("Packets in it, those of other sides included")]


class Side(Record, kw_only=True, omit_defaults=True):
    """A capture."""

    path: str
    format: str
    clock: str
    packets: Count
    first_ns: Whole
    last_ns: Whole
    resolution_ns: Width
    fcs_bytes: Count
    trailer: Annotated[str | None, says("The switch whose trailers the stamps were taken from")] = (
        None
    )
    unread: dict[str, Count]
    files: list[FileRecord] | None = None
    chosen: Annotated[str | None, says("Which packets of its files were taken, if not all")] = None
    others: Count = 0
    copies: Annotated[
        Count, says("Exact copies within moments, as mirror ports make them; left out")
    ] = 0

    @property
    def whole(self) -> bool:
        """Whether it is all packets of one file."""
        return self.files is None and self.chosen is None and self.others == 0


class Sides(Record, kw_only=True):
    """The captures of both sides."""

    ingress: Side
    egress: Side

    @property
    def both(self) -> tuple[Side, Side]:
        """The capture before the device, and that behind it."""
        return self.ingress, self.egress


class Matched(Record, kw_only=True, forbid_unknown_fields=True):
    """What the matcher says of two captures beside its columns: `crates/python/src/records.rs`."""

    key: str
    key_after: str | None
    key_reason: str | None
    counts: Counts
    device: Device | None
    mean: Annotated[Number | None, says("Null where nothing was matched")]
    inputs: Sides
    warnings: list[Notice]


Nanoseconds = Literal["ingress", "egress", "both"]
"""Which captures have stamps in nanoseconds though they say microseconds."""
Stamps = Literal["record", "trailer"]
"""Where stamps are taken from: the records of captures, or the trailers of a switch."""


class Options(Record, kw_only=True, omit_defaults=True):
    """How packets were evaluated."""

    trim_ns: Count
    window_ns: Count
    bucket_ns: Width
    nanoseconds: Nanoseconds | None = None
    stamps: Stamps | None = None
    throughout: Annotated[
        bool, says("Whether both captures are known to have run all the time")
    ] = False
    worst: Count


class PacketsBothWays(Record, kw_only=True):
    """The packets that two clocks were aligned by."""

    there: Count
    back: Count


class ClocksRecord(Record, kw_only=True, omit_defaults=True):
    """How the clock behind the device is to the one before it, where these are two."""

    by: Literal["interval", "packets", "readings"]
    ahead_ns: Annotated[list[Interval], says("By how much it is ahead, at least and at most")]
    at_ns: Annotated[list[Whole] | None, says("When it was: the first and the last time")] = None
    drifts: Annotated[Ends | None, says("How much faster it runs, at least and at most")] = None
    packets: PacketsBothWays | None = None
    readings: Annotated[Count | None, says("How often the cards' clocks were read")] = None
    back: Texts | None = None
    widest_ns: Count
    within_ns: Annotated[Count, says("What a latency may be off by, to either side")]


class WithinRecord(Record, kw_only=True):
    """What every latency may be off by, to either side, and what of that is of what."""

    within_ns: Count
    clocks_ns: Count
    resolution_ns: Count


_HASH = re.compile(r"(?:^|(?<! id) )(?:[0-9a-f]{8}|[0-9a-f]{16})$")


def packet_name(key: str, after_ns: int) -> str:
    """What a packet is called: its id and flow as far as its key has them, and when it came.

    `after_ns` is the time since the first packet before the device. A hash tells nobody anything.
    """
    named = key if key.isdigit() and len(key) < 16 else _HASH.sub("", key)
    numbered = f"packet {named}" if named.isdigit() else named or "packet"
    return f"{numbered} at {after_ns / 1e9:.6f} s"


class WorstRecord(Record, kw_only=True, omit_defaults=True):
    """One of the worst packets; times in ns."""

    latency: Whole
    ingress_ns: Whole
    egress_ns: Whole
    key: str
    hops: Annotated[
        list[Whole | None] | None,
        says("What it took for each hop; null where a stamp is missing"),
    ] = None


class LossRecord(Record, kw_only=True):
    """A packet that came to the device and did not leave it."""

    ingress_ns: Whole
    position: Count
    length: Annotated[
        Count | None,
        says("Bytes, without the check sequence; null where the capture does not say"),
    ]
    burst: Annotated[Width, says("Packets in a row that were lost, itself among them")]
    flow: str
    key: str


class FlowRecord(Record, kw_only=True):
    """A flow, by what its packets are before the device."""

    flow: Annotated[str, says("Protocol, from where and to where; empty where there are no frames")]
    packets: Count
    matched: Annotated[Count, says("Packets seen on both sides")]
    lost: Count
    latency_ns: Latency | None


class LossPattern(Record, kw_only=True):
    """What lost packets have in common, beyond chance."""

    kind: Literal["flow", "length", "period", "bursts", "load", "stall"]
    lost: Annotated[Count, says("How many of the lost packets it holds for")]
    text: str


Part = Literal["node", "queue"]
"""What a hop is: a node, or the queue in which packets wait until a node receives them."""


class HopRecord(Record, kw_only=True):
    """A hop of an evaluation: from one tap point to the next."""

    hop: Width
    node: str
    part: Part
    counts: Counts
    latency_ns: Latency
    slowest_of_worst: Annotated[
        Count, says("Of how many of the worst packets it took the longest part")
    ]
    warnings: list[Notice]


class Floor(Record, kw_only=True):
    """The largest latencies: above what they are kept, and how many."""

    floor_ns: Whole
    packets: Count


class BlockWidth(Record, kw_only=True):
    """How long the stretches of time are that blocks are of."""

    width_ns: Width


class Change(Record, kw_only=True):
    """Something that the device changed in packets."""

    what: Annotated[str, says("A field, or `headers`: those between Ethernet and IP")]
    before: Annotated[
        str,
        says("What it was in most of the packets that it was changed in, if anything"),
    ]
    after: Annotated[str, says("What it became in these, if anything")]
    packets: Width
    ways: Width


class Device(Record, kw_only=True):
    """What the device did to packets, as the first ones that are in both captures show."""

    looked_at: Width
    changes: list[Change]


class EvaluationRecord(
    Record, kw_only=True, omit_defaults=True, tag_field="schema", tag="tailtap.evaluation/1"
):
    """``evaluation.json``."""

    key: Annotated[str, says("What packets were matched by")]
    key_after: Annotated[
        str | None, says("What packets behind the device were matched by, if not `key`")
    ] = None
    key_reason: str | None
    counts: Counts
    device: Annotated[
        Device | None, says("What the device did to packets, if captures have frames")
    ] = None
    latency_ns: Latency
    worst: list[WorstRecord]
    losses: Annotated[
        list[LossRecord] | None, says("The first lost packets, if that was asked")
    ] = None
    loss_patterns: Annotated[
        list[LossPattern] | None,
        says("What the lost packets have in common, if that was looked for"),
    ] = None
    flows: Annotated[
        list[FlowRecord] | None,
        says("Each flow, if that was asked: those that lost most first, the further ones last"),
    ] = None
    hops: list[HopRecord] | None = None
    clocks: ClocksRecord | None = None
    within: WithinRecord | None = None
    inputs: Sides
    options: Options
    exceedances: Floor
    blocks: BlockWidth
    warnings: list[Notice]
    made: Annotated[str | None, says("What the tables beside it say, too")] = None
    back: Annotated[
        EvaluationRecord | None,
        says("The way back, where the captures hold both directions"),
    ] = None


Match = Literal["auto", "packets", "transactions"]
"""What is looked for in captures."""
From = Literal["first", "last"]
"""What a wait counts from: the first time that a request was sent, or the last."""


class TransactionCounts(Record, kw_only=True):
    """What became of requests and answers of one kind."""

    requests: Annotated[Count, says("Requests; those sent again count once")]
    answered: Annotated[Count, says("Requests with an answer: the latencies are of these")]
    unanswered: Annotated[Count, says("Requests without an answer within the window")]
    open_at_end: Annotated[
        Count,
        says("Requests without an answer whose window had not passed when the capture ended"),
    ]
    refused: Annotated[
        Count,
        says("Requests refused or withdrawn: by RST, an alert of TLS, or RST_STREAM"),
    ]
    given_up: Annotated[
        Count,
        says("Requests of which nobody can tell which answer is theirs, or whether they had one"),
    ]
    trimmed: Annotated[Count, says("Requests left out at the start")]
    retransmitted: Annotated[Count, says("How often requests were sent again")]
    repeated_answers: Annotated[Count, says("Further answers of a request: in no statistic")]
    unmatched_answers: Annotated[Count, says("Answers without a request")]
    coalesced: Annotated[Count, says("Answers that shared a packet with the one before")]
    reordered: Annotated[
        Count, says("Answers of a request sent before one that was answered already")
    ]
    half_open: Annotated[Count, says("Connections of TCP that the client did not complete")]
    truncated: Annotated[Count, says("Packets that were cut where a message should be")]
    cut: Annotated[
        Count,
        says("Requests and answers whose headers were cut: they count by the packet that was cut"),
    ]


class MatchedRequests(Record, kw_only=True, forbid_unknown_fields=True):
    """What the matcher says of the transactions of one kind."""

    kind: str
    name: str
    counts: TransactionCounts
    matched: Matched


class KindRecord(Record, kw_only=True):
    """The transactions of one kind."""

    kind: str
    name: Annotated[str, says("The kind, and behind @ the place where the capture is of several")]
    counts: TransactionCounts
    latency_ns: Annotated[Latency | None, says("How long requests waited; null without any answer")]
    worst: Annotated[
        list[WorstRecord],
        says("Times of request (ingress) and answer (egress), worst first"),
    ]
    warnings: list[Notice]


class TransactionsRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.transactions/1"):
    """``transactions.json``."""

    captures: Texts
    reason: Annotated[
        str | None,
        says("Why transactions were looked for, where nobody asked for them"),
    ]
    since: Annotated[From, says("What waits count from, where requests were sent several times")]
    window_ns: Count
    kinds: list[KindRecord]
    warnings: list[Notice]


By = Literal["steal", "stop", "generator"]
"""What a pause was: the hypervisor took the core, a virtual machine was stopped, or the generator
was late and this kernel did not hold it."""


class PausesRow(Record, kw_only=True):
    """Pauses of one kind on one CPU."""

    by: By
    cpu: Cpu | None
    pauses: Count
    pause_ns: Count
    longest_ns: Count


class Independence(Record, kw_only=True):
    """Whether pauses came whatever the device had to do."""

    p_value: Annotated[Share | None, says("Null where there are too few pauses to tell")]
    least_p: Annotated[Share, says("Pauses of a smaller p depend on the load")]
    shifts: Count
    seed: Count


class UndisturbedRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.undisturbed/1"):
    """``undisturbed/undisturbed.json``."""

    run: str
    shown: bool
    reason: str | None
    words: str
    known_by: Annotated[Texts, says("What tells of pauses; others are not known")]
    pauses: list[PausesRow]
    of_ns: Count
    left_out_ns: Count
    stretches: Count
    while_ns: Annotated[
        Count,
        says("By how much stretches begin before a pause, and end after it, at most"),
    ]
    packets: Count
    left_out: Annotated[Count, says("Packets that came in a stretch that is left out")]
    independence: Independence
    latency_ns: Annotated[Latency | None, says("Null where it is not shown")]
    plain_ns: Latency
    of: str | None
    made: Annotated[str | None, says("What the tables beside it say, too")] = None


class PartialEvaluation(
    Record, kw_only=True, omit_defaults=True, tag_field="schema", tag="tailtap.partial-evaluation/1"
):
    """``evaluation.json`` of results of others that are less than an evaluation."""

    key: str
    counts: Annotated[
        dict[str, Count],
        says(
            "Of an evaluation's counts those that the results say; `errors`, requests that failed, "
            "and `errors_timed`, the most of them that may be among the latencies"
        ),
    ]
    latency_ns: Extremes
    bucket_ns: Width | None = None
    lacks: Annotated[Texts, says("The tables of an evaluation that are not known")]
    made: Annotated[str, says("What the tables beside it say, too")]
