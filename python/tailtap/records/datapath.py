"""What was sent and what taps counted, while they do and at their end: what ``tailtap generate
--json`` and ``tailtap tap --json`` print, too. ``generator.json`` is the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from tailtap.records.record import (
    Anything,
    Count,
    Cpu,
    Extremes,
    InnerFile,
    Number,
    Open,
    Record,
    Sequenced,
    Share,
    Texts,
    Whole,
    Width,
    parsed,
    says,
)


class Slip(Extremes, kw_only=True, omit_defaults=False):
    """How late packets left the generator, in ns."""

    percentiles: list[Sequenced] = []

    def at(self, p: float) -> int | None:
        """How late all packets but a share of 1 - `p` left at most; None where nobody says."""
        return next((row.value for row in self.percentiles if row.p == p), None)


class Generator(Record, kw_only=True):
    """What any generator says of itself."""

    generator: Annotated[str | None, says("Its kind")] = None
    mode: Annotated[str | None, says("Of AF_XDP `native` or `generic`, else null")] = None
    sent: Count | None = None
    failed: Count | None = None
    scheduled_rate: Number | None = None
    achieved_rate: Number | None = None
    slip_ns: Slip | None = None
    with_id: Annotated[Count | None, says("Measured packets with an id, which taps stamp")] = None
    interrupted: bool | None = None

    @property
    def without_id(self) -> int:
        """Measured packets without an id, as far as that is known."""
        return 0 if self.with_id is None or self.sent is None else self.sent - self.with_id

    @property
    def still_warming_up(self) -> bool:
        """Whether a signal ended it before it had sent a packet that counts."""
        return bool(self.interrupted) and self.sent == 0


class WarmUp(Record, kw_only=True):
    """The packets before the measurement."""

    sent: Count
    first_ns: Annotated[Count, says("When the first of them was due")]


class GeneratorRecord(Generator, kw_only=True, tag_field="schema", tag="tailtap.generator/1"):
    """``generator.json``: what was sent of a flow. Null is what a generator does not know.

    A generator of others adds fields of its own by a class that is derived from this one.
    """

    sent: Annotated[Count | None, says("Measured packets that the device took")]
    failed: Count | None
    scheduled_rate: Annotated[Number | None, says("Packets per second as they were due")]
    achieved_rate: Annotated[Number | None, says("Packets per second as they left")]
    slip_ns: Slip | None
    interface: str | None = None
    rate: Count | None = None
    cpu: Annotated[Cpu | None, says("Of its first thread")] = None
    threads: Annotated[Count | None, says("How many send it, each through its own queue")] = None
    phase_ns: Annotated[
        Count | None, says("How much later than the process's first flow it began")
    ] = None
    warm_up: WarmUp | None = None
    first_ns: Annotated[Count | None, says("When the first measured packet was due")] = None
    last_ns: Count | None = None
    bunched: Annotated[
        Count | None, says("Packets that left in one call with others due before them")
    ] = None
    pattern: Anything | None = None
    size: Count | list[Count] | str | None = None
    flows: Count | None = None
    ip: Count | None = None
    vlan: Count | None = None
    ttl: Count | None = None
    replay: str | None = None
    stamp_ids: Annotated[bool | None, says("Whether ids were written into its packets")] = None
    said: Annotated[str | None, says("What an external generator printed last")] = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.with_id is not None and self.sent is None:
            raise ValueError("packets had ids, and nobody says how many were sent")
        unsaid = self.scheduled_rate is not None and self.achieved_rate is None
        if unsaid and not self.still_warming_up:
            raise ValueError("packets were sent, and nobody says at which rate")


class SeveralRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.generators/1"):
    """``tailtap generate --json`` of several flows."""

    flows: list[GeneratorRecord]


class RateAsked(Record, kw_only=True):
    """A rate that was asked for, and what became of it."""

    share: Annotated[Share | None, says("Of the highest rate; null for --rate")]
    rate: Annotated[Count, says("Packets per second as they were due")]
    achieved_rate: Annotated[Number, says("As the device took them")]
    failed: Count
    slip_ns: Slip | None

    @property
    def is_reached(self) -> bool:
        """Whether the device took all packets, and no more than 1 % more slowly than asked."""
        return not self.failed and self.achieved_rate >= 0.99 * self.rate


class RateOfSize(Record, kw_only=True):
    """How fast frames of a size were sent."""

    size: Annotated[Count, says("In bytes, with the check sequence")]
    highest: Annotated[Count, says("Packets per second")]
    at: list[RateAsked]


class RatesRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.rates/1"):
    """``tailtap generate --how-fast --json``."""

    interface: str
    generator: str
    mode: str | None
    cpus: list[Cpu]
    sizes: list[RateOfSize]


ReadBy = Literal["precise", "extended", "plain"]
"""The calls of PTP that read a card's clock beside the kernel's, the best one first."""


class CardReadings(Record, kw_only=True):
    """What the clock of a card showed while it stamped, and when by CLOCK_MONOTONIC."""

    by: ReadBy
    times_ns: list[tuple[Whole, Whole, Whole]]
    """A time before each reading, what the card's clock showed, and a time after it."""


class ByCard(Record, kw_only=True):
    """The clock by which a card stamps; of other taps there is none."""

    clock_device: str | None = None
    readings: CardReadings | None = None


class Tap(ByCard, kw_only=True):
    """What the record of a run has of any tap, also of one of others, or of an imported run."""

    seen: Count | None = None
    stored: Count | None = None
    lost: Count | None = None
    other: Count | None = None
    dropped: Count | None = None
    clock: str | None = None

    @property
    def came(self) -> int | None:
        """All packets, those of the warm-up and others without an id included."""
        return None if self.seen is None else self.seen + (self.other or 0)


class Tapped(ByCard, kw_only=True):
    """What any tap tells at its end; its file is in the run folder."""

    file: InnerFile
    seen: Count
    lost: Count
    dropped: Count | None = None
    late: Count | None = None
    warnings: Texts = []


TapsOfFlows = Mapping[str, Mapping[str, Open[Tapped]]]
"""By the folder of the flow and the tap's name."""


class Counts(Record, kw_only=True, omit_defaults=True):
    """Packets of a link."""

    seen: Count
    stored: Count
    lost: Count
    other: Count
    """Without an id, or a key."""
    filtered: Count | None = None
    unsampled: Count | None = None
    late: Count | None = None
    """Stamped on receipt, as the kernel did not say when they reached the interface."""


class LinkSoFar(Counts, kw_only=True):
    """A link while it is tapped."""

    sample: Width
    """One packet in so many is stamped now."""
    rate: Number
    """Packets per second, of late."""
    ns: Number | None
    """What the tap's program takes for a packet."""
    share: Number
    """Of one core's time."""


class TapsSoFar(Record, kw_only=True):
    """All links while they are tapped."""

    time_ns: Count
    links: dict[str, LinkSoFar]
    share: Number
    """Of one core's time, for all taps."""
    writer_share: Number | None = None
    """Of one core's time, for who writes the files."""


class TappedLink(Counts, kw_only=True, forbid_unknown_fields=True):
    """A link at the end of its tap."""

    file: str
    files: Texts
    interface: str
    namespace: str | None
    """None: the current one."""
    clock: str
    warnings: Texts
    format: str | None = None
    hook: str | None = None
    """What of the kernel the program was attached to."""
    hash: str | None = None
    """What the hashes of marks are of."""
    samples: list[tuple[Count, Width]] | None = None
    """From when on one packet in how many was stamped."""
    dropped: Count | None = None
    """By the kernel, before their stamp."""
    outside: str | None = None
    """Where packets are stamped, and what of their way lies outside."""
    unstamped: Count | None = None
    """That the card had no stamp for."""
    clock_device: str | None = None
    readings: CardReadings | None = None
    cost_ns: Number | None = None
    cost_floor_ns: Number | None = None
    cost_clock_ns: Number | None = None

    @property
    def by_card(self) -> ByCard:
        """The clock that its stamps are of."""
        return ByCard(clock_device=self.clock_device, readings=self.readings)


def of_core(links: Mapping[str, Mapping[str, Any]]) -> dict[str, TappedLink]:
    """What the taps of `_core` tell of each link; stamps of cards are one file."""
    return {
        name: parsed(
            f"the tap {name}",
            {
                "namespace": None,
                **link,
                "file": str(link["file"]),
                "files": [str(path) for path in link.get("files", [link["file"]])],
            },
            TappedLink,
        )
        for name, link in links.items()
    }
