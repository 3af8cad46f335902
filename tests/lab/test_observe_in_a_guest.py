"""`tailtap observe` on interfaces that the tests' own kernel may lack: in a guest with Debian's."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standing import standing

from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.vm import VmOptions
from tailtap.remote.guest import GuestHost

TAILTAP = str(Path(sys.executable).with_name("tailtap"))
SECONDS = 900
"""How long a command may take where all is emulated."""
MODULES = (
    "8021q", "bonding", "bridge", "veth", "openvswitch", "ip_gre", "wireguard", "ppp_async",
    "sch_ingress",
)  # fmt: skip
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
test ! -e /run/openvswitch/conf.db || ovs-vsctl --if-exists del-br br0
for pid in $(cat /run/held 2> /dev/null); do kill $pid 2> /dev/null || true; done
rm -f /run/held
for name in sender device sink; do ip netns del $name 2> /dev/null || true; done
for name in br0 bond0; do ip link del $name 2> /dev/null || true; done
"""
UNDERLAY = """
for name in sender device sink; do ip netns add $name; ip -n $name link set lo up; done
ip link add u0 netns sender type veth peer name u1 netns device
ip link add u0 netns sink type veth peer name u2 netns device
for at in sender:u0:10.1.1.2 device:u1:10.1.1.1 device:u2:10.1.2.1 sink:u0:10.1.2.2; do
    IFS=: read name port address <<END
$at
END
    ip -n $name addr add $address/24 dev $port; ip -n $name link set $port up
done
ip netns exec device sysctl -qw net.ipv4.ip_forward=1
"""
GRE = """
ip -n sender link add t0 type gre local 10.1.1.2 remote 10.1.1.1
ip -n device link add in type gre local 10.1.1.1 remote 10.1.1.2
ip -n device link add out type gre local 10.1.2.1 remote 10.1.2.2
ip -n sink link add t0 type gre local 10.1.2.2 remote 10.1.2.1
"""
WIREGUARD = """
umask 077
for name in sender in out sink; do
    wg genkey > /run/$name.key; wg pubkey < /run/$name.key > /run/$name.public
done
guard() { # namespace, interface, key, port; the peer's key, place and port
    ip -n $1 link add $2 type wireguard
    ip netns exec $1 wg set $2 private-key /run/$3.key listen-port $4 \\
        peer $(cat /run/$5.public) allowed-ips 0.0.0.0/0 endpoint $6:$7
}
guard sender t0 sender 51820 in 10.1.1.1 51821
guard device in in 51821 sender 10.1.1.2 51820
guard device out out 51822 sink 10.1.2.2 51820
guard sink t0 sink 51820 out 10.1.2.1 51822
"""
ADDRESSED = """
for at in sender:t0:10.9.1.2 device:in:10.9.1.1 device:out:10.9.2.1 sink:t0:10.9.2.2; do
    IFS=: read name port address <<END
$at
END
    ip -n $name addr add $address/24 dev $port; ip -n $name link set $port up
done
ip -n sender route add 10.9.2.0/24 via 10.9.1.1
"""
SEND = """
import socket, time
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
number = 0
while True:
    sending.sendto(number.to_bytes(4, "little") + bytes(20), ("10.9.2.2", 53))
    number += 1
    time.sleep(0.002)
"""
TUNNELLED = """
cat > /run/send.py <<'END'
{program}
END
setsid ip netns exec sender {python} /run/send.py < /dev/null > /run/sent 2>&1 &
echo $! > /run/sender
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
TUNNELS = {"gre": (GRE, "GRE"), "wireguard": (WIREGUARD, "WireGuard")}
"""How the interfaces of a router are made that have no Ethernet, and what they are called."""
NEEDED = {"open vswitch": "ovs-vswitchd", "wireguard": "wg"}

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


def observed(guest: GuestHost, folder: str, came: str, left: str, *options: str) -> dict[str, Any]:
    """The run of what passes two interfaces for a while: every packet is found again."""
    words = ["observe", came, left, "--for", "2 s", "--trace", "none", "--out", f"/run/{folder}"]
    words += ["--json", "--quiet", "--budget", "100 %", *options]
    [run] = json.loads(guest.run([TAILTAP, *words], seconds=SECONDS).stdout)["runs"]
    counts = run["evaluation"]["counts"]
    print(folder, counts)
    assert counts["matched"] > 300 and counts["lost"] == counts["unmatched_egress"] == 0
    kept: dict[str, Any] = json.loads(guest.run(
        ["cat", f"/run/{folder}/runs/001-observed/run.json"], seconds=SECONDS
    ).stdout)  # fmt: skip
    return kept


def require(device: str) -> None:
    """Skip the test where what makes the device is not installed."""
    if device in NEEDED and shutil.which(NEEDED[device]) is None:
        pytest.skip(f"{NEEDED[device]} is not installed")


@pytest.mark.parametrize("device", DEVICES)
def test_what_passes_is_observed(guest: GuestHost, device: str) -> None:
    """The kernel refuses no program."""
    require(device)
    made, came, left, port = DEVICES[device]
    sending = SENDING.format(tailtap=TAILTAP, port=port)
    guest.run(["sh", "-ec", PAIRS + made + sending], seconds=SECONDS)
    try:
        observed(guest, device.replace(" ", "-"), came, left)
    finally:
        guest.run(["sh", "-ec", AWAY], seconds=SECONDS)


@pytest.mark.parametrize("device", TUNNELS)
def test_what_passes_without_ethernet_is_observed(guest: GuestHost, device: str) -> None:
    """Packets begin with IP where they leave a tunnel, and where they enter the next one."""
    require(device)
    made, called = TUNNELS[device]
    sending = TUNNELLED.format(program=SEND, python=sys.executable)
    guest.run(["sh", "-ec", UNDERLAY + made + ADDRESSED + sending], seconds=SECONDS)
    try:
        kept = observed(guest, device, "device/in", "device/out", "--filter", "udp")
        assert {point["kind"] for point in kept["observed"]["points"]} == {
            f"{called}, packets of IP"
        }
    finally:
        guest.run(["sh", "-ec", AWAY], seconds=SECONDS)


KILLED = """
setsid {tailtap} tap in --write /run/killed.stamps --duration '3600 s' < /dev/null > /run/tap 2>&1 &
echo $! > /run/killed
for try in $(seq 600); do
    tc filter show dev in ingress | grep -q bpf && break; sleep 1
done
tc filter show dev in ingress | grep -q 'bpf.*handle'
"""


def test_what_a_killed_tap_left_is_cleaned(guest: GuestHost) -> None:
    """Before Linux 6.6 its filter stays, with the queueing discipline that it made."""

    def cleaned() -> list[dict[str, Any]]:
        told = guest.run([TAILTAP, "clean", "--json"], seconds=SECONDS).stdout
        return [one for one in json.loads(told)["removed"] if one["kind"] == "tap-filter"]

    guest.run(["sh", "-ec", PAIRS], seconds=SECONDS)
    try:
        guest.run(["sh", "-ec", KILLED.format(tailtap=TAILTAP)], seconds=SECONDS)
        assert cleaned() == []  # a tap that runs keeps it
        guest.run(["sh", "-ec", "kill -9 $(cat /run/killed)"], seconds=SECONDS)
        shown = guest.run(["tc", "filter", "show", "dev", "in", "ingress"], seconds=SECONDS)
        assert "bpf" in shown.stdout
        [left] = cleaned()
        assert left["name"] == "in ingress"
        shown = guest.run(["tc", "qdisc", "show", "dev", "in"], seconds=SECONDS)
        assert "clsact" not in shown.stdout
        assert cleaned() == []
    finally:
        guest.run(["sh", "-c", "ip netns del sender; ip netns del sink"], seconds=SECONDS)
