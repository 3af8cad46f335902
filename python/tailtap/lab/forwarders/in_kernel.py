"""Forwarding by the kernel itself: there is no process, and the rules go with the namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tailtap.base.errors import MachineError
from tailtap.base.schema import Strict
from tailtap.lab.forwarders.setting import READY_SECONDS, Need, Plain, Serves, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.served import SOFTIRQ, Served, by_kernel
from tailtap.lab.topology.numbering import DESTINATION_MAC, NEXT_HOP_MAC
from tailtap.records.record import Notice
from tailtap.remote import Host


@dataclass(frozen=True)
class InKernel:
    """Installed rules. The counters of the DuT's CPUs include their work."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    kernel: Served = SOFTIRQ
    """By what of the kernel packets are served."""
    process: None = None
    holds_ns: int = 0
    ready_seconds: float = READY_SECONDS
    warnings: Sequence[Notice] = ()

    def served(self) -> Served:
        return self.kernel

    def cpu_time(self) -> None:
        """None: no process does the kernel's work."""

    def failure(self) -> str:
        return (
            f"the forwarder {self.name} lets nothing through: does it work on this kernel? "
            "`tailtap doctor` tells"
        )

    def stop(self) -> dict[str, Any]:
        return dict(self.facts)

    def close(self) -> None:
        """The rules go with the namespace."""


CLASSIFIERS: Mapping[str, Sequence[str]] = {
    "matchall": ["matchall"],
    "u32": ["u32", "match", "u32", "0", "0"],
}
"""Classifiers that match every packet, the better one first."""
# In one go: a line has many nodes.
_INSTALL = """in=$1; out=$2; shift 2
tc qdisc replace dev $in clsact
tc filter add dev $in ingress protocol all "$@" action mirred egress redirect dev $out
tc filter show dev $in ingress"""


class TcMirred(Plain):
    """The kernel's own forwarding path for redirected packets."""

    name = "tc-mirred"
    remedy = "a kernel with CONFIG_NET_ACT_MIRRED and CONFIG_NET_CLS_MATCHALL"
    required = True
    summary = "The kernel redirects packets from one port to the other (layer 2)."
    documentation = (
        "A clsact queueing discipline, a classifier that matches everything (matchall, else u32) "
        "and the action mirred. Ready within 2 s."
    )
    in_kernel = True
    serves: Serves = "ports"
    shares_cpus = True
    needs: Sequence[Need] = (Need("tc", "apt-get install iproute2"),)

    def attempt(self, dut: Dut, setting: Setting) -> str:
        return f"mirred with {', '.join(_working(dut))}"

    def start(self, dut: Dut, options: Any, setting: Setting) -> InKernel:
        first, *others = dut.ways
        classifier = install(dut.host, first, CLASSIFIERS)
        for way in others:
            install(dut.host, way, [classifier])
        served = by_kernel(setting.lab, dut)
        return InKernel(self.name, {"classifier": classifier}, served)


def _working(dut: Dut) -> list[str]:
    """The classifiers that redirect on this kernel. Raises `MachineError` when none does."""
    found: list[str] = []
    refusals: list[str] = []
    for name in CLASSIFIERS:
        try:
            found.append(install(dut.host, dut.ways[0], [name]))
        except MachineError as error:
            refusals.append(str(error))
    if not found:
        raise MachineError(refusals[0])
    return found


def install(host: Host, way: tuple[str, str], classifiers: Iterable[str]) -> str:
    """Redirect what comes in at the first port of `way` to the second; by which classifier.

    It is the first of `classifiers` that this kernel has. Raises `MachineError` when it has none.
    """
    entered, left = way
    refusals: list[str] = []
    for name in classifiers:
        words = ["install", entered, left, *CLASSIFIERS[name]]
        done = host.run(["sh", "-ec", _INSTALL, *words], check=False)
        if done.status != 0:
            refusals.append(f"{name}: {' '.join(done.stderr.split())}")
        elif name in done.stdout and left in done.stdout:
            return name
        else:
            refusals.append(f"{name}: the rule does not show up")
    raise MachineError(
        "this kernel cannot redirect packets (it needs CONFIG_NET_ACT_MIRRED and "
        f"CONFIG_NET_CLS_MATCHALL or CONFIG_NET_CLS_U32): {'; '.join(refusals)}"
    )


BRIDGE = "tt-br"
UNTAGGED = 1
"""The VLAN of packets without a tag."""

# No address of its own, so that it sends nothing by itself; and no rules of iptables, which some
# kernels apply to what is bridged. Without learning, nothing changes while packets pass.
# In one go: a line has many nodes.
_MAKE = """name=$1 vlans=$2 flood=$3 macs=$4 out=$5; shift 5
cd /proc/sys/net/bridge 2> /dev/null && for family in ip ip6 arp; do
    echo 0 > bridge-nf-call-${family}tables
done
ip link add name $name type bridge stp_state 0 mcast_snooping 0 \\
    ${vlans:+vlan_default_pvid 0 vlan_filtering 1}
ip link set dev $name multicast off
ip link set dev $name addrgenmode none 2> /dev/null || : # without IPv6 there is no such mode
for port in "$@"; do
    ip link set dev $port master $name
    bridge link set dev $port learning off flood $flood
    for vlan in $vlans; do
        [ $vlan = 1 ] && how='pvid untagged' || how=
        bridge vlan add dev $port vid $vlan $how
    done
done
ip link set dev $name up
for mac in $macs; do
    for vlan in ${vlans:-none}; do
        [ $vlan = none ] && where= || where="vlan $vlan"
        bridge fdb replace $mac dev $out master static $where
    done
done
bridge link show; uname -r"""


class BridgeOptions(Strict):
    """Which VLANs pass."""

    vlans: list[Annotated[int, Field(ge=1, le=4094)]] | None = Field(
        default=None,
        description="The VLANs whose packets pass (VLAN filtering); 1 is that of packets without "
        "a tag. By default there is no filter.",
        examples=[[1, 100]],
    )


class Bridge(Plain):
    """The kernel's bridge between the ports of a node."""

    name = "bridge"
    remedy = "a kernel with CONFIG_BRIDGE and CONFIG_BRIDGE_VLAN_FILTERING"
    summary = "The kernel's Ethernet bridge moves packets by destination address (layer 2)."
    documentation = (
        "Without spanning tree and learning: it knows beforehand where packets go, but "
        "with traffic.bidirectional and replayed captures, which go to the other port as "
        "unknown ones do (flood in run.json). Ready within 2 s."
    )
    in_kernel = True
    shares_cpus = True
    Options: type[BaseModel] = BridgeOptions
    needs: Sequence[Need] = (
        Need("ip", "apt-get install iproute2"),
        Need("bridge", "apt-get install iproute2"),
    )

    def attempt(self, dut: Dut, setting: Setting) -> str:
        self.start(dut, BridgeOptions(vlans=[UNTAGGED]), setting).close()
        return "was set up in a lab"

    def start(self, dut: Dut, options: BridgeOptions, setting: Setting) -> InKernel:
        vlans = options.vlans
        flood = dut.both_ways or any(flow.replay is not None for flow in setting.flows.values())
        onward = (way.next.mac for way in setting.lab.ways[dut.node] if way.next is not None)
        macs = [] if flood else dict.fromkeys([DESTINATION_MAC, NEXT_HOP_MAC, *onward])
        words = [BRIDGE, " ".join(map(str, vlans or ())), "on" if flood else "off", " ".join(macs)]
        done = dut.host.run(
            ["sh", "-ec", _MAKE, "bridge", *words, dut.egress, *dut.ports], check=False
        )
        missing = [port for port in dut.ports if f" {port}" not in done.stdout]
        if done.status != 0 or missing:
            raise MachineError(
                "this kernel cannot bridge the ports (it needs CONFIG_BRIDGE, and for dut.options."
                f"vlans CONFIG_BRIDGE_VLAN_FILTERING): {' '.join(done.stderr.split())}"
            )
        facts = {"version": done.stdout.split()[-1], "vlans": list(vlans or ()), "flood": flood}
        return InKernel(self.name, facts, by_kernel(setting.lab, dut))
