"""DPDK's examples, which ``make forwarders`` builds and puts beside ``tailtap``.

They collect packets before they send them: up to 32, or until the drain time is over. The original
examples have a drain time of 100 us, so a single packet waits for up to 100 us. The programs that
tailtap builds read it from their environment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from pydantic import AfterValidator, BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.base.errors import MachineError
from tailtap.base.schema import Time
from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.setting import Asked, Need, Plain
from tailtap.remote import Host

DRAIN = "TX_DRAIN_NS"
"""The variable with the drain time; scripts/build-forwarders.sh puts it into the programs."""
MAX_DRAIN = 1_000_000_000


def _at_most(drain: int) -> int:
    if drain > MAX_DRAIN:
        raise ValueError("packets can be kept back for 1 s at most")
    return drain


class ExampleOptions(dpdk.DpdkOptions):
    """DPDK's options, and the drain time."""

    drain: Annotated[Time, AfterValidator(_at_most)] = Field(
        default=0,
        description="How long packets may wait for others before they are sent together, 1 s at "
        "most. It is 100 us in the original example.",
        examples=["100 us"],
    )


@dataclass(frozen=True)
class Built(Need):
    """An example that reads its drain time."""

    def find(self, host: Host) -> str:
        """Its path on `host`. Raises `MachineError` when it is missing or has no such option."""
        program = super().find(host)
        if host.run(["grep", "-q", DRAIN, program], check=False).status != 0:
            raise MachineError(
                f"{program} on {host.name} has no option for its drain time, which it has when "
                f"tailtap builds it: {self.remedy}"
            )
        return program


class Example(Plain):
    """What the examples have in common: they poll both ports on CPUs of their own."""

    def diagnose(self) -> Iterator[Check]:
        """Look for its program."""
        return find_programs(Path(self.needs[0].program).name, self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out what DPDK would miss."""
        dpdk.foresee(cast("dpdk.DpdkOptions", options), asked, findings)


def built(name: str) -> Built:
    """A program beside this interpreter, or else on the path."""
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.exists() else name
    return Built(program, "build it with `make forwarders`, which says what it needs")


def draining(program: str, drain: int) -> Sequence[str]:
    """The command that starts `program` with a drain time in ns."""
    return ["env", f"{DRAIN}={drain}", program]
