"""`kernel-route`: the kernel routes each flow its way, to static neighbours.

By port: what comes in at a port and goes to one of a flow's UDP destination ports is looked up in a
routing table of its own (ip-rule(8)), whose default route is the flow's. The kernel walks the rules
one by one. By address: the kernel's main table has a route for each flow's destination.

A route leads out of a port to a neighbour with a fixed hardware address: no protocol resolves
anything while packets are measured. The DuT's outer ports take on the hardware addresses that the
packets are sent to; those between nodes have the graph's (lab/topology/numbering.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from tailtap.base.errors import Findings, InputError, MachineError
from tailtap.base.schema import Strict
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.rules import RuleFile, read_rules
from tailtap.lab.forwarders.setting import (
    OTHER_KERNEL,
    Asked,
    Need,
    Plain,
    Serves,
    Setting,
)
from tailtap.lab.generators.flows import Ranges, Version, prefixes
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.served import by_kernel
from tailtap.lab.topology.numbering import BEHIND, DESTINATION_MAC, NEXT_HOP_MAC, Way
from tailtap.remote import Completed
from tailtap.remote.local import LocalHost

FIRST_TABLE = 7474
"""The routing table of a node's first flow; each has one."""

# Without reverse path filtering: the sources are not known here, and need not be.
_SETTINGS = {
    4: """base=/proc/sys/net/ipv4
echo 1 > $base/ip_forward
for port in all "$@"; do
    echo 0 > $base/conf/$port/rp_filter; echo 0 > $base/conf/$port/send_redirects
done""",
    # No addresses, no neighbour discovery, and nobody told of the routers' group, which a port
    # without multicast does not join (dev_forward_change()): links carry nothing but the traffic.
    6: """base=/proc/sys/net/ipv6/conf
for port in "$@"; do
    ip link set dev $port multicast off
    echo 0 > $base/$port/accept_dad; echo 1 > $base/$port/addr_gen_mode
    echo 0 > $base/$port/accept_ra; echo 0 > $base/$port/disable_ipv6
done
echo 0 > $base/all/disable_ipv6; echo 1 > $base/all/forwarding
for port in "$@"; do echo 0 > $base/$port/disable_ipv6; done""",
}


class KernelRoute(Plain):
    """The kernel's own forwarding path of layer 3."""

    name = "kernel-route"
    remedy = OTHER_KERNEL
    summary = "The kernel routes packets (layer 3)."
    documentation = (
        "dut.route_by says how it tells flows apart. port: packets to a flow's UDP destination "
        "ports are looked up in a routing table of its own, which needs Linux 4.17 with "
        "CONFIG_IP_MULTIPLE_TABLES. address: there is a route for each flow's destination. The "
        "flows need addresses that can be forwarded. Ready within 2 s."
    )
    in_kernel = True
    routes = True
    serves: Serves = "flows"
    shares_cpus = True
    needs: Sequence[Need] = (Need("ip", "apt-get install iproute2"),)

    def start(self, dut: Dut, options: Any, setting: Setting) -> InKernel:
        version, host = setting.ip, dut.host
        ways = [(way, setting.flows[way.flow].ranges()) for way in setting.lab.ways[dut.node]]
        # Without a single address of its own, the kernel takes no gateway for one of a neighbour.
        commands = ["link set dev lo up"]
        # First, because a port that changes its address forgets its neighbours.
        commands += dict.fromkeys(f"link set dev {way.entered.name} address {way.mac}"
                                  for way, _ in ways if way.mac == DESTINATION_MAC)  # fmt: skip
        for number, (way, flows) in enumerate(ways):
            table = FIRST_TABLE + number if setting.route_by == "port" else None
            commands += _route(version, table, way, flows)
        asked = [_question(way, flows) for way, flows in ways]
        # In one go: a line has many nodes.
        script = f"{_SETTINGS[version]}\nip -{version} -batch -\nuname -r"
        done = host.run(
            ["sh", "-ec", script, "settings", *dut.ports],
            stdin="".join(f"{command}\n" for command in [*commands, *asked]),
            check=False,
        )
        said = " ".join(done.stderr.split())
        if done.status != 0 and _failed(said, [*commands, *asked]) not in asked:
            raise MachineError(
                f"this kernel cannot route by {setting.route_by} (by port it needs "
                f"CONFIG_IP_MULTIPLE_TABLES and Linux 4.17): {said}"
            )
        answers, _, release = done.stdout.strip().rpartition("\n")
        _check(ways, answers if done.status == 0 else done.stdout, said)
        served = by_kernel(setting.lab, dut)
        return InKernel("kernel-route", {"version": release, "route_by": setting.route_by}, served)


def _route(version: int, table: int | None, way: Way, flows: Ranges) -> list[str]:
    """The commands of ip(8) that send a flow its way: by its ports in a `table`, or by address."""
    hop, mac = BEHIND[version], NEXT_HOP_MAC
    if way.next is not None:
        hop, mac = way.next.ip(version), way.next.mac
    out = way.left.name
    neighbour = f"neigh replace {hop} lladdr {mac} dev {out} nud permanent"
    to = f"via {hop} dev {out} onlink"
    if table is None:
        return [
            neighbour,
            *(f"route replace {prefix} {to}" for prefix in prefixes(*flows.destination)),
        ]
    first, count = flows.destination_ports
    ports = f"{first}-{first + count - 1}"
    return [  # UDP by its number: a minimal Debian has no /etc/protocols
        f"rule add iif {way.entered.name} ipproto 17 dport {ports} table {table}",
        neighbour,
        f"route replace default {to} table {table}",
    ]


def _question(way: Way, flows: Ranges) -> str:
    """The command of ip(8) that says where the first flow goes."""
    return (
        f"route get {flows.destination[0]} from {flows.source[0]} iif {way.entered.name} "
        f"ipproto 17 sport {flows.source_ports[0]} dport {flows.destination_ports[0]}"
    )


def _failed(said: str, commands: Sequence[str]) -> str | None:
    """The command that ip(8) says it failed at, by the number of its line."""
    found = re.search(r"Command failed -:([0-9]+)", said)
    return None if found is None else commands[int(found[1]) - 1]


def _check(ways: Sequence[tuple[Way, Ranges]], answers: str, complaint: str) -> None:
    """Raises `MachineError` unless the first flow of each way goes from one port to the other."""
    # The second line of an answer is indented.
    rows = re.split(r"\n(?=\S)", answers.strip()) if answers.strip() else []
    for number, (way, flows) in enumerate(ways):
        said = " ".join(rows[number].split()) if number < len(rows) else complaint
        if f" dev {way.left.name} " not in f" {said} ":
            raise MachineError(
                f"the kernel does not route {flows.destination[0]} from {way.entered.name} to "
                f"{way.left.name}: it says {said or 'nothing'}: are traffic.flows addresses that "
                "can be forwarded?"
            )


OUTSIDE: dict[Version, str] = {4: "192.0.2.1", 6: "2001:db8::1"}
"""The address that packets leave with, by version of IP: one of those for documentation (RFC 5737,
RFC 3849), to which no flow goes."""


class Nat(KernelRoute):
    """`kernel-route`, and the kernel's translation of source addresses.

    Not masquerade: that takes the address of the port, and ports of the lab have none.
    """

    name = "nat"
    remedy = "apt-get install nftables, and CONFIG_NFT_NAT"
    summary = "The kernel routes packets and translates their source addresses (NAT)."
    documentation = (
        "kernel-route with a rule of nftables: all packets leave with the source address "
        f"{OUTSIDE[4]}, or {OUTSIDE[6]}, and a port of the kernel's choice where several flows "
        "have the same. Connection tracking looks up each packet, and keeps an entry for each "
        "flow. Needs a kernel with CONFIG_NFT_NAT. Ready within 2 s."
    )
    needs: Sequence[Need] = (*KernelRoute.needs, Need("nft", "apt-get install nftables"))

    def start(self, dut: Dut, options: Any, setting: Setting) -> InKernel:
        nft = self.needs[-1].find(dut.host)
        routed = super().start(dut, options, setting)
        family = "ip" if setting.ip == 4 else "ip6"
        leaving = ", ".join(dict.fromkeys(port for _, port in dut.ways))
        rules = f"""table {family} tailtap {{
  chain leaving {{
    type nat hook postrouting priority srcnat;
    oifname {{ {leaving} }} snat to {OUTSIDE[setting.ip]}
  }}
}}
"""
        done = dut.host.run([nft, "-f", "-"], stdin=rules, check=False)
        if done.status != 0:
            raise MachineError(
                "this kernel cannot translate addresses (it needs CONFIG_NFT_NAT and "
                f"CONFIG_NF_CONNTRACK): {' '.join(done.stderr.split())}"
            )
        facts = {**routed.facts, "source": OUTSIDE[setting.ip]}
        return InKernel("nat", facts, routed.kernel)


MOST_RULES = 100
"""Of how many rules the packets are told."""
_COUNTED = re.compile(r"^\s*(.*?)counter packets ([0-9]+) bytes [0-9]+ ?(.*)$", re.M)


class NftablesOptions(Strict):
    """The file with the rules."""

    rules: RuleFile = Field(
        description="A file with rules for nft(8). $ingress and $egress are the names of the two "
        "ports. Rules that count have their packets in run.json.",
        examples=["firewall.nft"],
    )


@dataclass(frozen=True)
class Ruled(InKernel):
    """Routes, and rules that count."""

    dut: Dut | None = None

    def stop(self) -> dict[str, Any]:
        assert self.dut is not None  # `start` names it
        told = self.dut.host.run(["nft", "list", "ruleset"], check=False).stdout
        return {**super().stop(), "rule_packets": counted(told)}


def counted(told: str) -> list[dict[str, Any]]:
    """The packets of each rule with a counter, of what ``nft list ruleset`` prints."""
    rows = [
        {"rule": f"{match[1]}{match[3]}".strip(), "packets": int(match[2])}
        for match in _COUNTED.finditer(told)
    ]
    return rows[:MOST_RULES]


class Nftables(KernelRoute):
    """`kernel-route`, and a file of rules."""

    name = "nftables"
    remedy = ""
    summary = "The kernel routes packets, filtered or translated by rules of nftables."
    documentation = (
        "kernel-route with the rules of a file: a firewall, translation of addresses, or "
        "whatever else nft(8) takes and the kernel has. Ready within 2 s."
    )
    Options: type[BaseModel] = NftablesOptions
    needs: Sequence[Need] = (*KernelRoute.needs, Need("nft", "apt-get install nftables"))

    def foresee(self, options: NftablesOptions, asked: Asked, findings: Findings) -> None:
        if os.geteuid() == 0 and not asked.own_kernel:
            findings.ask(_try, options.rules)

    def start(self, dut: Dut, options: NftablesOptions, setting: Setting) -> Ruled:
        nft = self.needs[-1].find(dut.host)
        routed = super().start(dut, options, setting)
        words = _command(nft, dut.ingress, dut.egress)
        _require(options.rules, dut.host.run(words, stdin=read_rules(options.rules), check=False))
        return Ruled("nftables", routed.facts, routed.kernel, dut=dut)


def _command(nft: str, ingress: str, egress: str) -> list[str]:
    names = ("--define", f"ingress={ingress}", "--define", f"egress={egress}")
    return [nft, *names, "-f", "-"]


def _try(rules: str) -> None:
    """Raises `InputError` for rules that nft or this kernel does not take."""
    words = ["unshare", "--net", *_command("nft", "tt-in", "tt-out"), "--check"]
    _require(rules, LocalHost().run(words, stdin=read_rules(rules), check=False))


def _require(rules: str, done: Completed) -> None:
    if done.status != 0:
        said = " ".join(done.stderr.split()).replace("/dev/stdin", rules)
        raise InputError(f"nft, or this kernel, does not take these rules: {said}").at(rules)
