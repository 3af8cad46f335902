"""`kernel-route`: the kernel routes each flow its way, to static neighbours.

By port: what comes in at a port and goes to one of a flow's UDP destination ports is looked up in a
routing table of its own (ip-rule(8)), whose default route is the flow's. The kernel walks the rules
one by one. By address: the kernel's main table has a route for each flow's destination.

A route leads out of a port to a neighbour with a fixed hardware address: no protocol resolves
anything while packets are measured. The DuT's outer ports take on the hardware addresses that the
packets are sent to; those between nodes have the graph's (lab/topology/numbering.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.lab.forwarders.diagnosis import try_in_lab
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.served import by_kernel
from tailtap.lab.forwarders.setting import Need, Plain, Serves, Setting
from tailtap.lab.generators.flows import Ranges, prefixes
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.numbering import BEHIND, DESTINATION_MAC, NEXT_HOP_MAC, Way

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

    def diagnose(self) -> Iterator[Check]:
        """Set it up in a lab."""

        def attempt(dut: Dut, setting: Setting) -> str:
            self.start(dut, self.Options(), setting).close()
            return "was set up in a lab"

        return try_in_lab("kernel-route", attempt)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> InKernel:
        """Set rules, routes and neighbours, and read back where packets go.

        Raises `MachineError`.
        """
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
