"""Network cards by their place on the PCI bus: handing them to vfio-pci, and back.

A card that a program in user space drives must leave the kernel's driver (Documentation/driver-api/
vfio.rst of the kernel). That is asked for explicitly, never done to the interface that this machine
is reached by, and undone afterwards; the journal knows it as ``ADDRESS DRIVER INTERFACE``.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.host.journal import Journal
from tailtap.host.local import LocalHost

ROOT = Path("/")
VFIO = "vfio-pci"
BIND_SECONDS = 5.0
"""How long a driver may take to let go of a card, or to take it and to name its interface."""
NO_IOMMU = "switch on VT-d or AMD-Vi in the firmware and boot with intel_iommu=on or amd_iommu=on"
_DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def address_of(interface: str, root: Path = ROOT) -> str:
    """The PCI address of a network interface.

    Raises `MachineError` for one that may not or cannot be handed over, with the reason.
    """
    device = root / "sys/class/net" / interface / "device"
    if not device.exists():
        raise MachineError(
            f"{interface} is no network card: driver: vfio-pci is for cards on the PCI bus, "
            "leave it out for links of the lab"
        )
    address = device.resolve().name
    if not _ADDRESS.fullmatch(address):
        raise MachineError(f"{interface} is not on the PCI bus ({address}): leave driver out")
    if interface in default_route_interfaces(root):
        raise MachineError(
            f"{interface} has the default route: without it this machine cannot be reached: choose "
            "another card"
        )
    if iommu_groups(root) == 0:
        raise MachineError(f"vfio-pci needs an IOMMU and this machine has none: {NO_IOMMU}")
    group = device.resolve() / "iommu_group"
    others = [path.name for path in _entries(group / "devices") if path.name != address]
    busy = [other for other in others if _driver(other, root) not in (None, VFIO, "pcieport")]
    if busy:
        raise MachineError(
            f"{interface} shares its IOMMU group with {busy[0]}, which the kernel uses: choose a "
            "card in a group of its own"
        )
    if not (root / "sys/bus/pci/drivers" / VFIO).exists():
        raise MachineError("the driver vfio-pci is missing: load it with `modprobe vfio-pci`")
    return address


def iommu_groups(root: Path = ROOT) -> int:
    """How many groups of devices the IOMMU keeps apart; 0 without one."""
    return len(_entries(root / "sys/kernel/iommu_groups"))


def default_route_interfaces(root: Path = ROOT) -> set[str]:
    """The interfaces that a default route leads through, of IPv4 and IPv6."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for line in (root / "proc/net/route").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[1] == fields[7] == "00000000":
                found.add(fields[0])
    with contextlib.suppress(OSError):
        for line in (root / "proc/net/ipv6_route").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if len(fields) > 9 and fields[0] == "0" * 32 and fields[1] == "00":
                found.add(fields[9])
    return found - {"lo"}


@contextlib.contextmanager
def bound_to_vfio(interface: str, journal: Journal, root: Path = ROOT) -> Iterator[str]:
    """The card of `interface` in the hands of vfio-pci; its PCI address. Bound back at the end.

    Raises `MachineError`.
    """
    address = address_of(interface, root)
    before = _driver(address, root)
    name = f"{address} {before or '-'} {interface}"
    journal.add("pci-driver", name)
    try:
        _bind(address, VFIO, root)
        yield address
    finally:
        bind_back(name, root)


def bind_back(name: str, root: Path = ROOT) -> None:
    """Give a card back to the driver that the journal names. Raises `MachineError`."""
    address, driver, interface = name.split()
    if driver == "-":
        _release(address, root)
    elif _driver(address, root) != driver:
        _bind(address, driver, root)
        _wait_until_seen(address, interface, root)


class PciDrivers:
    """Cards that were handed to vfio-pci, for ``tailtap clean``."""

    def __init__(self, root: Path = ROOT) -> None:
        """Those of the machine whose file systems are below `root`."""
        self._root = root

    def existing(self, entered: Sequence[str]) -> list[str]:
        """Those in a journal that vfio-pci still has."""
        return [name for name in entered if _driver(name.split()[0], self._root) == VFIO]

    def remove(self, name: str) -> None:
        """Give the card back."""
        bind_back(name, self._root)


def _bind(address: str, driver: str, root: Path) -> None:
    """Make `driver` take the card, and read back that it did."""
    _release(address, root)
    _write(root / _DEVICES / address / "driver_override", driver if driver == VFIO else "\n")
    _write(root / "sys/bus/pci/drivers_probe", address)
    deadline = time.monotonic() + BIND_SECONDS
    while _driver(address, root) != driver:
        if time.monotonic() > deadline:
            raise MachineError(f"the driver {driver} does not take the card {address}")
        time.sleep(0.01)


def _wait_until_seen(address: str, interface: str, root: Path) -> None:
    """Return when the card is called `interface` again; raises `MachineError` when it never is.

    A driver that takes a card gives it a name of its own, which services may then change.
    """
    deadline = time.monotonic() + BIND_SECONDS
    while interface not in (names := [p.name for p in _entries(root / _DEVICES / address / "net")]):
        if time.monotonic() > deadline:
            raise MachineError(f"the card {address} does not come back as {interface}")
        for name in names:
            rename = ["ip", "link", "set", "dev", name, "down", "name", interface]
            LocalHost().run(rename, check=False)
        time.sleep(0.05)


def _release(address: str, root: Path) -> None:
    if _driver(address, root) is not None:
        _write(root / _DEVICES / address / "driver/unbind", address)


def _driver(address: str, root: Path) -> str | None:
    link = root / _DEVICES / address / "driver"
    return link.resolve().name if link.exists() else None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="ascii")
    except OSError as error:
        raise MachineError(f"{path}: cannot change the driver: {error.strerror}") from error


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []
