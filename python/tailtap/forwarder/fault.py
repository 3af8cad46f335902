"""`fault`: our own forwarder, which delays, drops and duplicates chosen packets, or is slow.

It stands where a DuT would and errs in a known way, so that a test can tell whether the
measurement finds exactly that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, cast

from pydantic import BaseModel, Field, model_validator

from tailtap.findings import Findings
from tailtap.forwarder.own import Forwarding
from tailtap.forwarder.setting import Asked, Need, Setting
from tailtap.platform.dut import Dut
from tailtap.schema import Rate, Strict, Time

PacketIds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(strict=False, max_length=10_000)
]


class Hold(Strict):
    """Packets that are kept for a while; `time` in ns."""

    ids: PacketIds
    time: Time


class Limit(Strict):
    """A device of known speed: `rate` in pkt/s; `queue` packets wait, more are dropped."""

    rate: Rate
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = 100


class FaultOptions(Strict):
    """Which packets meet which fate, by their ids, counted from 0; how many pass in a second."""

    hold: Hold | None = None
    drop: PacketIds = ()
    duplicate: PacketIds = ()
    limit: Limit | None = None

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


class Fault:
    """``tailtap forward`` on the first of the DuT's CPUs.

    A DuT that carries both ways errs in one of them: what comes in at its egress port passes a
    second process, on the last of the CPUs, as it is.
    """

    Options: type[BaseModel] = FaultOptions

    needs: Sequence[Need] = ()

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Nothing: it is a part of tailtap."""

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Forwarding:
        """Start the process and wait until it forwards. Raises `MachineError`."""
        chosen = cast("FaultOptions", options)
        arguments = [dut.ingress, dut.egress, "--cpu", str(dut.cpus[0])]
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
        with contextlib.ExitStack() as stack:
            back = None
            if dut.both_ways:
                plain = [dut.egress, dut.ingress, "--cpu", str(dut.cpus[-1])]
                back = Forwarding.start("fault", dut, plain)
                stack.callback(back.close)
            running = Forwarding.start("fault", dut, arguments, chosen.longest_ns)
            stack.pop_all()
        return replace(running, back=back)


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in ids)
