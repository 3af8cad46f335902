"""`kernel-route`: the kernel routes, from one port to the other, by policy and static neighbours.

What comes in at a port and goes to one of the traffic's UDP destination ports is looked up in a
routing table of its own (ip-rule(8)), whose default route leads out of the other port to a
neighbour with a fixed hardware address: no protocol resolves anything while packets are measured.
The ports take on the hardware addresses that the packets are sent to.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from tailtap.errors import MachineError
from tailtap.findings import Findings
from tailtap.forwarder.in_kernel import InKernel
from tailtap.forwarder.setting import (
    DESTINATION_MAC,
    NEXT_HOP_MAC,
    Asked,
    Need,
    Setting,
)
from tailtap.forwarder.tc_mirred import NoOptions
from tailtap.host import CommandFailed, Host
from tailtap.platform.dut import Dut
from tailtap.traffic.flows import Ranges
from tailtap.traffic.model import Traffic

NEXT_HOPS = {4: "169.254.116.116", 6: "fe80::7474"}
"""The neighbour behind each port: link-local, so that no flow can go to it."""
TABLES = (7474, 7475)
"""The routing tables of the two directions."""

# Without reverse path filtering: the sources are not known here, and need not be.
_SETTINGS = {
    4: """base=/proc/sys/net/ipv4
echo 1 > $base/ip_forward
for port in all "$@"; do
    echo 0 > $base/conf/$port/rp_filter; echo 0 > $base/conf/$port/send_redirects
done""",
    # No addresses and no neighbour discovery of its own: only what is measured is on the links.
    6: """base=/proc/sys/net/ipv6/conf
for port in "$@"; do
    echo 0 > $base/$port/accept_dad; echo 1 > $base/$port/addr_gen_mode
    echo 0 > $base/$port/accept_ra; echo 0 > $base/$port/disable_ipv6
done
echo 0 > $base/all/disable_ipv6; echo 1 > $base/all/forwarding
for port in "$@"; do echo 0 > $base/$port/disable_ipv6; done""",
}


class KernelRoute:
    """The kernel's own forwarding path of layer 3."""

    Options: type[BaseModel] = NoOptions
    needs: Sequence[Need] = (Need("ip", "install the Debian package iproute2"),)

    def foresee(self, options: BaseModel, asked: Asked, findings: Findings) -> None:
        """Nothing: whether the kernel does it shows when it is tried."""

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> InKernel:
        """Set rules, routes and neighbours, and read back where packets go.

        Raises `MachineError`.
        """
        traffic, host = setting.traffic, dut.host
        host.run(["sh", "-ec", _SETTINGS[traffic.ip], "settings", dut.ingress, dut.egress])
        # Without a single address of its own, the kernel takes no gateway for one of a neighbour.
        host.run(["ip", "link", "set", "dev", "lo", "up"])
        ranges = traffic.ranges()
        ways = [(dut.ingress, dut.egress, ranges)]
        if dut.both_ways:
            ways.append((dut.egress, dut.ingress, traffic.reversed().ranges()))
        # Before all else: a port that changes its address forgets its neighbours.
        for port, _, _ in ways:
            host.run(["ip", "link", "set", "dev", port, "address", DESTINATION_MAC])
        for table, (port, out, flows) in zip(TABLES, ways, strict=False):
            _route(host, traffic, table, port, out, flows)
        for port, out, flows in ways:
            _check(host, traffic, port, out, flows)
        release = host.run(["uname", "-r"]).stdout.strip()
        return InKernel("kernel-route", {"version": release})


def _route(host: Host, traffic: Traffic, table: int, port: str, out: str, flows: Ranges) -> None:
    ip, hop = ["ip", f"-{traffic.ip}"], NEXT_HOPS[traffic.ip]
    first, count = flows.destination_ports
    rule = ["iif", port, "ipproto", "udp", "dport", f"{first}-{first + count - 1}"]
    try:
        host.run([*ip, "rule", "add", *rule, "table", str(table)])
    except CommandFailed as error:
        raise MachineError(
            "this kernel cannot route by UDP port (it needs CONFIG_IP_MULTIPLE_TABLES and Linux "
            f"4.17): {error.reason}"
        ) from error
    neighbour = ["neigh", "replace", hop, "lladdr", NEXT_HOP_MAC, "dev", out, "nud", "permanent"]
    host.run([*ip, *neighbour])
    route = ["route", "replace", "default", "via", hop, "dev", out, "onlink"]
    host.run([*ip, *route, "table", str(table)])


def _check(host: Host, traffic: Traffic, port: str, out: str, flows: Ranges) -> None:
    """Raises `MachineError` unless the first flow goes from `port` to `out`."""
    ask = ["ip", f"-{traffic.ip}", "route", "get", str(flows.destination[0])]
    ask += ["from", str(flows.source[0]), "iif", port, "ipproto", "udp"]
    ask += ["sport", str(flows.source_ports[0]), "dport", str(flows.destination_ports[0])]
    said = " ".join(host.run(ask, check=False).stdout.split())
    if f" dev {out} " not in f" {said} ":
        raise MachineError(
            f"the kernel does not route {flows.destination[0]} from {port} to {out}: it says "
            f"{said or 'nothing'}: are traffic.flows addresses that can be forwarded?"
        )
