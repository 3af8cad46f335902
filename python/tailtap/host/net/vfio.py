"""Network cards that a program in user space drives: bound to vfio-pci, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from tailtap.host.changes.journal import Journal
from tailtap.host.changes.resource import Resource, Value, read_text
from tailtap.host.net import pci
from tailtap.host.net.cards import ROOT, CardState, link, restore
from tailtap.host.net.namespaces import ports
from tailtap.host.net.pci import address_of


@contextlib.contextmanager
def passed_through(interface: str, journal: Journal) -> Iterator[VfioCard]:
    """A card of this machine, bound to vfio-pci; what it was before at the end.

    Raises `InputError`, `MachineError`.
    """
    with journal.held(VfioCard.of(interface)) as change:
        yield change


@dataclass(frozen=True)
class VfioCard(Resource):
    """A card that is bound to vfio-pci instead of the kernel's driver."""

    kind: ClassVar[str] = "pci-driver"

    interface: str
    """What it is called when the kernel's driver has it."""
    address: str
    """Its place on the PCI bus."""
    root: str = "/"
    mac: str = ""
    alias: str = ""
    """By which a kernel finds the driver of such cards; modules.alias of depmod(8)."""

    @classmethod
    def of(cls, interface: str) -> VfioCard:
        """A card of this machine. Raises `InputError`, `MachineError` when a lab cannot use it."""
        before, address = CardState.of(interface), address_of(interface)
        alias = read_text(ROOT / "sys/bus/pci/devices" / address / "modalias")
        return cls(interface, address, mac=before.address, alias=alias or "")

    @property
    def label(self) -> str:
        return f"{self.address} {self.interface}"

    @property
    def claims(self) -> Sequence[str]:
        return [f"card {self.interface}"]

    def read(self) -> dict[str, Any]:
        card = asdict(CardState.of(self.interface)) if self.interface in ports(None) else None
        return {"driver": pci.driver_of(self.address, Path(self.root)), "card": card}

    def plan(self) -> dict[str, Any]:
        return {"driver": pci.VFIO}

    def apply(self) -> Value:
        """Bind it. Raises `MachineError`."""
        pci.bind(self.address, pci.VFIO, Path(self.root))
        return self.plan()

    def undo(self, old: Mapping[str, Any], applied: Value = None) -> str | None:
        """Give it back to its driver, and make it what it was. Raises `MachineError`."""
        root = Path(self.root)
        now = pci.driver_of(self.address, root)
        if now not in (pci.VFIO, old["driver"], None):
            return (
                f"somebody else bound the card {self.label} to {now}, which is left so: before "
                f"tailtap it was {old['driver'] or 'without a driver'}"
            )
        if now == old["driver"] and applied is None:
            return None
        pci.bind_back(self.address, old["driver"], self.interface, root)
        if old["card"] is not None:
            restore(CardState(**old["card"]))
        return None

    def pending(self, old: Mapping[str, Any], applied: Value = None) -> bool:
        if pci.driver_of(self.address, Path(self.root)) != old["driver"]:
            return True
        row = None if applied is None or old["card"] is None else link(None, self.interface)
        if row is None:
            return applied is not None and old["card"] is not None
        before = CardState(**old["card"])
        return (row["mtu"], "UP" in row["flags"]) != (before.mtu, before.up)
