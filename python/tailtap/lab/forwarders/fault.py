"""`fault`: our own forwarder, which delays, drops and duplicates chosen packets, or is slow.

It takes the place of a DuT and makes known faults, so that a test can check whether the measurement
finds exactly those.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, cast

from pydantic import BaseModel, Field, model_validator

from tailtap.base.check import Check, Findings
from tailtap.base.schema import Rate, Strict, Time, Written
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.own import Forwarding
from tailtap.lab.forwarders.setting import Asked, Plain, Serves, Setting
from tailtap.lab.platforms.dut import Dut

PacketIds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**32)], ...],
    Field(strict=False, max_length=10_000),
    Written("list of packet ids"),
]


class Hold(Strict):
    """Packets that are held; `time` in ns."""

    ids: PacketIds = Field(
        description="The ids of these packets, counted from 0.", examples=[[100, 200]]
    )
    time: Time = Field(description="How long they are held.", examples=["2 ms"])


class Limit(Strict):
    """A device of known speed: `rate` in pkt/s; `queue` packets wait, more are dropped."""

    rate: Rate = Field(
        description="How many packets it forwards per second.", examples=["5 kpkt/s"]
    )
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=100,
        description="How many packets may wait; it drops more.",
        examples=[50],
    )


class FaultOptions(Strict):
    """Packets to hold, drop and duplicate, by their ids from 0, and the speed of the device."""

    hold: Hold | None = Field(
        default=None,
        description="Which packets it holds, and how long. By default none.",
        examples=[{"ids": [100, 200], "time": "2 ms"}],
    )
    drop: PacketIds = Field(
        default=(),
        description="The ids of packets that it drops, counted from 0.",
        examples=[[300]],
    )
    duplicate: PacketIds = Field(
        default=(),
        description="The ids of packets that it sends twice, counted from 0.",
        examples=[[400]],
    )
    limit: Limit | None = Field(
        default=None,
        description="The speed of the device. By default it has no limit.",
        examples=[{"rate": "5 kpkt/s", "queue": 50}],
    )

    @property
    def longest_ns(self) -> int:
        """The longest time in ns that a packet is kept."""
        hold = 0 if self.hold is None else self.hold.time
        wait = 0 if self.limit is None else self.limit.queue * 1_000_000_000 // self.limit.rate
        return max(hold, wait)

    @model_validator(mode="after")
    def _one_fate_each(self) -> FaultOptions:
        held = () if self.hold is None else self.hold.ids
        for one, other, what in (
            (held, self.drop, "held and dropped"),
            (self.drop, self.duplicate, "dropped and duplicated"),
        ):
            both = sorted(set(one) & set(other))
            if both:
                raise ValueError(f"packet {both[0]} cannot be {what}")
        return self


class Fault(Plain):
    """``tailtap forward`` on the first of the DuT's CPUs.

    Each way through the node has a process. With traffic in both directions only the forward one
    has faults: packets that come in at the egress port pass a process on the last of the CPUs,
    unchanged.
    """

    summary = "Forwards, and holds, drops, duplicates or limits packets as told (layer 2)."
    documentation = (
        "A DuT with a known fault, to try a measurement on. `tailtap forward` on the first of the "
        "DuT's CPUs."
    )
    serves: Serves = "ports"
    shares_cpus = True
    Options: type[BaseModel] = FaultOptions

    def diagnose(self) -> Iterator[Check]:
        """It is a part of tailtap."""
        return find_programs("fault", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Nothing: it is a part of tailtap."""

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Forwarding:
        """Start the process and wait until it forwards. Raises `MachineError`."""
        chosen = cast("FaultOptions", options)
        arguments: list[str] = []
        if chosen.hold is not None and chosen.hold.ids:
            arguments += ["--hold", _list(chosen.hold.ids)]
            arguments += ["--hold-for", f"{chosen.hold.time} ns"]
        if chosen.drop:
            arguments += ["--drop", _list(chosen.drop)]
        if chosen.duplicate:
            arguments += ["--duplicate", _list(chosen.duplicate)]
        if chosen.limit is not None:
            arguments += ["--limit", f"{chosen.limit.rate} pkt/s"]
            arguments += ["--queue", str(chosen.limit.queue)]
        others: dict[str, Forwarding] = {}
        with contextlib.ExitStack() as stack:
            for number, (entered, left) in reversed(list(enumerate(dut.ways))):
                back = (left, entered) in dut.ways[:number]
                words = [entered, left, "--cpu", str(dut.cpus[-1 if back else 0])]
                words += [] if back else arguments
                holds = 0 if back else chosen.longest_ns
                running = Forwarding.start("fault", dut, words, holds)
                stack.callback(running.close)
                if number:
                    others["reverse" if back else f"{entered} to {left}"] = running
            stack.pop_all()
        return replace(running, others=others)


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in ids)
