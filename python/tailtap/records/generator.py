"""What was sent: ``generator.json``, which ``tailtap generate --json`` prints, too."""

from __future__ import annotations

from typing import Annotated

from tailtap.records.record import Anything, Count, Cpu, Number, Record, Sequenced, Whole, says


class Slip(Record, kw_only=True):
    """How late packets left the generator, in ns."""

    min: Whole | None = None
    mean: Number | None = None
    max: Whole | None = None
    percentiles: list[Sequenced] = []


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
    cpu: Cpu | None = None
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
