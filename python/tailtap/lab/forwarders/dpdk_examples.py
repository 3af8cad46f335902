"""DPDK's examples, which ``make forwarders`` builds and puts beside ``tailtap``.

They collect packets before they send them: up to 32, or until the drain time is over. The original
examples have a drain time of 100 us, so a single packet waits for up to 100 us. The programs that
tailtap builds read it from their environment.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from tailtap.base.errors import Findings, MachineError
from tailtap.base.schema import Time
from tailtap.host.net.pci import VFIO
from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.setting import Asked, Need, Plain, Program, Setting, WorkFolder
from tailtap.lab.generators.flows import Ranges, prefixes
from tailtap.lab.platforms.dut import Dut
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
        "most; 100 us in the original example.",
        examples=["100 us"],
    )


@dataclass(frozen=True)
class Built(Need):
    """An example that reads its drain time."""

    def find(self, host: Host) -> str:
        program = super().find(host)
        if host.run(["grep", "-q", DRAIN, program], check=False).status != 0:
            raise MachineError(
                f"{program} on {host.name} has no option for its drain time, which it has when "
                f"tailtap builds it: {self.remedy}"
            )
        return program


class Dpdk(Plain):
    """What DPDK's programs have in common: they poll both ports on CPUs of their own."""

    def foresee(self, options: dpdk.DpdkOptions, asked: Asked, findings: Findings) -> None:
        dpdk.foresee(options, asked, findings)

    def start(self, dut: Dut, options: Any, setting: Setting) -> Program:
        program = self.needs[0].find(dut.host)
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            ports = dpdk.ports(dut, options, setting, stack)
            lcores, words = self.words(dut, options, setting, work)
            command = [program, *lcores, *ports.arguments(), "--", *words]
            facts, drain = ports.facts, getattr(options, "drain", None)
            if drain is not None:
                command = ["env", f"{DRAIN}={drain}", *command]
                facts = {**facts, "drain_ns": drain}
            return Program(
                work,
                self.name,
                command,
                stack=stack,
                ready_seconds=dpdk.READY_SECONDS,
                version=dpdk.VERSION,
                facts=facts,
                holds_ns=drain or 0,
                polls=True,
            )

    def words(
        self, dut: Dut, options: Any, setting: Setting, work: WorkFolder
    ) -> tuple[list[str], list[str]]:
        raise NotImplementedError


def built(name: str) -> Built:
    """A program beside this interpreter, or else on the path."""
    beside = Path(sys.executable).with_name(name)
    program = str(beside) if beside.exists() else name
    return Built(program, "build it with `make forwarders`, which says what it needs")


class L2fwdOptions(ExampleOptions):
    """Options of the examples, and whether addresses are set."""

    mac_updating: bool = Field(
        default=False,
        description="Whether it sets the hardware addresses of packets, as the original example "
        "does.",
        examples=[True],
    )


class DpdkL2fwd(Dpdk):
    """``l2fwd``, polling each port on a CPU of its own as far as the DuT has them."""

    name = "dpdk-l2fwd"
    summary = "DPDK's example l2fwd polls both ports and forwards between them (layer 2)."
    documentation = (
        "Each port is polled on a CPU of its own as far as the DuT has them. Needs `make "
        "forwarders`. Ready within 20 s."
    )
    Options: type[BaseModel] = L2fwdOptions
    needs: Sequence[Need] = (built("dpdk-l2fwd"),)

    def words(
        self, dut: Dut, options: L2fwdOptions, setting: Setting, work: WorkFolder
    ) -> tuple[list[str], list[str]]:
        cpus = dut.cpus[:2]
        # Both ports, so many of them for each core, packets to whatever address (cards, and the
        # ports of virtual machines, drop them otherwise), no statistics on the screen.
        words = ["-p", "3", "-q", str(2 // len(cpus)), "-P", "-T", "0"]
        return dpdk.lcores(cpus), words + ([] if options.mac_updating else ["--no-mac-updating"])


INGRESS, EGRESS = 0, 1
"""What l3fwd calls the ports."""
UNUSED = {4: "192.0.2.0/24", 6: "2001:db8::/32"}
"""Prefixes for documentation: l3fwd wants a route of each version."""


class L3fwdOptions(ExampleOptions):
    """Options of the examples, and how many CPUs forward."""

    cpu_per_port: bool = Field(
        default=False,
        description="Whether each port is polled on a CPU of its own, the first two of dut.cpus. "
        "Each port needs two queues to send by, which cards have, and links of the lab have not. "
        "CPUs of two NUMA nodes have tables of 128 MiB on each: memory: 512 MiB.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _ports_have_queues(self) -> L3fwdOptions:
        if self.cpu_per_port and self.driver != VFIO:
            raise ValueError(
                f"cpu_per_port needs ports with two queues to send by: take driver {VFIO}, which "
                "drives cards"
            )
        return self


class DpdkL3fwd(Dpdk):
    """``l3fwd`` on the first of the DuT's CPUs: through the kernel, a port has one queue."""

    name = "dpdk-l3fwd"
    summary = "DPDK's example l3fwd polls both ports and routes by longest prefix match (layer 3)."
    documentation = (
        "It runs on the first of the DuT's CPUs, or polls each port of a card on a CPU of its own "
        "(`cpu_per_port`). Its routes are the flows' addresses. Needs `make "
        "forwarders`. Ready within 20 s."
    )
    routes = True
    Options: type[BaseModel] = L3fwdOptions
    needs: Sequence[Need] = (built("dpdk-l3fwd"),)

    def words(
        self, dut: Dut, options: L3fwdOptions, setting: Setting, work: WorkFolder
    ) -> tuple[list[str], list[str]]:
        cpus = dut.cpus[: 2 if options.cpu_per_port else 1]
        # Both ports, whatever address packets are sent to.
        words = ["-p", "3", "-P", "--config", polled(len(cpus))]
        words += ["--parse-ptype", "--lookup", "lpm"]
        there, back = (
            [setting.flows[way.flow].ranges() for way in setting.lab.ways[dut.node]
             if way.entered.name == port]
            for port in (dut.ingress, dut.egress)
        )  # fmt: skip
        for version in (4, 6):
            lines = "\n".join(routes(there, back, setting.ip, version)) + "\n"
            words += [f"--rule_ipv{version}", str(work.put(f"routes{version}", lines))]
        for number, mac in zip((INGRESS, EGRESS), dpdk.next_hops(dut, setting), strict=True):
            words.append(f"--eth-dest={number},{mac}")
        return dpdk.lcores(cpus), words


def polled(cores: int) -> str:
    """Queue 0 of each port, and the logical core out of one or two that polls it, as l3fwd has
    them.
    """
    return f"({INGRESS},0,0),({EGRESS},0,{cores - 1})"


def routes(there: Sequence[Ranges], back: Sequence[Ranges], ip: int, version: int) -> Iterator[str]:
    """The lines of l3fwd's file of routes for IP `version`.

    Flows of IP version `ip` come in at the ingress port, and those of `back` at the other one.
    """
    if version != ip:
        yield f"R{UNUSED[version]} {EGRESS}"
        return
    ways = [(EGRESS, one.destination) for one in there]
    ways += [(INGRESS, one.destination) for one in back]
    ways += [(INGRESS, one.source) for one in there]
    known: set[str] = set()
    for port, prefix in ((port, prefix) for port, some in ways for prefix in prefixes(*some)):
        text = prefix.exploded
        if text not in known:
            known.add(text)
            yield f"R{text} {port}"


BUFFERS = 16_384
"""Packet buffers for both ports; by default testpmd makes room for dozens of queues."""


class TestpmdOptions(dpdk.DpdkOptions):
    """Whether hardware addresses are kept (`io`) or set (`mac`)."""

    mode: Literal["io", "mac"] = Field(
        default="io",
        description="io keeps the hardware addresses of packets, mac sets them.",
        examples=["mac"],
    )


class Testpmd(Dpdk):
    """``dpdk-testpmd``; as many cores forward as the DuT has CPUs, up to one for each port."""

    name = "testpmd"
    summary = "DPDK's test program polls both ports and forwards between them (layer 2)."
    documentation = (
        "As many cores forward as the DuT has CPUs, up to one for each port. Needs `make "
        "forwarders`, or the Debian package dpdk-dev. Ready within 20 s."
    )
    Options: type[BaseModel] = TestpmdOptions
    needs: Sequence[Need] = (dpdk.TESTPMD,)

    def words(
        self, dut: Dut, options: TestpmdOptions, setting: Setting, work: WorkFolder
    ) -> tuple[list[str], list[str]]:
        cpus = dut.cpus[:2]
        words = ["--auto-start", "--no-flush-rx", f"--nb-cores={len(cpus)}"]
        words += [f"--total-num-mbufs={BUFFERS}", f"--forward-mode={options.mode}"]
        hops = enumerate(dpdk.next_hops(dut, setting))
        return dpdk.lcores(cpus, idle_main=True), [
            *words,
            *(f"--eth-peer={number},{mac}" for number, mac in hops),
        ]
