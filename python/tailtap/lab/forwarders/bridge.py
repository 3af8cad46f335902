"""`bridge`: the kernel's Ethernet bridge, with or without filtering of VLANs.

It knows beforehand behind which port our packets' destinations are, and learns nothing while it is
measured. Packets of both directions have the same destination, so that then it knows none and hands
all to the other port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, cast

from pydantic import BaseModel, Field

from tailtap.base.check import Check
from tailtap.base.errors import MachineError
from tailtap.base.schema import Strict
from tailtap.lab.forwarders.diagnosis import try_in_lab
from tailtap.lab.forwarders.in_kernel import InKernel
from tailtap.lab.forwarders.served import by_kernel
from tailtap.lab.forwarders.setting import Need, Plain, Setting
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.topology.numbering import DESTINATION_MAC, NEXT_HOP_MAC

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

    summary = "The kernel's Ethernet bridge moves packets by destination address (layer 2)."
    documentation = (
        "Without spanning tree and learning: it knows beforehand where packets go. With "
        "traffic.bidirectional and with captures that are sent again it knows no destination, and "
        "packets go to the other port as unknown ones do (flood in run.json). Ready within 2 s."
    )
    in_kernel = True
    shares_cpus = True
    Options: type[BaseModel] = BridgeOptions
    needs: Sequence[Need] = (
        Need("ip", "apt-get install iproute2"),
        Need("bridge", "apt-get install iproute2"),
    )

    def diagnose(self) -> Iterator[Check]:
        """Set it up in a lab."""

        def attempt(dut: Dut, setting: Setting) -> str:
            self.start(dut, self.Options(vlans=[UNTAGGED]), setting).close()
            return "was set up in a lab"

        remedy = "a kernel with CONFIG_BRIDGE and CONFIG_BRIDGE_VLAN_FILTERING"
        return try_in_lab("bridge", attempt, remedy)

    def start(self, dut: Dut, options: BaseModel, setting: Setting) -> InKernel:
        """Make it and read back that both ports are in it. Raises `MachineError`."""
        vlans = cast("BridgeOptions", options).vlans
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
        return InKernel("bridge", facts, by_kernel(setting.lab, dut))
