"""The `traffic` part of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from tailtap.base.registry import Registry, one_of
from tailtap.base.schema import Cpu, Cpus, Rate, Strict, Time, Written, as_value_error
from tailtap.base.units import format_time
from tailtap.host.net.pci import PciDriver
from tailtap.lab.generators.external import MOONSNIFF, External
from tailtap.lab.generators.flows import (
    DEFAULT_TTL,
    MAX_FLOWS,
    MIN_SIZE,
    Flows,
    Ranges,
    ReplaySpec,
    Sizes,
    Version,
    least_size,
    numbered,
    sizes_of,
)
from tailtap.lab.generators.pattern import Constant, Pattern

if TYPE_CHECKING:
    from tailtap.lab.generators import Generator

MAX_PACKETS = 2**32
"""The packet id is 32 bits wide."""
MAX_WARM_UP_PACKETS = 2**32
OF_OUR_PACKETS = ("size", "flows", "ip", "vlan", "ttl")
"""Keys that do not apply to a replayed capture, which has its own values."""


def _generators() -> Registry[Generator]:
    from tailtap.lab.generators import GENERATORS

    return GENERATORS


class Traffic(Strict):
    """What is sent: UDP packets, their rate, sizes and addresses."""

    generator: Annotated[str, one_of(_generators), Written("name")] = Field(
        default="af_packet",
        description="What sends the packets.",
        examples=["af_xdp"],
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the generator. tailtap's own generators have none.",
        examples=[{}],
    )
    replay: ReplaySpec | None = Field(
        default=None,
        description="A capture to send instead: its path, or a mapping.",
        examples=["trace.pcap", {"file": "trace.pcap", "pace": "rate"}],
    )
    rate: Rate = Field(
        default=10_000,
        description="How many packets are sent per second.",
        examples=["50 kpkt/s"],
    )
    pattern: Pattern = Field(
        default=Constant(),
        description="How packets follow each other: a pattern, with values such as "
        "burst:packets=32, or as a mapping.",
        examples=["poisson", "burst:packets=32", {"kind": "ramp", "to": "40 kpkt/s"}],
    )
    size: Sizes = Field(
        default=MIN_SIZE,
        description="The size of a packet on the wire with its check sequence, 64 B to 9018 B; of "
        "a list in turn. imix is seven packets of 64 B, four of 594 B and one of 1518 "
        "B.",
        examples=["128 B", "imix", ["64 B", "1518 B"]],
    )
    duration: Time = Field(
        default=10_000_000_000,
        description="How long packets are sent and measured. By default a replayed capture is sent "
        "once.",
        examples=["60 s"],
    )
    warm_up: Time = Field(
        default=1_000_000_000,
        description="How long packets are sent before the measurement, at the same rate. 0 s "
        "where warm_up_packets or replay.ids: keep is given.",
        examples=["500 ms"],
    )
    warm_up_packets: Annotated[int, Field(ge=0, le=MAX_WARM_UP_PACKETS)] = Field(
        default=0,
        description="How many packets are sent before the measurement, instead of warm_up.",
        examples=[5000],
    )
    pause: Time = Field(
        default=0,
        description="The silence between warm-up and measurement.",
        examples=["1 s"],
    )
    flows: Annotated[
        Annotated[int, Field(ge=1, le=MAX_FLOWS), Tag("number")] | Annotated[Flows, Tag("ranges")],
        Discriminator(lambda value: "ranges" if isinstance(value, Mapping | Flows) else "number"),
        Written("number, or mapping"),
    ] = Field(
        default=1,
        description="The number of flows, which differ in their source address; or ranges, of "
        "which all combinations take turns.",
        examples=[16, {"src": "10.0.0.1-10.0.0.16", "dport": "53"}],
    )
    ip: Version = Field(default=4, description="The version of IP.", examples=[6])
    vlan: Annotated[int | None, Field(ge=1, le=4094)] = Field(
        default=None,
        description="The number of a VLAN tag on each packet. By default packets have no tag.",
        examples=[7],
    )
    ttl: Annotated[int, Field(ge=1, le=255)] = Field(
        default=DEFAULT_TTL,
        description="The time to live of the packets, the hop limit of IPv6. The last router of a "
        "line must find more than one.",
        examples=[255],
    )
    cpu: Cpu = Field(
        default=0,
        description="The CPU that the generator runs on. It should be none of dut.cpus.",
        examples=[2],
    )
    cpus: Cpus | None = Field(
        default=None,
        description="The CPUs of several threads of tailtap's own generator, instead of cpu. Each "
        "sends its share of the same schedule through a queue of its own.",
        examples=[[2, 3]],
    )
    bidirectional: bool = Field(
        default=False,
        description="Whether the flows' answers are sent the other way at the same time, as a "
        "run of its own.",
        examples=[True],
    )
    reverse_cpu: Cpu | None = Field(
        default=None,
        description="The CPU that sends the other direction. traffic.cpu is the default.",
        examples=[3],
    )
    slip_limit: Time = Field(
        default=100_000,
        description="When 1 % of the packets leave later than this after they were due, the run "
        "is invalid.",
        examples=["1 ms"],
    )
    external: External | None = Field(
        default=None,
        description="What the generator `external` runs, which needs this key.",
        examples=[{"command": "trafgen --dev {interface} --conf udp.cfg --num {packets}"}],
    )

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
    def _threads_are_our_own(self) -> Traffic:
        if self.cpus is None:
            return self
        if self.external is not None:
            raise ValueError("cpus is for tailtap's own generators: leave external out")
        if "cpu" in self.model_fields_set and self.cpu != self.cpus[0]:
            raise ValueError("cpu and cpus say both where the generator runs: write one of them")
        return self.model_copy(update={"cpu": self.cpus[0]})

    @model_validator(mode="after")
    def _replays_what_is_there(self) -> Traffic:
        """Rate and duration that are not given are those of the recording."""
        if self.replay is None:
            return self
        given = self.model_fields_set
        if self.external is not None:
            raise ValueError("replay is for tailtap's own generators: leave external out")
        for name in OF_OUR_PACKETS:
            if name in given:
                raise ValueError(f"{name} does not go with replay: its packets are as they are")
        if self.bidirectional:
            raise ValueError(
                "bidirectional does not go with replay: it sends answers to tailtap's own flows"
            )
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
        # Only values that the file leaves open.
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
        where: dict[str, object] = {}
        if self.reverse_cpu is not None:
            where = {"cpu": self.reverse_cpu, "cpus": None}
        return self.model_copy(update={"flows": flows.answers(self.ip), **where})

    def ranges(self) -> Ranges:
        flows = self.flows if isinstance(self.flows, Flows) else numbered(self.flows, self.ip)
        return flows.ranges(self.ip)

    @property
    def senders(self) -> tuple[int, ...]:
        """The CPUs that it is sent from, ascending: a thread on each."""
        return (self.cpu,) if self.cpus is None else self.cpus

    @property
    def driver(self) -> PciDriver | None:
        """The driver that its cards have meanwhile; None where the kernel keeps them."""
        return None if self.external is None else self.external.driver

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
