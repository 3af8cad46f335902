"""`fault`: our own forwarder, which delays, drops and duplicates chosen packets, or is slow.

It stands where a DuT would and errs in a known way, so that a test can tell whether the
measurement finds exactly that.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, model_validator

from tailtap.host.process import STOP_SECONDS, Process
from tailtap.platform.dut import Dut
from tailtap.schema import Rate, Strict, Time

READY_SECONDS = 15.0
"""How long the forwarder may take from its start to its first packet."""


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


@dataclass(frozen=True)
class _Forwarding:
    process: Process
    holds_ns: int
    back: Process | None

    def stop(self) -> dict[str, Any]:
        told = _stopped(self.process)
        return told if self.back is None else {**told, "reverse": _stopped(self.back)}

    def close(self) -> None:
        for process in (self.process, self.back):
            if process is not None:
                process.close()


def _stopped(process: Process) -> dict[str, Any]:
    process.interrupt()
    done = process.expect("done", STOP_SECONDS)
    process.close()
    return {name: value for name, value in done.items() if name != "event"}


class Fault:
    """``tailtap forward`` on the first of the DuT's CPUs.

    A DuT that carries both ways errs in one of them: what comes in at its egress port passes a
    second process, on the last of the CPUs, as it is.
    """

    Options: type[BaseModel] = FaultOptions

    def start(self, dut: Dut, options: BaseModel) -> _Forwarding:
        """Start the process and wait until it forwards. Raises `MachineError`."""
        chosen = cast("FaultOptions", options)
        command = [*dut.host.program, "forward", dut.ingress, dut.egress, "--json"]
        command += ["--cpu", str(dut.cpus[0])]
        if chosen.hold is not None and chosen.hold.ids:
            command += ["--hold", _list(chosen.hold.ids)]
            command += ["--hold-for", f"{chosen.hold.time} ns"]
        if chosen.drop:
            command += ["--drop", _list(chosen.drop)]
        if chosen.duplicate:
            command += ["--duplicate", _list(chosen.duplicate)]
        if chosen.limit is not None:
            command += ["--limit", f"{chosen.limit.rate} pkt/s"]
            command += ["--queue", str(chosen.limit.queue)]
        with contextlib.ExitStack() as stack:
            process = _started(dut, command, stack)
            back = None
            if dut.both_ways:
                plain = [*dut.host.program, "forward", dut.egress, dut.ingress, "--json"]
                back = _started(dut, [*plain, "--cpu", str(dut.cpus[-1])], stack)
            stack.pop_all()
        return _Forwarding(process, chosen.longest_ns, back)


def _started(dut: Dut, command: list[str], stack: contextlib.ExitStack) -> Process:
    process = dut.host.start(command)
    stack.callback(process.close)
    process.expect("ready", READY_SECONDS)
    return process


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in ids)
