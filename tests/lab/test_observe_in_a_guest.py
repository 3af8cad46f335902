"""`tailtap observe` on interfaces that the tests' own kernel may lack: in a guest with Debian's."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from standing import standing

from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.vm import VmOptions
from tailtap.remote.guest import GuestHost

TAILTAP = str(Path(sys.executable).with_name("tailtap"))
SECONDS = 900
"""How long a command may take where all is emulated."""
MODULES = ("8021q", "bonding", "bridge", "veth", "openvswitch", "ip_gre", "sch_ingress")
PAIRS = """
for name in sender sink; do ip netns add $name; ip -n $name link set lo up; done
ip link add eth0 netns sender type veth peer name in
ip link add eth0 netns sink type veth peer name out
ip -n sender link set eth0 up; ip -n sink link set eth0 up
ip link set in up; ip link set out up
"""
BRIDGE = """
ip link add br0 type bridge mcast_snooping 0 vlan_filtering {filtering}
for port in {ports}; do ip link set $port master br0; ip link set $port up; done
ip link set br0 up
"""
TAGGED = """
ip link add link in name in.5 type vlan id 5; ip link add link out name out.6 type vlan id 6
ip -n sender link add link eth0 name tagged type vlan id 5; ip -n sender link set tagged up
"""
BONDED = """
ip link add bond0 type bond mode active-backup miimon 100
ip link set out down; ip link set out master bond0; ip link set out up
"""
FILTERED = "bridge vlan add dev in vid 7 pvid untagged; bridge vlan add dev out vid 7"
SWITCH = """
mkdir -p /run/openvswitch
ovsdb-tool create /run/openvswitch/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server /run/openvswitch/conf.db --remote=punix:/run/openvswitch/db.sock --detach \\
    --no-chdir --log-file=/run/openvswitch/server.log --pidfile
ovs-vsctl --no-wait init
ovs-vswitchd --detach --no-chdir --log-file=/run/openvswitch/switch.log --pidfile
ovs-vsctl --timeout=60 add-br br0 -- add-port br0 in -- add-port br0 out
ovs-dpctl show
"""
SENDING = """
mac=$(ip netns exec sink cat /sys/class/net/eth0/address)
setsid ip netns exec sender {tailtap} generate {port} --rate '499 pkt/s' --duration '3600 s' \\
    --quiet --src 10.9.1.2 --dst 10.9.2.2 --dst-mac $mac --cpu 0 --no-bypass \\
    < /dev/null > /run/sent 2>&1 &
echo $! > /run/sender
"""
AWAY = """
kill $(cat /run/sender); sleep 1
test ! -e /run/openvswitch/conf.db || ovs-vsctl del-br br0
for name in sender sink; do ip netns del $name; done
for name in br0 bond0; do ip link del $name 2> /dev/null || true; done
"""
DEVICES = {
    "vlan": (TAGGED + BRIDGE.format(filtering=0, ports="in.5 out.6"), "in.5", "out.6", "tagged"),
    "bond": (BONDED + BRIDGE.format(filtering=0, ports="in bond0"), "in", "bond0", "eth0"),
    "filtering bridge": (
        BRIDGE.format(filtering=1, ports="in out") + FILTERED, "in", "out", "eth0",
    ),
    "open vswitch": (SWITCH, "in", "out", "eth0"),
}  # fmt: skip
"""How a device is made, its interfaces, and that of the sender."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the guest needs two CPUs"),
]


@pytest.fixture(scope="module")
def guest() -> Iterator[GuestHost]:
    options = VmOptions.model_validate({"memory": "1024 MiB"})
    with standing("vm", DutSpec((0, 1), options)) as (_, device):
        assert isinstance(device.host, GuestHost)
        device.host.run(["modprobe", "-a", *MODULES])
        yield device.host


@pytest.mark.parametrize("device", DEVICES)
def test_what_passes_is_observed(guest: GuestHost, device: str) -> None:
    """Every packet is found again; the kernel refuses no program."""
    if device == "open vswitch" and shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch is not installed")
    made, came, left, port = DEVICES[device]
    sending = SENDING.format(tailtap=TAILTAP, port=port)
    guest.run(["sh", "-ec", PAIRS + made + sending], seconds=SECONDS)
    try:
        folder = f"/run/{device.replace(' ', '-')}"
        words = ["observe", came, left, "--for", "2 s", "--trace", "none", "--out", folder]
        words += ["--json", "--quiet", "--budget", "100 %"]
        [run] = json.loads(guest.run([TAILTAP, *words], seconds=SECONDS).stdout)["runs"]
        counts = run["evaluation"]["counts"]
        assert counts["matched"] > 500 and counts["lost"] == counts["unmatched_egress"] == 0
    finally:
        guest.run(["sh", "-ec", AWAY], seconds=SECONDS)
