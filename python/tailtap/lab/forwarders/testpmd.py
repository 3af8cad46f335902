"""`testpmd`: DPDK's test program, which polls both ports and forwards between them.

Its mode `io` hands packets on as they are; `mac` sets their hardware addresses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check, Findings
from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.program import Program, WorkFolder
from tailtap.lab.forwarders.setting import Asked, Need, Plain, Setting
from tailtap.lab.platforms.dut import Dut

BUFFERS = 16_384
"""Packet buffers for both ports; by default testpmd makes room for dozens of queues."""


class TestpmdOptions(dpdk.DpdkOptions):
    """Whether hardware addresses are kept (`io`) or set (`mac`)."""

    mode: Literal["io", "mac"] = Field(
        default="io",
        description="io keeps the hardware addresses of packets, mac sets them.",
        examples=["mac"],
    )


class Testpmd(Plain):
    """``dpdk-testpmd``; as many cores forward as the DuT has CPUs, up to one for each port."""

    summary = "DPDK's test program polls both ports and forwards between them (layer 2)."
    documentation = (
        "As many cores forward as the DuT has CPUs, up to one for each port. Needs `make "
        "forwarders`, or the Debian package dpdk-dev. Ready within 20 s."
    )
    Options: type[BaseModel] = TestpmdOptions
    needs: Sequence[Need] = (dpdk.TESTPMD,)

    def diagnose(self) -> Iterator[Check]:
        """Look for its program."""
        return find_programs("testpmd", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out what DPDK would miss."""
        dpdk.foresee(cast("dpdk.DpdkOptions", options), asked, findings)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("TestpmdOptions", options)
        program = dpdk.TESTPMD.find(dut.host)
        cpus = dut.cpus[:2]
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            ports = dpdk.ports(dut, chosen, setting, stack)
            command = [program, *dpdk.lcores(cpus, idle_main=True), *ports.arguments(), "--"]
            command += ["--auto-start", "--no-flush-rx", f"--nb-cores={len(cpus)}"]
            command += [f"--total-num-mbufs={BUFFERS}", f"--forward-mode={chosen.mode}"]
            for number, mac in enumerate(dpdk.next_hops(dut, setting)):
                command.append(f"--eth-peer={number},{mac}")
            return Program(
                work,
                "testpmd",
                command,
                stack=stack,
                ready_seconds=dpdk.READY_SECONDS,
                version=dpdk.VERSION,
                facts=ports.facts,
                polls=True,
            )
