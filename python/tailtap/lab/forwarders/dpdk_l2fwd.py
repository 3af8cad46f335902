"""`dpdk-l2fwd`: DPDK's example of a forwarder of layer 2, the papers' simplest DuT."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel, Field

from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.built import Example, ExampleOptions, built, draining
from tailtap.lab.forwarders.program import Program, WorkFolder
from tailtap.lab.forwarders.setting import Need, Setting
from tailtap.lab.platforms.dut import Dut


class L2fwdOptions(ExampleOptions):
    """Options of the examples, and whether addresses are set."""

    mac_updating: bool = Field(
        default=False,
        description="Whether it sets the hardware addresses of packets, as the original example "
        "does.",
        examples=[True],
    )


class DpdkL2fwd(Example):
    """``l2fwd``, polling each port on a CPU of its own as far as the DuT has them."""

    summary = "DPDK's example l2fwd polls both ports and forwards between them (layer 2)."
    documentation = (
        "Each port is polled on a CPU of its own as far as the DuT has them. Needs `make "
        "forwarders`. Ready within 20 s."
    )
    Options: type[BaseModel] = L2fwdOptions
    needs: Sequence[Need] = (built("dpdk-l2fwd"),)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("L2fwdOptions", options)
        program = self.needs[0].find(dut.host)
        cpus = dut.cpus[:2]
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            ports = dpdk.ports(dut, chosen, setting, stack)
            command = [
                *draining(program, chosen.drain),
                *dpdk.lcores(cpus),
                *ports.arguments(),
                "--",
            ]
            # Both ports, so many of them for each core, packets to whatever address (cards, and
            # the ports of virtual machines, drop them otherwise), no statistics on the screen.
            command += ["-p", "3", "-q", str(2 // len(cpus)), "-P", "-T", "0"]
            command += [] if chosen.mac_updating else ["--no-mac-updating"]
            return Program(
                work,
                "dpdk-l2fwd",
                command,
                stack=stack,
                ready_seconds=dpdk.READY_SECONDS,
                version=dpdk.VERSION,
                facts={**ports.facts, "drain_ns": chosen.drain},
                holds_ns=chosen.drain,
                polls=True,
            )
