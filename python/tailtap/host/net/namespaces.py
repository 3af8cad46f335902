"""Network namespaces, the links between them, and tap devices in them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value
from tailtap.host.changes.journal import is_ours
from tailtap.host.changes.resource import Joint, Resource, Value
from tailtap.host.changes.systemd import end, is_the_machine_s, network_at, network_of
from tailtap.host.containers.podman import pid_of
from tailtap.host.facts.machine import entries
from tailtap.host.net.inside import NAMESPACES, inside, inside_those_left, set_up
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, NamespaceHost

TUN = Path("/dev/net/tun")
DEATH_SECONDS = 5.0
"""How long killed processes may take to disappear."""


@dataclass(frozen=True)
class Namespace(Joint):
    """A network namespace of its own name, without IPv6: a new one, or that of a container."""

    kind: ClassVar[str] = "namespace"

    name: str
    container: str | None = None
    """The container whose namespace gets the name; None for a new namespace."""

    @property
    def label(self) -> str:
        return self.name

    def read(self) -> bool:
        return self.name in _namespaces()

    @classmethod
    def existing(cls) -> list[Namespace]:
        return [cls(name) for name in _namespaces() if is_ours(name)]

    @classmethod
    def read_all(cls, many: Sequence[Namespace]) -> list[Value]:
        there = set(_namespaces())
        return [one.name in there for one in many]

    @classmethod
    def apply_all(cls, many: Sequence[Namespace]) -> None:
        batch(
            f"netns add {one.name}"
            if one.container is None
            else f"netns attach {one.name} {pid_of(one.container)}"
            for one in many
        )
        for one in many:
            if is_the_machine_s(network_at(NAMESPACES / one.name)):
                raise MachineError(
                    f"the network namespace {one.name} would be this machine's own: its container "
                    "has ended"
                )
        inside((one.name, _without_ipv6) for one in many)

    @classmethod
    def undo_all(cls, many: Sequence[tuple[Namespace, Value]]) -> list[None]:
        """End the processes in them and delete them; the kernel removes their links at once."""
        _remove([one.name for one, old in many if not old])
        return [None] * len(many)


@dataclass(frozen=True)
class Link(Joint):
    """A veth pair; one whose ends are in two namespaces, or a left one of this machine's own."""

    kind: ClassVar[str] = "link"

    port: str
    namespace: str | None = None
    """None for this process's own."""
    index: int = 0
    peer_port: str = ""
    peer_namespace: str = ""
    peer_index: int = 0
    mtu: int = 0
    address: str = ""
    """The hardware address of the first end; empty for one by chance."""
    peer_address: str = ""
    queues: int = 1

    @property
    def label(self) -> str:
        return self.port if self.namespace is None else f"{self.namespace}/{self.port}"

    def read(self) -> bool:
        return self.port in ports(self.namespace)

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old:
            _delete_link(self.namespace, self.port)

    @classmethod
    def existing(cls) -> list[Link]:
        # What has a device is no link: a network card is called so while it is lent.
        devices = {path.parent.name for path in Path("/sys/class/net").glob("*/device")}
        return [cls(port) for port in sorted(ports(None) - devices) if is_ours(port)]

    @classmethod
    def read_all(cls, many: Sequence[Link]) -> list[Value]:
        known = {namespace: ports(namespace) for namespace in {one.namespace for one in many}}
        return [one.port in known[one.namespace] for one in many]

    @classmethod
    def apply_all(cls, many: Sequence[Link]) -> None:
        # Both ends are made inside: no link of ours ever shows up among the machine's own. Where
        # they have the same number, the kernel takes them for one physical interface and tells of
        # their state up to a second later (linkwatch_urgent_event()), into the measurement.
        batch(
            f"link add {one.port} netns {one.namespace} index {one.index} mtu {one.mtu} "
            f"{_address(one.address)} {_queues(one.queues)} type veth peer name {one.peer_port} "
            f"netns {one.peer_namespace} index {one.peer_index} mtu {one.mtu} "
            f"{_address(one.peer_address)} {_queues(one.queues)}"
            for one in many
        )
        # The kernel sets no end up while it has no other one (veth_open()).
        ends = [(str(one.namespace), one.port) for one in many]
        ends += [(one.peer_namespace, one.peer_port) for one in many]
        inside((namespace, partial(set_up, port)) for namespace, port in sorted(ends))

    @classmethod
    def undo_all(cls, many: Sequence[tuple[Link, Value]]) -> list[None]:
        """Delete them; those in namespaces that were made for them go with these, all at once.

        One after the other, each would wait until no CPU looks at the link any more.
        """
        for one, old in many:
            if one.namespace is None:
                one.undo(old)
        return [None] * len(many)


@dataclass(frozen=True)
class TapDevice(Resource):
    """A tap device, whose other end is a virtual machine's port."""

    kind: ClassVar[str] = "tap-device"

    port: str
    namespace: str
    mtu: int

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.port}"

    def read(self) -> bool:
        return self.port in ports(self.namespace)

    def apply(self) -> None:
        if not TUN.exists():
            LocalHost().run(["modprobe", "--quiet", "tun"], check=False)
        if not TUN.exists():
            raise MachineError(f"there is no {TUN}: virtual machines need the kernel's module tun")
        host = NamespaceHost(self.namespace)
        host.run(["ip", "tuntap", "add", "dev", self.port, "mode", "tap", "vnet_hdr"])
        host.run(["ip", "link", "set", "dev", self.port, "mtu", str(self.mtu), "up"])

    def undo(self, old: Value, applied: Value = None) -> None:
        if not old:
            _delete_link(self.namespace, self.port)


@dataclass(frozen=True)
class Junction(Resource):
    """A link's end and a tap device that are joined: what comes in at one leaves by the other.

    The kernel redirects before anything else looks at packets. A bridge would learn addresses.
    """

    kind: ClassVar[str] = "junction"

    namespace: str
    port: str
    tap: str

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.port}+{self.tap}"

    def read(self) -> bool:
        if self.port not in ports(self.namespace):
            return False
        shown = ["tc", "filter", "show", "dev", self.port, "ingress"]
        return "mirred" in NamespaceHost(self.namespace).run(shown).stdout

    def apply(self) -> None:
        for entered, left in ((self.port, self.tap), (self.tap, self.port)):
            NamespaceHost(self.namespace).run(["sh", "-ec", _REDIRECT, "join", entered, left])

    def undo(self, old: Value, applied: Value = None) -> None:
        there = ports(self.namespace)
        for port in (self.port, self.tap):
            if not old and port in there:
                # Without one there is nothing to delete, which is an error to tc(8).
                command = ["tc", "qdisc", "del", "dev", port, "clsact"]
                NamespaceHost(self.namespace).run(command, check=False)


# An empty mask of u32 matches every packet, and every kernel with mirred has it.
_REDIRECT = """tc qdisc add dev $1 clsact
tc filter add dev $1 ingress protocol all u32 match u32 0 0 action mirred egress redirect dev $2"""


def ports(namespace: str | None) -> set[str]:
    """The names of the interfaces in a namespace, or in this process's own.

    There are none without it, nor where its name stands for this machine's own.
    """
    if namespace is None:
        return _ports()
    network = network_at(NAMESPACES / namespace) if namespace in _namespaces() else None
    if network is None or is_the_machine_s(network):
        return set()
    return inside_those_left([(namespace, _ports)], set())[0]


def _ports() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def shown(*command: str) -> list[dict[str, Any]]:
    """What ip(8) or tc(8) says in JSON; nothing of what is gone."""
    try:
        found = json.loads(LocalHost().run(command, check=False).stdout or "[]")
    except ValueError:
        return []
    return [row for row in found if isinstance(row, dict)]


def net_dev(text: str) -> dict[str, list[int]]:
    """What ``/proc/net/dev`` says of each port: packets received, dropped then, sent."""
    rows = (line.partition(":") for line in text.splitlines())
    counts = {port.strip(): columns.split() for port, colon, columns in rows if colon}
    return {port: [int(row[place]) for place in (1, 3, 9)] for port, row in counts.items()}


def batch(commands: Iterable[str], namespace: str | None = None) -> None:
    """Make many changes by one ip(8), in order up to the first that fails. Raises `CommandFailed`,
    which names its line.
    """
    where = [] if namespace is None else ["-netns", namespace]
    LocalHost().run(["ip", *where, "-batch", "-"], stdin="".join(f"{line}\n" for line in commands))


def _address(mac: str) -> str:
    return f"address {mac}" if mac else ""


def _queues(count: int) -> str:
    """Of both kinds; without a number the kernel has one of each in use."""
    return f"numtxqueues {count} numrxqueues {count}" if count > 1 else ""


def _without_ipv6() -> None:
    """It would send router solicitations and multicast reports of its own through the DuT."""
    for scope in ("all", "default"):
        file = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if file.exists():
            set_value(file, "1")


def _remove(names: Sequence[str]) -> None:
    """End the processes in namespaces of ours, then delete these with all their interfaces."""
    there = set(_namespaces()).intersection(names)
    if not there:
        return
    # Of a name for the machine's own namespace nothing but the name goes.
    networks = {
        network: name
        for name in there
        if (network := network_at(NAMESPACES / name)) and not is_the_machine_s(network)
    }
    where = f"in namespace {', '.join(networks.values())}"
    end(lambda pid: network_of(pid) in networks, DEATH_SECONDS, where)
    commands = [f"netns delete {name}" for name in names if name in there]
    _delete(
        ["ip", "-force", "-batch", "-"],
        lambda: not there.isdisjoint(_namespaces()),
        "".join(f"{line}\n" for line in commands),
    )


def _delete_link(namespace: str | None, port: str) -> None:
    where = [] if namespace is None else ["-n", namespace]
    if port in ports(namespace):
        command = ["ip", *where, "link", "delete", "dev", port]
        _delete(command, lambda: port in ports(namespace))


def _delete(command: Sequence[str], remains: Callable[[], bool], stdin: str = "") -> None:
    """Run `command`; its failure counts only when the object is still there."""
    try:
        LocalHost().run(command, stdin=stdin)
    except CommandFailed:
        if remains():
            raise


def _namespaces() -> list[str]:
    return [path.name for path in entries(NAMESPACES)]


MACVLAN, BRIDGE, NETKIT = "macvlan", "bridge", "netkit"
TRIALS = {
    MACVLAN: "ip link add tt-0 type veth && ip link add link tt-0 name tt-1 type macvlan",
    BRIDGE: "ip link add tt-1 type bridge",
    NETKIT: "ip link add tt-1 type netkit mode l2",
}
"""What makes one of each way, in a namespace that ends with the process."""
UNKNOWN_TO_IP = "Garbage instead of arguments"
"""What ip(8) says of the options of a kind that it does not know."""


@dataclass(frozen=True)
class Reached(Resource):
    """A port that is reached through something else, which `lower` belongs to."""

    kind: ClassVar[str] = "reached"

    way: str
    below: str
    """The namespace of what lies in between."""
    lower: str
    namespace: str
    port: str
    index: int
    mtu: int
    address: str = ""
    """The hardware address of the port; empty for one by chance."""

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.port} by {self.way}"

    def read(self) -> bool:
        return self.port in ports(self.namespace)

    def apply(self) -> None:
        named = f"name {self.port} netns {self.namespace} index {self.index} mtu {self.mtu}"
        named += f" address {self.address}" if self.address else ""
        commands = [f"link set dev {self.lower} up"]
        if self.way == MACVLAN:
            # The only one on its lower interface: it has all that comes in there.
            commands += [f"link add link {self.lower} {named} type macvlan mode passthru"]
        else:
            bridge, beside = f"{self.lower}b", f"{self.lower}m"
            # Frames pass a netkit in its mode l2 alone.
            pair = "netkit mode l2" if self.way == NETKIT else "veth"
            commands += [
                f"link add {bridge} mtu {self.mtu} type bridge stp_state 0 mcast_snooping 0",
                f"link set dev {self.lower} master {bridge}",
                f"link add {beside} mtu {self.mtu} type {pair} peer {named}",
                f"link set dev {beside} master {bridge}",
                f"link set dev {beside} up",
                f"link set dev {bridge} up",
            ]
        batch(commands, self.below)
        batch([f"link set dev {self.port} up"], self.namespace)

    def undo(self, old: Value, applied: Value = None) -> None:
        """It goes with its namespaces, which are the lab's, all at once.

        One after the other, each would wait until no CPU looks at it any more.
        """


def require_way(way: str) -> None:
    """Raises `MachineError` for a kernel that cannot, and for an older iproute2."""
    done = LocalHost().run(["unshare", "--net", "sh", "-ec", TRIALS[way]], check=False)
    if done.status == 0:
        return
    if UNKNOWN_TO_IP in done.stderr:
        raise MachineError(
            f"dut.over: {way}: this machine's ip makes none: it needs iproute2 6.7 or newer "
            "(Debian bookworm has one in its backports) and a kernel with "
            f"CONFIG_{way.upper()}; leave dut.over out"
        )
    raise MachineError(
        f"dut.over: {way}: this kernel makes none ({' '.join(done.stderr.split())}): it needs "
        f"CONFIG_{way.upper()}; leave dut.over out"
    )
