"""`dpdk-l3fwd`: DPDK's example of a router, with longest prefix match.

Its routes are the destinations of the traffic, out of the egress port, and the sources, out of the
ingress port. Packets leave with hardware addresses of the next link and a lower time to live.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import BaseModel

from tailtap.lab.forwarders import dpdk
from tailtap.lab.forwarders.built import Example, ExampleOptions, built, draining
from tailtap.lab.forwarders.program import Program, WorkFolder
from tailtap.lab.forwarders.setting import Need, Setting
from tailtap.lab.generators.flows import Ranges, prefixes
from tailtap.lab.platforms.dut import Dut

INGRESS, EGRESS = 0, 1
"""What l3fwd calls the ports."""
UNUSED = {4: "192.0.2.0/24", 6: "2001:db8::/32"}
"""Prefixes for documentation: l3fwd wants a route of each version."""


class DpdkL3fwd(Example):
    """``l3fwd`` on the first of the DuT's CPUs: through the kernel, a port has one queue."""

    summary = "DPDK's example l3fwd polls both ports and routes by longest prefix match (layer 3)."
    documentation = (
        "It runs on the first of the DuT's CPUs. Its routes are the flows' addresses. Needs `make "
        "forwarders`. Ready within 20 s."
    )
    routes = True
    Options: type[BaseModel] = ExampleOptions
    needs: Sequence[Need] = (built("dpdk-l3fwd"),)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> Program:
        """Start it. Raises `MachineError`."""
        chosen = cast("ExampleOptions", options)
        program = self.needs[0].find(dut.host)
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            ports = dpdk.ports(dut, chosen, setting, stack)
            command = [*draining(program, chosen.drain), *dpdk.lcores(dut.cpus[:1])]
            command += [*ports.arguments(), "--"]
            # Both ports, whatever address packets are sent to; queue 0 of each on core 0.
            command += ["-p", "3", "-P", "--config", f"({INGRESS},0,0),({EGRESS},0,0)"]
            command += ["--parse-ptype", "--lookup", "lpm"]
            there, back = (
                [setting.flows[way.flow].ranges() for way in setting.lab.ways[dut.node]
                 if way.entered.name == port]
                for port in (dut.ingress, dut.egress)
            )  # fmt: skip
            for version in (4, 6):
                lines = "\n".join(routes(there, back, setting.ip, version)) + "\n"
                command += [f"--rule_ipv{version}", str(work.put(f"routes{version}", lines))]
            for number, mac in zip((INGRESS, EGRESS), dpdk.next_hops(dut, setting), strict=True):
                command.append(f"--eth-dest={number},{mac}")
            return Program(
                work,
                "dpdk-l3fwd",
                command,
                stack=stack,
                ready_seconds=dpdk.READY_SECONDS,
                version=dpdk.VERSION,
                facts={**ports.facts, "drain_ns": chosen.drain},
                holds_ns=chosen.drain,
                polls=True,
            )


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
