"""`tailtap observe` on interfaces that the tests' own kernel may lack: in guests with Debian's.

The newer one lets the recorder say when packets were handed over. Where a guest's CPUs are
emulated, what the recorder itself takes says how near its times can be (`handovers`).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handovers import RECEIVED, SENT, SKB, Recording, build, not_near, read_recording
from marks import read_marks
from standing import standing

from tailtap.base.errors import MachineError
from tailtap.lab.platforms import DutSpec
from tailtap.lab.platforms.vm import VmOptions, kernels
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
SPACES = """
for name in sender device sink; do ip netns add $name; ip -n $name link set lo up; done
ip netns exec device sysctl -qw net.ipv4.ip_forward=1
"""
PPP = """
quiet='noauth local nodetach nodefaultroute novj noccp noipv6'
for link in in:sender:10.9.1.1:10.9.1.2 out:sink:10.9.2.1:10.9.2.2; do
    IFS=: read port far ours theirs <<END
$link
END
    setsid ip netns exec device pppd $quiet ifname $port $ours:$theirs \\
        pty "ip netns exec $far pppd $quiet ifname t0 notty $theirs:$ours" \\
        < /dev/null > /run/ppp-$port 2>&1 &
    echo $! >> /run/held
done
for at in sender:t0 device:in device:out sink:t0; do
    for try in $(seq 600); do
        ip -n ${at%:*} -4 addr show dev ${at#*:} 2> /dev/null | grep -q peer && break; sleep 1
    done
done
ip -n sender route add 10.9.2.0/24 dev t0
"""
NETKIT = """
for link in in:sender out:sink; do
    ip -n device link add ${link%:*} type netkit
    ip -n device link set nk0 netns ${link#*:} name t0
done
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


@dataclass(frozen=True)
class Made:
    """How a device is made, its interfaces, where the recorder sees what comes and what leaves, and
    the sender's interface.
    """

    script: str
    came: str
    left: str
    recorded: tuple[str, str]
    """Each a way of the recorder's and an interface. The kernel keeps the stamp that a packet has,
    so that one in a tag or a tunnel is stamped when it is handed over with that around it."""
    sender: str = "eth0"


@dataclass(frozen=True)
class Routed:
    """How a router between `device/in` and `device/out` is made, what their kind is called, and
    where the recorder sees what comes.
    """

    script: str
    kind: str
    came: str


DEVICES = {
    "vlan": Made(
        TAGGED + BRIDGE.format(filtering=0, ports="in.5 out.6"),
        "in.5", "out.6", (f"{SKB} in", f"{SENT} out.6"), "tagged",
    ),
    "bond": Made(
        BONDED + BRIDGE.format(filtering=0, ports="in bond0"),
        "in", "bond0", (f"{SKB} in", f"{SENT} bond0"),
    ),
    "filtering bridge": Made(
        BRIDGE.format(filtering=1, ports="in out") + FILTERED,
        "in", "out", (f"{SKB} in", f"{SENT} out"),
    ),
    "open vswitch": Made(SWITCH, "in", "out", (f"{SKB} in", f"{SENT} out")),
}  # fmt: skip
ROUTERS = {
    "gre": Routed(UNDERLAY + GRE + ADDRESSED, "GRE, packets of IP", f"{SKB} u1"),
    "wireguard": Routed(
        UNDERLAY + WIREGUARD + ADDRESSED, "WireGuard, packets of IP", f"{RECEIVED} in"
    ),
    "ppp": Routed(SPACES + PPP, "PPP, packets of IP", f"{SKB} in"),
    "netkit": Routed(SPACES + NETKIT + ADDRESSED, "netkit", f"{SKB} in"),
}
NEEDED = {"open vswitch": "ovs-vswitchd", "wireguard": "wg", "ppp": "pppd"}
LEAST = 100
"""Packets in two seconds; an emulated sender has its own pace."""
EMULATED = 10
"""In place of `TIMES_SLOWER`: where QEMU translates instructions (TCG), those that it comes to for
the first time take many times as long. A stamp that waits for a softirq there is later by far."""
SINCE_6_7 = ("netkit",)
OLDER, NEWER = "vanilla", "linux-image-6.12-amd64"
"""Kernels: Debian 12's own, and a package that it has beside that."""
RECORDING = """
cd /run
place() {{ # way, interface
    echo $1:$({inside} cat /sys/class/net/$2/ifindex):$({inside} stat -Lc %i /proc/self/ns/net)
}}
setsid sh recorder.sh records $(place {came}) $(place {left}) < /dev/null > told 2> said &
for try in $(seq 600); do grep -q ready told && exit 0; sleep 1; done
cat said >&2; exit 1
"""
RECORDED = """
cd /run; kill $(cat recorder.pid)
for try in $(seq 600); do test -d /proc/$(cat recorder.pid) || break; sleep 1; done
tail -n 1 told
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]


@dataclass(frozen=True)
class Guest:
    """A guest, and whether its kernel runs the recorder, which lies in its /run then."""

    host: GuestHost
    records: bool

    def sh(self, script: str) -> str:
        """What a script says, every line of which succeeds."""
        return self.host.run(["sh", "-ec", script], seconds=SECONDS).stdout

    @contextmanager
    def recording(
        self, folder: Path, came: str, left: str, inside: str = ""
    ) -> Iterator[list[Recording]]:
        """Write down what passes two places until the body ends; the list then has it.

        Where the kernel runs no recorder it stays empty.
        """
        found: list[Recording] = []
        if not self.records:
            yield found
            return
        self.sh(RECORDING.format(came=came, left=left, inside=inside))
        yield found
        lost = int(self.sh(RECORDED))
        self.host.get(Path("/run/records"), folder / "records")
        found.append(read_recording(folder / "records", lost))


@pytest.fixture(scope="module", params=[OLDER, NEWER])
def guest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guest]:
    given: dict[str, Any] = {"memory": "1024 MiB"}
    if request.param != OLDER:
        try:
            folder = kernels.unpacked(request.param)
        except MachineError as error:
            pytest.skip(str(error))
        given["kernel"] = str(next((folder / "boot").glob("vmlinuz-*")))
    with standing("vm", DutSpec((0, 1), VmOptions.model_validate(given))) as (_, device):
        host = device.host
        assert isinstance(host, GuestHost)
        host.run(["modprobe", "-a", *MODULES])
        if request.param != OLDER:
            folder = tmp_path_factory.mktemp("recorder")
            build(folder)
            (folder / "recorder.sh").write_text(
                "echo $$ > recorder.pid; chmod +x recorder; exec ./recorder recorder.bpf.o $@\n"
            )
            for name in ("recorder", "recorder.bpf.o", "recorder.sh"):
                host.put(folder / name, Path("/run") / name)
        yield Guest(host, request.param != OLDER)


def observed(
    guest: Guest, folder: Path, came: str, left: str, *options: str
) -> tuple[dict[str, Any], Sequence[Any]]:
    """The record of the run of what passes two interfaces for a while, in which every packet is
    found again, and its times on each side.
    """
    out = f"/run/{folder.name}"
    words = ["observe", came, left, "--for", "2 s", "--trace", "none", "--out", out]
    words += ["--json", "--quiet", "--budget", "100 %", *options]
    [run] = json.loads(guest.host.run([TAILTAP, *words], seconds=SECONDS).stdout)["runs"]
    counts = run["evaluation"]["counts"]
    print(folder.name, counts)
    assert counts["matched"] > LEAST and counts["lost"] == counts["unmatched_egress"] == 0
    kept = Path(out, "runs/001-observed")
    for name in ("run.json", "ingress.marks", "egress.marks"):
        guest.host.get(kept / name, folder / name)
    times = [
        read_marks(folder / f"{side}.marks").records["time"].astype(np.int64)
        for side in ("ingress", "egress")
    ]
    return json.loads((folder / "run.json").read_text()), times


def require(guest: Guest, device: str) -> None:
    """Skip the test where what makes the device is not installed, or the kernel is too old."""
    if device in NEEDED and shutil.which(NEEDED[device]) is None:
        pytest.skip(f"{NEEDED[device]} is not installed")
    if device in SINCE_6_7 and not guest.records:
        pytest.skip("not in this kernel")


def compare(times: Sequence[Any], recordings: Sequence[Recording]) -> None:
    for found in recordings:
        assert found.lost == 0
        for place, stamped in enumerate(times):
            assert not not_near(stamped, found.packets(place), EMULATED)


@pytest.mark.parametrize("device", DEVICES)
def test_what_passes_is_observed(guest: Guest, device: str, tmp_path: Path) -> None:
    """The kernel refuses no program."""
    require(guest, device)
    made = DEVICES[device]
    guest.sh(PAIRS + made.script + SENDING.format(tailtap=TAILTAP, port=made.sender))
    try:
        with guest.recording(tmp_path, *made.recorded) as recorded:
            _, times = observed(guest, tmp_path, made.came, made.left)
        compare(times, recorded)
    finally:
        guest.sh(AWAY)


@pytest.mark.parametrize("device", ROUTERS)
def test_what_is_routed_is_observed(guest: Guest, device: str, tmp_path: Path) -> None:
    """Packets begin with IP where they leave a tunnel, and where they enter the next one."""
    require(guest, device)
    made = ROUTERS[device]
    guest.sh(made.script + TUNNELLED.format(program=SEND, python=sys.executable))
    inside = "ip netns exec device"
    try:
        with guest.recording(tmp_path, made.came, f"{SENT} out", inside) as recorded:
            kept, times = observed(guest, tmp_path, "device/in", "device/out", "--filter", "udp")
        compare(times, recorded)
        assert {point["kind"] for point in kept["observed"]["points"]} == {made.kind}
    finally:
        guest.sh(AWAY)


KILLED = """
setsid {tailtap} tap in --write /run/killed.stamps --duration '3600 s' < /dev/null > /run/tap 2>&1 &
echo $! > /run/killed
for try in $(seq 600); do
    tc filter show dev in ingress | grep -q bpf && break; sleep 1
done
tc filter show dev in ingress | grep -q 'bpf.*handle'
"""


def test_what_a_killed_tap_left_is_cleaned(guest: Guest) -> None:
    """Before Linux 6.6 its filter stays, with the queueing discipline that it made."""
    if guest.records:
        pytest.skip("a newer kernel removes it")
    host = guest.host

    def cleaned() -> list[dict[str, Any]]:
        told = host.run([TAILTAP, "clean", "--json"], seconds=SECONDS).stdout
        return [one for one in json.loads(told)["removed"] if one["kind"] == "tap-filter"]

    host.run(["sh", "-ec", PAIRS], seconds=SECONDS)
    try:
        host.run(["sh", "-ec", KILLED.format(tailtap=TAILTAP)], seconds=SECONDS)
        assert cleaned() == []  # a tap that runs keeps it
        host.run(["sh", "-ec", "kill -9 $(cat /run/killed)"], seconds=SECONDS)
        shown = host.run(["tc", "filter", "show", "dev", "in", "ingress"], seconds=SECONDS)
        assert "bpf" in shown.stdout
        [left] = cleaned()
        assert left["name"] == "in ingress"
        shown = host.run(["tc", "qdisc", "show", "dev", "in"], seconds=SECONDS)
        assert "clsact" not in shown.stdout
        assert cleaned() == []
    finally:
        host.run(["sh", "-c", "ip netns del sender; ip netns del sink"], seconds=SECONDS)
