"""Devices that somebody else built: a bridge, a NAT, routers in a row, a bridge in a container, and
Open vSwitch with its datapath in user space.

Each stands between `sender` and `sink`, namespaces that have an interface each. Its packets come
from a program that sleeps between two: ours would keep a CPU from all others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labtools import Machine

from tailtap.host.containers.oci import hiding

SENDER, DEVICE, SINK = "sender", "device", "sink"
FROM, TO = "10.9.1.2", "10.9.2.2"
RATE, BACK = 4_987, 499
"""Packets per second, and of those the other way."""
PROGRAM = Path(__file__).with_name("slow_device.py")


@dataclass(frozen=True)
class Built:
    """A device, and how it is named."""

    machine: Machine
    came: tuple[str, str]
    """The namespace and the interface by which packets come."""
    left: tuple[str, str]
    destination: str
    """The hardware address that the sender's packets go to."""
    place: str = ""
    """What stands in place of the namespace, for a container."""

    @property
    def words(self) -> list[str]:
        """Both interfaces, as `tailtap observe` takes them."""
        return [f"{self.place or space}/{name}" for space, name in (self.came, self.left)]

    def sending(self) -> contextlib.AbstractContextManager[None]:
        """Packets, until the body ends."""
        return self._sending(SENDER, RATE, self.destination, FROM, TO)

    def answering(self) -> contextlib.AbstractContextManager[None]:
        """Packets the other way, a tenth as many, through a bridge."""
        back = _mac(self.machine, SENDER, "eth0")
        return self._sending(SINK, BACK, back, TO, FROM)

    @contextlib.contextmanager
    def _sending(
        self, space: str, rate: int, mac: str, source: str, destination: str
    ) -> Iterator[None]:
        words = [sys.executable, str(PROGRAM), "send", "eth0", str(rate), "900"]
        words += [mac, source, destination]
        options = {"stdout": subprocess.DEVNULL, "start_new_session": True}
        with self.machine.beside(space, *words, **options):
            yield


def run(machine: Machine, *lines: str) -> None:
    """Lines of a shell, in the machine's namespaces."""
    done = machine.run("sh", "-ec", "\n".join(lines))
    assert done.returncode == 0, done.stderr


def _spaces(*names: str) -> list[str]:
    """Namespaces, without the packets that IPv6 sends by itself."""
    quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
    return [
        f"ip netns add {name}; ip netns exec {name} {quiet}; ip -n {name} link set lo up"
        for name in names
    ]


def _link(one: str, port: str, other: str, peer: str) -> list[str]:
    return [
        f"ip link add {port} netns {one} type veth peer name {peer} netns {other}",
        f"ip -n {one} link set {port} up; ip -n {other} link set {peer} up",
    ]


def _mac(machine: Machine, space: str, port: str) -> str:
    shown = machine.run("ip", "netns", "exec", space, "cat", f"/sys/class/net/{port}/address")
    return shown.stdout.strip()


def _bridge(space: str, ports: Sequence[str]) -> list[str]:
    enslaved = [f"ip -n {space} link set {port} master br0" for port in ports]
    return [f"ip -n {space} link add br0 type bridge mcast_snooping 0", *enslaved,
            f"ip -n {space} link set br0 up"]  # fmt: skip


def _end(space: str, port: str, address: str, gateway: str) -> list[str]:
    """An address at an end, which knows the way back without asking for it."""
    return [
        f"ip -n {space} addr add {address}/24 dev {port}",
        f"ip -n {space} route add default via {gateway}",
    ]


def bridge(machine: Machine) -> Built:
    """A Linux bridge."""
    run(machine, *_spaces(SENDER, DEVICE, SINK), *_link(SENDER, "eth0", DEVICE, "in"),
        *_link(DEVICE, "out", SINK, "eth0"), *_bridge(DEVICE, ("in", "out")))  # fmt: skip
    return Built(machine, (DEVICE, "in"), (DEVICE, "out"), _mac(machine, SINK, "eth0"))


@contextlib.contextmanager
def program(machine: Machine, cpu: int) -> Iterator[Built]:
    """A program that passes packets on, on a CPU that others have only if they are as urgent."""
    run(machine, *_spaces(SENDER, DEVICE, SINK), *_link(SENDER, "eth0", DEVICE, "in"),
        *_link(DEVICE, "out", SINK, "eth0"))  # fmt: skip
    first = ("chrt", "--fifo", "20", "taskset", "--cpu-list", str(cpu), sys.executable)
    with machine.beside(DEVICE, *first, str(PROGRAM), "pass", "in", "out", "1000000000", "0"):
        yield Built(machine, (DEVICE, "in"), (DEVICE, "out"), _mac(machine, SINK, "eth0"))


def nat(machine: Machine) -> Built:
    """A router that writes its own address over the senders' (nftables)."""
    rules = "add table ip t; add chain ip t c { type nat hook postrouting priority 100; }; "
    rules += "add rule ip t c oifname out masquerade"
    run(
        machine, *_spaces(SENDER, DEVICE, SINK), *_link(SENDER, "eth0", DEVICE, "in"),
        *_link(DEVICE, "out", SINK, "eth0"),
        f"ip -n {DEVICE} addr add 10.9.1.1/24 dev in; ip -n {DEVICE} addr add 10.9.2.1/24 dev out",
        f"ip netns exec {DEVICE} sysctl -qw net.ipv4.ip_forward=1",
        *_end(SENDER, "eth0", FROM, "10.9.1.1"), *_end(SINK, "eth0", TO, "10.9.2.1"),
        f"ip netns exec {DEVICE} nft '{rules}'",
        f"ip -n {DEVICE} neigh add {TO} lladdr $(ip netns exec {SINK} cat "
        "/sys/class/net/eth0/address) dev out",
    )  # fmt: skip
    return Built(machine, (DEVICE, "in"), (DEVICE, "out"), _mac(machine, DEVICE, "in"))


def line(machine: Machine) -> Built:
    """Three routers in a row, each in a namespace of its own."""
    names = ("one", "two", "three")
    lines = [*_spaces(SENDER, *names, SINK), *_link(SENDER, "eth0", "one", "in"),
             *_link("one", "out", "two", "in"), *_link("two", "out", "three", "in"),
             *_link("three", "out", SINK, "eth0")]  # fmt: skip
    for number, name in enumerate(names):
        lines += [
            f"ip -n {name} addr add 10.8.{number}.2/24 dev in",
            f"ip -n {name} addr add 10.8.{number + 1}.1/24 dev out",
            f"ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1",
            f"ip netns exec {name} sysctl -qw net.ipv4.conf.all.rp_filter=0",
            f"ip netns exec {name} sysctl -qw net.ipv4.conf.in.rp_filter=0",
            f"ip -n {name} route add 10.9.2.0/24 via 10.8.{number + 1}.2",
        ]
    lines += [
        f"ip -n {SINK} addr add 10.8.3.2/24 dev eth0",
        f"ip -n {SINK} addr add {TO}/24 dev lo",
    ]
    run(machine, *lines)
    return Built(machine, ("one", "in"), ("three", "out"), _mac(machine, "one", "in"))


@contextlib.contextmanager
def container(machine: Machine, folder: Path) -> Iterator[Built]:
    """A bridge in a container of Podman, whose only process sleeps."""
    root, name = folder / "root", f"tt-test-{os.getpid()}"
    root.mkdir()
    source = folder / "pause.c"
    source.write_text("#include <unistd.h>\nint main(void) { return pause(); }\n")
    subprocess.run(["cc", "-static", "-o", str(root / "pause"), str(source)], check=True)
    started = [*hiding(), "podman", "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    started += ["run", "--detach", "--name", name, "--network", "none", "--privileged"]
    started += ["--cgroups", "no-conmon", "--log-driver", "none", "--no-hosts"]
    started += ["--pids-limit", "-1", "--systemd", "false"]
    # Podman asks for more than root has in a container.
    numbers = int(Path("/proc/sys/kernel/pid_max").read_text())
    for limit, most in (
        ("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        ("nproc", min(numbers, resource.getrlimit(resource.RLIMIT_NPROC)[1])),
    ):
        started += ["--ulimit", f"{limit}={most}:{most}"]
    try:
        subprocess.run([*started, "--rootfs", str(root), "/pause"], check=True, capture_output=True)
        shown = ["podman", "container", "inspect", "--format", "{{.State.Pid}}", name]
        pid = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip()
        run(machine, *_spaces(SENDER, SINK), f"ip netns attach {DEVICE} {pid}",
            *_link(SENDER, "eth0", DEVICE, "in"), *_link(DEVICE, "out", SINK, "eth0"),
            *_bridge(DEVICE, ("in", "out")))  # fmt: skip
        destination = _mac(machine, SINK, "eth0")
        yield Built(machine, (DEVICE, "in"), (DEVICE, "out"), destination, f"container:{name}")
    finally:
        remove = ["podman", "rm", "--force", "--time", "0", name]
        subprocess.run(remove, check=False, capture_output=True)


SWITCH = """
cd {folder}
ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $PWD/conf.db --remote=punix:$PWD/db.sock --unixctl=$PWD/db.ctl --detach --no-chdir \\
    --pidfile=$PWD/db.pid --log-file=$PWD/db.log
ovs-vsctl --db=unix:$PWD/db.sock --no-wait init
OVS_RUNDIR=$PWD ip netns exec {device} ovs-vswitchd unix:$PWD/db.sock --unixctl=$PWD/vs.ctl \\
    --detach --no-chdir --pidfile=$PWD/vs.pid --log-file=$PWD/vs.log
ovs-vsctl --db=unix:$PWD/db.sock --timeout=60 add-br br0 -- set bridge br0 datapath_type=netdev \\
    -- add-port br0 in -- add-port br0 out
"""


@contextlib.contextmanager
def switch(machine: Machine, folder: Path) -> Iterator[Built]:
    """Open vSwitch, whose own process moves packets."""
    place = folder / "ovs"
    place.mkdir()
    run(machine, *_spaces(SENDER, DEVICE, SINK), *_link(SENDER, "eth0", DEVICE, "in"),
        *_link(DEVICE, "out", SINK, "eth0"))  # fmt: skip
    try:
        run(machine, SWITCH.format(folder=place, device=DEVICE))
        yield Built(machine, (DEVICE, "in"), (DEVICE, "out"), _mac(machine, SINK, "eth0"))
    finally:
        for pid in place.glob("*.pid"):
            machine.run("kill", pid.read_text().strip())
        gone = time.monotonic() + 10
        while list(place.glob("*.pid")) and time.monotonic() < gone:
            time.sleep(0.05)
