"""DPDK's examples, which ``make forwarders`` builds and puts beside ``tailtap``.

They collect packets before they send them: up to 32, or until their drain time is over. As they
are written that is 100 us, so that a single packet waits for up to 100 us. The programs that we
build read it from their environment.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from tailtap.errors import MachineError
from tailtap.forwarder import dpdk
from tailtap.forwarder.setting import Need
from tailtap.host import Host
from tailtap.schema import Time

DRAIN = "TX_DRAIN_NS"
"""The variable with the drain time; scripts/build-forwarders.sh puts it into the programs."""
MAX_DRAIN = 1_000_000_000


def _at_most(drain: int) -> int:
    if drain > MAX_DRAIN:
        raise ValueError("packets can be kept back for 1 s at most")
    return drain


class ExampleOptions(dpdk.DpdkOptions):
    """`drain` is how long, in ns, packets may wait for others before they are sent together."""

    drain: Annotated[Time, AfterValidator(_at_most)] = 0


@dataclass(frozen=True)
class Built(Need):
    """An example that reads its drain time."""

    def find(self, host: Host) -> str:
        """Its path on `host`. Raises `MachineError` when it is missing there or lacks that."""
        program = super().find(host)
        if host.run(["grep", "-q", DRAIN, program], check=False).status != 0:
            raise MachineError(
                f"{program} on {host.name} has no option for its drain time, which it has when "
                f"tailtap builds it: {self.remedy}"
            )
        return program


def built(name: str) -> Built:
    """A program beside this interpreter or, when it is not there, on the path."""
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.exists() else name
    return Built(program, "build it with `make forwarders`, which says what it needs")


def draining(program: str, drain: int) -> Sequence[str]:
    """The words that start `program` with a drain time of so many ns."""
    return ["env", f"{DRAIN}={drain}", program]
