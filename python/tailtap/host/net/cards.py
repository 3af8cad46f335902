"""Network cards of this machine that move into a lab, and back as they were.

A card moves into the network namespace of whoever owns it in the lab and takes the name of the
lab's port there. The journal holds its state before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import read_text, set_value
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.changes.resource import Resource
from tailtap.host.knobs.tree import Tree
from tailtap.host.net.namespaces import ports, shown
from tailtap.host.net.port_work import affinity, device_interrupts, in_places, make_threads
from tailtap.remote.local import LocalHost

ROOT = Path("/")
KEYS = "dut.ports, tap.ports or dut.over"
"""What names the cards of one machine."""
UP_SECONDS = 30.0
"""How long two cards may take to agree on a speed."""


@dataclass(frozen=True)
class CardState:
    """What a card of this machine is."""

    interface: str
    address: str
    mtu: int
    up: bool
    promiscuous: bool
    threaded: str | None
    """Whether it polls in threads of its own; None on kernels that cannot (before 5.12)."""
    driver: str | None = None
    device: str | None = None
    """Its folder in ``/sys/devices``, which is the same in all namespaces; None for no hardware."""
    steering: Mapping[str, str] = field(default_factory=dict)
    """The CPUs of its receive queues, as masks (RPS)."""
    interrupts: Mapping[str, str] = field(default_factory=dict)
    """The CPUs of its interrupts, as lists, by their places among them."""

    @classmethod
    def of(cls, interface: str, root: Path = ROOT) -> CardState:
        """What `interface` is now. Raises `InputError`, `MachineError` when a lab cannot use it."""
        row = _inspect(interface, root)
        folder = root / "sys/class/net" / interface
        device = (folder / "device").resolve() if (folder / "device").exists() else None
        driver = device / "driver" if device is not None else folder / "driver"
        queues = sorted((folder / "queues").glob("rx-*/rps_cpus"))
        return cls(
            interface,
            str(row["address"]),
            int(row["mtu"]),
            "UP" in row["flags"],
            "PROMISC" in row["flags"],
            read_text(folder / "threaded"),
            driver.resolve().name if driver.exists() else None,
            None if device is None else str(device),
            {path.parent.name: read_text(path) or "0" for path in queues},
            {} if device is None else _interrupts(device, root),
        )

    def facts(self, root: Path = ROOT) -> dict[str, Any]:
        """What it is, for ``run.json``: names, and where its interrupts go now."""
        device = None if self.device is None else Path(self.device)
        return {
            "interface": self.interface,
            "driver": self.driver,
            "bus_address": None if device is None else device.name,
            "interrupts": {} if device is None else device_interrupts(device, root),
        }

    def settings(self) -> dict[str, str]:
        """Those that a lab changes or that moving may reset, by `_settings`'s keys."""
        threaded = {} if self.threaded is None else {"threaded": self.threaded}
        return {"mtu": str(self.mtu), **threaded, **self.steering, **self.interrupts}


@dataclass(frozen=True)
class OfCard(Resource):
    """A change of a card of this machine, which one measurement may have at a time."""

    interface: str

    @property
    def label(self) -> str:
        return self.interface

    @property
    def claims(self) -> Sequence[str]:
        return [f"card {self.interface}"]


@dataclass(frozen=True)
class Card(OfCard):
    """A card in its place in the lab: up, with `mtu`, and open to all addresses."""

    kind: ClassVar[str] = "card"

    namespace: str
    port: str
    mtu: int
    threads: bool = False
    """Whether it is polled by threads of its own there. They are made before it moves, as they keep
    the name that it has when they are made, and its name here is no other card's."""

    def read(self) -> dict[str, Any]:
        """What it is on this machine. Raises `InputError`, `MachineError` for one in use."""
        return asdict(CardState.of(self.interface))

    def plan(self) -> dict[str, Any]:
        return {"namespace": self.namespace, "port": self.port, "mtu": self.mtu,
                "up": True, "promiscuous": True}  # fmt: skip

    def apply(self) -> dict[str, str]:
        """Move it into the lab; its settings there. Raises `MachineError`."""
        device = Path("/sys/class/net", self.interface, "device")
        found = str(device.resolve()) if device.exists() else None
        if self.threads:
            make_threads(self.interface)
        local = LocalHost()
        # Moving takes it down, and only a port that is down changes its name.
        move = ["netns", self.namespace, "name", self.port]
        local.run(["ip", "link", "set", "dev", self.interface, *move])
        inside = ["ip", "-n", self.namespace, "link", "set", "dev", self.port]
        local.run([*inside, "mtu", str(self.mtu)])
        # Packets are not addressed to it, and a card would drop those.
        local.run([*inside, "promisc", "on", "up"])
        row = link(self.namespace, self.port)
        if row is None or row["mtu"] != self.mtu or not {"UP", "PROMISC"} <= set(row["flags"]):
            raise MachineError(
                f"the card {self.interface} should be {self.port} of {self.namespace}, up and with "
                f"an MTU of {self.mtu}, but the kernel says {row or 'that there is no such port'}"
            )
        return _settings(self.namespace, self.port, found)

    def undo(self, old: Mapping[str, Any], applied: Mapping[str, str] | None = None) -> str | None:
        before = CardState(**old)
        local = LocalHost()
        there: Mapping[str, str] | None = None
        if self.port in ports(self.namespace):
            there = _settings(self.namespace, self.port, before.device)
            inside = ["ip", "-n", self.namespace, "link", "set", "dev", self.port]
            local.run([*inside, "down"])
            local.run([*inside, "netns", str(os.getpid()), "name", self.interface])
        elif self._is_astray():
            # Its namespace went before it did: the kernel brings cards home, but keeps their names.
            local.run(["ip", "link", "set", "dev", self.port, "down", "name", self.interface])
        elif self.interface not in ports(None):
            return None
        changed = self._changed_by_others(before, there, applied)
        restore(before, keep=changed)
        if not changed:
            return None
        words = ", ".join(
            f"{name} is {text}, was {before.settings()[name]} before tailtap"
            for name, text in changed.items()
        )
        return f"somebody else changed the card {self.interface}, which is left so: {words}"

    def pending(self, old: Mapping[str, Any], applied: Mapping[str, str] | None = None) -> bool:
        if self.port in ports(self.namespace) or self._is_astray():
            return True
        row = link(None, self.interface)
        if row is None:
            return False
        before = CardState(**old)
        found = _settings(None, self.interface, before.device)
        settings = {name: text for name, text in before.settings().items() if name in found}
        flags = ("UP" in row["flags"], "PROMISC" in row["flags"])
        differs = not settings.items() <= found.items()
        return differs or flags != (before.up, before.promiscuous)

    def _is_astray(self) -> bool:
        here = ports(None)
        return self.interface not in here and self.port in here

    def _changed_by_others(
        self,
        before: CardState,
        there: Mapping[str, str] | None,
        applied: Mapping[str, str] | None,
    ) -> dict[str, str]:
        """Settings that are neither as they were nor as the lab or the kernel left them.

        `there` are those that it had in the lab, unless it came home before: moving it may reset
        some, which is not somebody else's doing.
        """
        found = _settings(None, self.interface, before.device) if there is None else there
        ours = {"mtu": str(self.mtu)} if applied is None else dict(applied)
        if self.threads:
            ours["threaded"] = "1"
        if there is not None and applied is None:  # it was moved a moment ago
            found = {"mtu": there["mtu"]}
        return {
            name: found[name]
            for name, text in before.settings().items()
            if name in found and found[name] not in (text, ours.get(name))
        }


def restore(before: CardState, keep: Mapping[str, str] | None = None) -> None:
    """Make a card that is on this machine again what it was, but for the settings in `keep`.

    Those are what somebody else has set.
    """
    local = LocalHost()
    outside = ["ip", "link", "set", "dev", before.interface]
    kept = keep or {}
    mtu = kept.get("mtu", str(before.mtu))
    local.run([*outside, "mtu", mtu, "address", before.address])
    local.run([*outside, "promisc", "on" if before.promiscuous else "off"])
    local.run([*outside, "up" if before.up else "down"])
    for name, old in before.settings().items():
        path = _file(name, before)
        text = kept.get(name, old)
        if path is not None and read_text(path) != text:
            with contextlib.suppress(OSError):  # the kernel places some interrupts itself
                set_value(path, text)


def _inspect(interface: str, root: Path) -> Mapping[str, Any]:
    """What ``ip`` tells of an interface that can be lent."""
    rows = shown("ip", "-j", "addr", "show", "dev", interface)
    found = [row for row in rows if row.get("ifname") == interface]
    if not found:
        raise InputError(
            f"there is no interface {interface!r} on this machine (`ip link` lists them)",
            remedy=f"name another one in {KEYS}",
        )
    [row] = found
    why = None
    if row.get("link_type") != "ether":
        why = "is not Ethernet: name another one"
    elif interface in Tree(root).default_route():
        why = (
            "has the default route: without it this machine cannot be reached: choose another card"
        )
    elif row.get("master"):
        why = (
            f"belongs to {row['master']}: take it out first "
            f"(`ip link set dev {interface} nomaster`)"
        )
    elif any(a.get("local") and a.get("scope") != "link" for a in row.get("addr_info", [])):
        why = (
            "has an IP address, so something may be using it: take that away first "
            f"(`ip addr flush dev {interface}`)"
        )
    if why is not None:
        raise MachineError(f"{interface} {why}")
    return row


def link(namespace: str | None, port: str) -> Mapping[str, Any] | None:
    """What ``ip`` tells of an interface; None when there is none."""
    where = [] if namespace is None else ["-n", namespace]
    rows = shown("ip", *where, "-j", "link", "show", "dev", port)
    return next((row for row in rows if row.get("ifname") == port), None)


def _settings(namespace: str | None, port: str, device: str | None) -> dict[str, str]:
    """The settings of a card that may change, by name.

    These are ``mtu``, ``threaded``, a queue such as ``rx-0`` (its RPS mask), and an interrupt by
    its place, such as ``interrupt 0`` (its CPUs).
    """
    folder = Path("/sys/class/net", port)
    files = KernelValue(
        [f"{folder}/{name}" for name in ("mtu", "threaded", "queues/rx-*/rps_cpus")],
        "",
        namespace=namespace,
    )
    found: dict[str, str] = {}
    for path, text in files.read().items():
        name = Path(path).parent.name if path.endswith("rps_cpus") else Path(path).name
        found[name] = text
    return found | ({} if device is None else _interrupts(Path(device), ROOT))


def _interrupts(device: Path, root: Path) -> dict[str, str]:
    found = device_interrupts(device, root)
    return {place: found[number] for place, number in in_places(found).items()}


def _file(name: str, before: CardState) -> Path | None:
    """Where the setting `name` of a card is; None for the MTU, and for what is not there now."""
    folder = Path("/sys/class/net", before.interface)
    if name in before.interrupts:
        found = device_interrupts(Path(str(before.device)), ROOT)
        number = in_places(found).get(name)
        return None if number is None else affinity(number, ROOT)
    if name.startswith("rx-"):
        return folder / "queues" / name / "rps_cpus"
    return None if name == "mtu" else folder / name
