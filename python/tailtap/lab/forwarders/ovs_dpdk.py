"""`ovs-dpdk`: Open vSwitch with DPDK, whose threads poll both ports on the DuT's CPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import cast

from pydantic import BaseModel

from tailtap.base.check import Check, Findings
from tailtap.lab.forwarders import dpdk, ovs
from tailtap.lab.forwarders.diagnosis import find_programs
from tailtap.lab.forwarders.program import WorkFolder
from tailtap.lab.forwarders.rules import RuleFile
from tailtap.lab.forwarders.setting import Asked, Need, Plain, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.remote.local import LocalHost

SWITCH = Need(
    "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
    "apt-get install openvswitch-switch-dpdk, or run `make forwarders`",
)
POLLS = "pmd-"
"""How the names of its threads begin that poll ports."""


class OvsDpdkOptions(dpdk.DpdkOptions):
    """DPDK's options, and its rules."""

    rules: RuleFile | None = ovs.RULES


class OvsDpdk(Plain):
    """``ovs-vswitchd-dpdk`` and its database, in a folder of their own."""

    summary = "Open vSwitch with DPDK moves packets by rules of OpenFlow (layers 2 to 4), polling."
    documentation = (
        "A thread polls on each of the DuT's CPUs, up to two. Needs `make forwarders`, or the "
        "Debian package openvswitch-switch-dpdk. Ready within 20 s."
    )
    Options: type[BaseModel] = OvsDpdkOptions
    needs: Sequence[Need] = (SWITCH, *ovs.TOOLS)

    def diagnose(self) -> Iterator[Check]:
        """Look for its programs."""
        return find_programs("ovs-dpdk", self.needs)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Find out what DPDK would miss, and whether its rules are any."""
        chosen = cast("OvsDpdkOptions", options)
        findings.ask(ovs.require_rules, LocalHost(), chosen.rules)
        dpdk.foresee(chosen, asked, findings)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> ovs.Switch:
        """Start it. Raises `MachineError`, and `InputError` for rules that it does not take."""
        chosen = cast("OvsDpdkOptions", options)
        program, *_ = (need.find(dut.host) for need in self.needs)
        ovs.require_rules(dut.host, chosen.rules)
        cpus = dut.cpus[:2]
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(WorkFolder(dut, setting))
            ports = dpdk.ports(dut, chosen, setting, stack)
            work.put("rules", ovs.openflow(dut, chosen.rules))
            devices = {
                port: ("type=dpdk", f'options:dpdk-devargs="{device}"')
                for port, (_, device) in zip((dut.ingress, dut.egress), ports.devices, strict=True)
            }
            # Open vSwitch adds an option for huge pages in memory unless it finds this one.
            memory = [*ports.memory, *([] if ports.facts["huge_pages"] else ["--legacy-mem"])]
            words = [
                *ovs.bridge(ovs.DATAPATHS["userspace"], devices),
                *("--", "set", "open_vswitch", ".", "other_config:dpdk-init=true"),
                f'other_config:dpdk-extra="{" ".join(memory)}"',
                f'other_config:pmd-cpu-mask="{sum(1 << cpu for cpu in cpus):#x}"',
            ]
            # Its other threads run wherever this process may: those that poll never let go of a
            # CPU.
            return ovs.Switch(
                work,
                "ovs-dpdk",
                ovs.command(work, program, dut, (), words),
                stack=stack,
                facts=ports.facts,
                threads=POLLS,
            )
