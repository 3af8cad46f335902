"""Network cards of this machine that are lent to a lab, and given back as they were.

A card moves into the network namespace of whoever owns it in the lab and takes the name of the
lab's port there. The journal knows it by what it was before, so that `tailtap clean` can give it
back when nobody else does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tailtap.errors import InputError, MachineError
from tailtap.host.cpus import list_cpus
from tailtap.host.journal import Journal
from tailtap.host.local import LocalHost
from tailtap.host.pci import bound_to_vfio, default_route_interfaces

ROOT = Path("/")
UP_SECONDS = 30.0
"""How long two cards may take to agree on a speed."""


@dataclass(frozen=True)
class Loan:
    """A card in a lab, and what it was before."""

    interface: str
    """What it is called on this machine."""
    namespace: str
    port: str
    """Where it is lent to, and what it is called there."""
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
    """The CPUs of its interrupts, as lists."""

    @classmethod
    def of(cls, interface: str, namespace: str, port: str, root: Path = ROOT) -> Loan:
        """What `interface` is now. Raises `InputError`, `MachineError` when it cannot be lent."""
        row = _inspect(interface, root)
        folder = root / "sys/class/net" / interface
        device = (folder / "device").resolve() if (folder / "device").exists() else None
        driver = device / "driver" if device is not None else folder / "driver"
        queues = sorted((folder / "queues").glob("rx-*/rps_cpus"))
        return cls(
            interface,
            namespace,
            port,
            str(row["address"]),
            int(row["mtu"]),
            "UP" in row["flags"],
            "PROMISC" in row["flags"],
            _read(folder / "threaded"),
            driver.resolve().name if driver.exists() else None,
            None if device is None else str(device),
            {path.parent.name: _read(path) or "0" for path in queues},
            {} if device is None else _interrupts(device, root),
        )

    def facts(self, root: Path = ROOT) -> dict[str, Any]:
        """What it is, for ``run.json``: names, and where its interrupts go now."""
        device = None if self.device is None else Path(self.device)
        return {
            "interface": self.interface,
            "driver": self.driver,
            "bus_address": None if device is None else device.name,
            "interrupts": {} if device is None else _interrupts(device, root),
        }

    def entry(self) -> str:
        """Its name in the journal, with all that is needed to give it back."""
        fixed = [self.interface, self.namespace, self.port, self.address, str(self.mtu)]
        fixed += ["up" if self.up else "down", "promisc" if self.promiscuous else "-"]
        fixed.append(self.threaded or "-")
        queues = [f"{queue}={mask}" for queue, mask in self.steering.items()]
        return " ".join([*fixed, *queues, *(f"{n}={cpus}" for n, cpus in self.interrupts.items())])

    @classmethod
    def parse(cls, entry: str) -> Loan:
        """What `entry` wrote; its driver and device are not needed any more."""
        interface, namespace, port, address, mtu, up, promisc, threaded, *rest = entry.split()
        settings = dict(word.split("=") for word in rest)
        return cls(
            interface,
            namespace,
            port,
            address,
            int(mtu),
            up == "up",
            promisc == "promisc",
            None if threaded == "-" else threaded,
            steering={name: value for name, value in settings.items() if name.startswith("rx-")},
            interrupts={name: value for name, value in settings.items() if name.isdecimal()},
        )


@dataclass(frozen=True)
class Handed:
    """A card that a program in user space drives."""

    address: str
    """Its place on the PCI bus."""
    mac: str
    alias: str
    """By which a kernel finds the driver of such cards; modules.alias of depmod(8)."""


@contextlib.contextmanager
def lent(loan: Loan, mtu: int, journal: Journal) -> Iterator[Loan]:
    """The card in its place in the lab, up, with `mtu`, and open to all addresses.

    Given back at the end, unless that has happened already. Raises `MachineError`.
    """
    journal.add("card", loan.entry())
    try:
        local = LocalHost()
        # Moving takes it down, and only a port that is down changes its name.
        move = ["netns", loan.namespace, "name", loan.port]
        local.run(["ip", "link", "set", "dev", loan.interface, *move])
        inside = ["ip", "-n", loan.namespace, "link", "set", "dev", loan.port]
        local.run([*inside, "mtu", str(mtu)])
        # Packets are not addressed to it, and a card would drop those.
        local.run([*inside, "promisc", "on", "up"])
        yield loan
    finally:
        give_back(loan)


def give_back(loan: Loan, root: Path = ROOT) -> None:
    """Take a card out of the lab and make it what it was. Nothing happens if it is back already.

    Raises `MachineError` when it cannot be moved.
    """
    local = LocalHost()
    if loan.port in _ports(loan.namespace):
        inside = ["ip", "-n", loan.namespace, "link", "set", "dev", loan.port]
        local.run([*inside, "down"])
        local.run([*inside, "netns", str(os.getpid()), "name", loan.interface])
    elif loan.port in _ports(None) and loan.interface not in _ports(None):
        # Its namespace went before it did: the kernel brings cards home, but keeps their names.
        local.run(["ip", "link", "set", "dev", loan.port, "down", "name", loan.interface])
    else:
        return
    restore(loan, root)


def restore(loan: Loan, root: Path = ROOT) -> None:
    """Make a card that is on this machine again what it was."""
    local = LocalHost()
    outside = ["ip", "link", "set", "dev", loan.interface]
    local.run([*outside, "mtu", str(loan.mtu), "address", loan.address])
    local.run([*outside, "promisc", "on" if loan.promiscuous else "off"])
    folder = root / "sys/class/net" / loan.interface
    files = {folder / "queues" / queue / "rps_cpus": old for queue, old in loan.steering.items()}
    if loan.threaded is not None:
        files[folder / "threaded"] = loan.threaded
    if loan.up:
        local.run([*outside, "up"])
    files |= {_affinity(number, root): old for number, old in loan.interrupts.items()}
    for path, old in files.items():
        if _read(path) != old:
            with contextlib.suppress(OSError):  # of interrupts that are others now
                path.write_text(old, encoding="ascii")


def steer_interrupts(loan: Loan, cpus: Iterable[int], root: Path = ROOT) -> None:
    """Send a card's interrupts to `cpus`, as far as the kernel lets it; `Loan.facts` tells.

    Most cards have theirs only when they are up.
    """
    if loan.device is not None:
        for number in _interrupts(Path(loan.device), root):
            with contextlib.suppress(OSError):  # some are the kernel's own to place
                _affinity(number, root).write_text(list_cpus(cpus), encoding="ascii")


@contextlib.contextmanager
def handed_over(interface: str, journal: Journal, root: Path = ROOT) -> Iterator[Handed]:
    """A card of this machine in the hands of vfio-pci; what it was before at the end.

    Raises `InputError`, `MachineError`.
    """
    before = Loan.of(interface, "", "", root)
    with contextlib.ExitStack() as stack:
        stack.callback(restore, before, root)  # once it is bound back
        address = stack.enter_context(bound_to_vfio(interface, journal, root))
        alias = _read(root / "sys/bus/pci/devices" / address / "modalias")
        yield Handed(address, before.address, alias or "")


class Cards:
    """Cards that were lent to labs, for ``tailtap clean``."""

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those in a journal that are still where they were lent to, or under that name."""
        here = _ports(None)
        found: list[str] = []
        for entry in entered:
            loan = Loan.parse(entry)
            astray = loan.interface not in here and loan.port in here
            if astray or loan.port in _ports(loan.namespace):
                found.append(entry)
        return found

    def remove(self, name: str) -> None:
        """Give it back."""
        give_back(Loan.parse(name))


def _inspect(interface: str, root: Path) -> Mapping[str, Any]:
    """What ``ip`` tells of an interface that can be lent."""
    local = LocalHost()
    told = local.run(["ip", "-j", "addr", "show", "dev", interface], check=False)
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(ValueError):
        rows = cast("list[dict[str, Any]]", json.loads(told.stdout))
    found = [row for row in rows if row.get("ifname") == interface]
    if not found:
        raise InputError(
            f"there is no interface {interface!r} on this machine (`ip link` lists them): name "
            "others in dut.ports and tap.ports"
        )
    [row] = found
    why = None
    if row.get("link_type") != "ether":
        why = "is not Ethernet: name another one"
    elif interface in default_route_interfaces(root):
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


def _ports(namespace: str | None) -> set[str]:
    """The names of the interfaces in a namespace, or in this process's own."""
    where = [] if namespace is None else ["-n", namespace]
    told = LocalHost().run(["ip", *where, "-j", "link", "show"], check=False).stdout
    try:
        return {row["ifname"] for row in json.loads(told)}
    except ValueError:  # there is no such namespace
        return set()


def _interrupts(device: Path, root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for path in (device / "msi_irqs").iterdir():
            going = _read(_affinity(path.name, root))
            if going is not None:
                found[path.name] = going
    if not found:
        number = _read(device / "irq")
        going = None if number in (None, "0") else _read(_affinity(str(number), root))
        if going is not None:
            found[str(number)] = going
    return found


def _affinity(number: str, root: Path) -> Path:
    return root / "proc/irq" / number / "smp_affinity_list"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None
