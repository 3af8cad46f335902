"""`fault`: our own forwarder, which delays, drops and duplicates chosen packets.

It stands where a DuT would and errs in a known way, so that a test can tell whether the
measurement finds exactly that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, model_validator

from tailtap.host.process import STOP_SECONDS, Process
from tailtap.platform.dut import Dut
from tailtap.schema import Strict, Time

READY_SECONDS = 15.0
"""How long the forwarder may take from its start to its first packet."""


PacketIds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], Field(strict=False, max_length=10_000)
]


class Hold(Strict):
    """Packets that are kept for a while; `time` in ns."""

    ids: PacketIds
    time: Time


class FaultOptions(Strict):
    """Which packets meet which fate, by their ids, counted from 0."""

    hold: Hold | None = None
    drop: PacketIds = ()
    duplicate: PacketIds = ()

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

    def stop(self) -> dict[str, Any]:
        self.process.interrupt()
        done = self.process.expect("done", STOP_SECONDS)
        self.process.close()
        return {name: value for name, value in done.items() if name != "event"}

    def close(self) -> None:
        self.process.close()


class Fault:
    """``tailtap forward`` on the first of the DuT's CPUs."""

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
        process = dut.host.start(command)
        try:
            process.expect("ready", READY_SECONDS)
        except BaseException:
            process.close()
            raise
        return _Forwarding(process, 0 if chosen.hold is None else chosen.hold.time)


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in ids)
