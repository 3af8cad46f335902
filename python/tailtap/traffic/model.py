"""The `traffic` part of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from tailtap.schema import Cpu, Rate, Strict, Time, as_value_error
from tailtap.traffic.external import MOONSNIFF, External
from tailtap.traffic.flows import MAX_FLOWS, Flows, Ranges, Version, numbered
from tailtap.traffic.pattern import Constant, Pattern
from tailtap.traffic.replay import ReplaySpec
from tailtap.traffic.sizes import MIN_SIZE, Sizes, least_size, sizes_of
from tailtap.units import format_time

MAX_PACKETS = 2**32
"""The packet id is 32 bits wide."""
MAX_WARM_UP_PACKETS = 2**32
OF_OUR_PACKETS = ("size", "flows", "ip", "vlan")
"""What a replayed capture has of its own."""


class Traffic(Strict):
    """What is sent: UDP packets, how often, how large, from where to where."""

    generator: str = "af_packet"
    replay: ReplaySpec | None = None
    rate: Rate = 10_000
    pattern: Pattern = Constant()
    size: Sizes = MIN_SIZE
    duration: Time = 10_000_000_000
    warm_up: Time = 1_000_000_000
    warm_up_packets: Annotated[int, Field(ge=0, le=MAX_WARM_UP_PACKETS)] = 0
    pause: Time = 0
    flows: Annotated[
        Annotated[int, Field(ge=1, le=MAX_FLOWS), Tag("number")] | Annotated[Flows, Tag("ranges")],
        Discriminator(lambda value: "ranges" if isinstance(value, Mapping | Flows) else "number"),
    ] = 1
    ip: Version = 4
    vlan: Annotated[int | None, Field(ge=1, le=4094)] = None
    cpu: Cpu = 0
    bidirectional: bool = False
    reverse_cpu: Cpu | None = None
    slip_limit: Time = 100_000
    external: External | None = None

    @model_validator(mode="before")
    @classmethod
    def _packets_instead_of_time(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("warm_up_packets") and "warm_up" not in data:
            return {**data, "warm_up": "0 s"}
        return data

    @model_validator(mode="before")
    @classmethod
    def _ids_that_are_kept_begin_at_once(cls, data: Any) -> Any:
        replay = data.get("replay") if isinstance(data, Mapping) else None
        if isinstance(replay, Mapping) and replay.get("ids") == "keep" and "warm_up" not in data:
            return {**data, "warm_up": "0 s"}
        return data

    @field_validator("generator")
    @classmethod
    def _generator_exists(cls, generator: str) -> str:
        from tailtap.traffic import GENERATORS

        if generator not in GENERATORS:
            raise ValueError(f"there is no generator {generator!r}: known: {', '.join(GENERATORS)}")
        return generator

    @field_validator("warm_up_packets")
    @classmethod
    def _one_warm_up(cls, packets: int, info: Any) -> int:
        if packets and info.data.get("warm_up"):
            raise ValueError("warm_up gives a time already: write one of the two")
        return packets

    @model_validator(mode="after")
    def _external_has_a_command(self) -> Traffic:
        if (self.generator == "external") != (self.external is not None):
            raise ValueError(
                "generator: external and external: {command: …} belong together: write both or none"
            )
        return self

    @model_validator(mode="after")
    def _replays_what_is_there(self) -> Traffic:
        """Rate and duration that are not given are those of the recording."""
        if self.replay is None:
            return self
        given = self.model_fields_set
        if self.external is not None:
            raise ValueError("replay is for our own generator: leave external out")
        for name in OF_OUR_PACKETS:
            if name in given:
                raise ValueError(f"{name} does not go with replay: its packets are as they are")
        if self.bidirectional:
            raise ValueError("bidirectional does not go with replay: it answers flows of our own")
        own = self.replay.pace == "own"
        for name in ("rate", "pattern"):
            if own and name in given:
                raise ValueError(f"{name} needs replay: {{file: …, pace: rate}}: pace: own has one")
        if self.replay.ids == "keep" and (self.warm_up or self.warm_up_packets):
            raise ValueError("a warm-up needs ids of its own: write replay: {ids: stamp}")
        with as_value_error("replay: "):
            recording = self.replay.recording()
        rate = recording.rate if own else self.rate
        once = recording.period_ns if own else -(-recording.packets * 10**9 // rate)
        duration = self.duration if "duration" in given else once
        # Not what the file says: the values that it leaves open.
        return self.model_copy(update={"rate": rate, "duration": duration})

    @model_validator(mode="after")
    def _sends_something(self) -> Traffic:
        with as_value_error("flows."):
            self.ranges()
        least = least_size(self.ip, self.vlan is not None)
        if min(self.sizes) < least:
            raise ValueError(
                f"packets of {min(self.sizes)} B are too small: headers, id and check sequence "
                f"take {least} B"
            )
        with as_value_error():
            packets = self.packets
        if packets < 1:
            raise ValueError(
                f"not a single packet fits: {self.rate} pkt/s for {format_time(self.duration)}"
            )
        if self.replay is not None and self.replay.ids == "keep":
            recording = self.replay.recording()
            if packets > recording.packets:
                raise ValueError(
                    f"{self.replay.file} has {recording.packets} packets and sending more needs "
                    "ids of their own: write replay: {ids: stamp}, or a shorter duration"
                )
        if packets >= MAX_PACKETS:
            raise ValueError(
                f"{packets} packets are more than the 32-bit ids can tell apart: "
                "lower traffic.rate or traffic.duration, and raise repeat"
            )
        return self

    @model_validator(mode="after")
    def _reverse_needs_both_ways(self) -> Traffic:
        if self.reverse_cpu is not None and not self.bidirectional:
            raise ValueError("reverse_cpu is for bidirectional: true: write both or none")
        return self

    def reversed(self) -> Traffic:
        """What the other generator of bidirectional traffic sends: the flows' answers."""
        flows = self.flows if isinstance(self.flows, Flows) else numbered(self.flows, self.ip)
        back = Flows(src=flows.dst, dst=flows.src, sport=flows.dport, dport=flows.sport)
        cpu = self.cpu if self.reverse_cpu is None else self.reverse_cpu
        return self.model_copy(update={"flows": back, "cpu": cpu})

    def ranges(self) -> Ranges:
        """Addresses and ports of the flows."""
        flows = self.flows if isinstance(self.flows, Flows) else numbered(self.flows, self.ip)
        return flows.ranges(self.ip)

    @property
    def key(self) -> str:
        """Where packets carry their ids, as ``tailtap tap --key``."""
        return MOONSNIFF if self.external is None else self.external.key

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sequence of sizes in bytes, check sequence included; of a replay the largest."""
        if self.replay is not None:
            return (self.replay.recording().largest,)
        return sizes_of(self.size, least_size(self.ip, self.vlan is not None))

    @property
    def warm_up_ns(self) -> int:
        """About how long the warm-up takes."""
        return self.warm_up + self.warm_up_packets * 1_000_000_000 // self.rate

    @property
    def seconds(self) -> float:
        """About how long the generator sends, warm-up and pause included."""
        return (self.warm_up_ns + self.pause + self.duration) / 1e9

    @property
    def packets(self) -> int:
        """How many packets the measurement sends, without the warm-up; where chance decides, at
        most.
        """
        from tailtap import _core

        if self.replay is not None and self.replay.pace == "own":
            recording = self.replay.recording()
            return -(-self.duration // recording.period_ns) * recording.packets
        return _core.most_packets(self.pattern.values(self.duration), self.rate, self.duration)
