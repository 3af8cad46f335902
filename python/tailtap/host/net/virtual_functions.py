"""Virtual functions of network cards (SR-IOV): made, set, and removed again.

Documentation/PCI/pci-iov-howto.rst of the kernel. A card, the physical function, has them from its
`sriov_numvfs`, which changes only from 0 and to 0. Each is a network card of its own on the PCI
bus; what it may do is set at its card. That is done before a driver takes it: most drivers read the
hardware address once, and many reset a function whose VLAN changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.locks import wait_until
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.net import pci
from tailtap.host.net.cards import ROOT, CardState, OfCard, link, restore
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

FIRST_VLAN, LAST_VLAN = 2, 4094
"""VLAN 1 is what many cards and switches take untagged packets for; 4095 is reserved
(IEEE 802.1Q)."""
UDEV = Path("/run/udev/control")
"""Where udev listens while it runs; systemd-udevd(8)."""
GIVEN_TIMES = 5
"""How often a driver is given a function. One that asks the card for its address while the card is
still being reset makes one up, as igbvf does."""
SEEN_SECONDS = 5.0
"""How long a new function may take to be there."""
_MADE, _DRIVERS = "sriov_numvfs", "sriov_drivers_autoprobe"
_NETWORK_CARD = "bc02sc00i00"
"""The class of the PCI bus for Ethernet, as in the names by which drivers are found."""


@dataclass(frozen=True)
class Ability:
    """What a network card says of virtual functions."""

    interface: str
    total: int
    """How many it can have; 0 where it can have none."""
    made: int
    carrier: bool | None
    """Whether a cable leads to another port that is up; None while the card is down."""
    modalias: str | None
    """The name by which the driver of its functions is found, modules.alias of depmod(8)."""

    @classmethod
    def of(cls, interface: str, root: Path = ROOT) -> Ability:
        """What the kernel says of `interface`, which need not be there."""
        folder = root / "sys/class/net" / interface
        device = folder / "device"
        carrier = read_text(folder / "carrier")
        words = [
            read_text(device / name)
            for name in ("vendor", "sriov_vf_device", "subsystem_vendor", "subsystem_device")
        ]
        modalias = None
        if None not in words:
            ids = [f"{int(str(word), 16):08X}" for word in words]
            modalias = "pci:v{}d{}sv{}sd{}".format(*ids) + _NETWORK_CARD
        return cls(
            interface,
            int(read_text(device / "sriov_totalvfs") or 0),
            int(read_text(device / _MADE) or 0),
            None if carrier is None else carrier == "1",
            modalias,
        )

    def require(self, wanted: int) -> None:
        """Raises `MachineError` unless `wanted` functions can be made."""
        if self.total == 0:
            raise MachineError(
                f"{self.interface} can have no virtual functions (SR-IOV): choose another card, or "
                "switch them on in its firmware"
            )
        if self.made:
            raise MachineError(
                f"{self.interface} has {self.made} virtual functions already, which may be in use: "
                f"remove them first (`echo 0 > /sys/class/net/{self.interface}/device/{_MADE}`)"
            )
        if wanted > self.total:
            raise MachineError(
                f"{self.interface} can have {self.total} virtual functions, and {wanted} are "
                "needed, one for each link between nodes: take fewer nodes, or another card in "
                "dut.over"
            )
        if self.carrier is False:
            raise MachineError(
                f"{self.interface} is up and has no link: join it to another card by a cable"
            )

    def require_driver(self) -> None:
        """Raises `MachineError` when no driver for its functions is installed."""
        if self.modalias is None:
            return
        found = LocalHost().run(["modprobe", "--resolve-alias", self.modalias], check=False)
        if not found.stdout.strip():
            raise MachineError(
                f"no driver for the virtual functions of {self.interface} is installed "
                f"({self.modalias}): install the kernel's package with its modules"
            )


@dataclass(frozen=True)
class VirtualFunctions(OfCard):
    """As many virtual functions of a card as links need; the card is up, with room for `mtu`."""

    kind: ClassVar[str] = "virtual-functions"

    count: int
    mtu: int
    """In bytes; the card's own stays where it is larger."""

    def read(self) -> dict[str, Any]:
        """What the card is, which has none. Raises `InputError`, `MachineError` otherwise."""
        state = CardState.of(self.interface)
        Ability.of(self.interface).require(self.count)
        return {"card": asdict(state), "drivers": read_text(self._device / _DRIVERS)}

    def plan(self) -> dict[str, int]:
        return {"made": self.count}

    def apply(self) -> None:
        row = link(None, self.interface) or {}
        mtu = max(self.mtu, int(row.get("mtu", 0)))
        # Some drivers set functions of cards that are up only.
        LocalHost().run(["ip", "link", "set", "dev", self.interface, "mtu", str(mtu), "up"])
        # A driver that is loaded later takes all functions at once, set or not.
        modalias = Ability.of(self.interface).modalias
        if modalias is not None:
            LocalHost().run(["modprobe", "--quiet", modalias], check=False)
        _write(self._device / _DRIVERS, "0")
        _write(self._device / _MADE, str(self.count))
        _write(self._device / _DRIVERS, "1")
        made = Ability.of(self.interface).made
        if made != self.count:
            raise MachineError(
                f"{self.interface} should have {self.count} virtual functions, and has {made}"
            )

    def undo(self, old: Mapping[str, Any], applied: Value = None) -> str | None:
        if not (self._device / _MADE).exists():
            return None
        made = Ability.of(self.interface).made
        if made not in (0, self.count):
            return (
                f"somebody else gave {self.interface} {made} virtual functions, which are left: "
                f"tailtap made {self.count}"
            )
        if made:
            _write(self._device / _MADE, "0")
        if old["drivers"] is not None and read_text(self._device / _DRIVERS) != old["drivers"]:
            _write(self._device / _DRIVERS, old["drivers"])
        restore(CardState(**old["card"]))
        return None

    def pending(self, old: Mapping[str, Any], applied: Value = None) -> bool:
        row = link(None, self.interface)
        if row is None:
            return False
        before = CardState(**old["card"])
        return (
            Ability.of(self.interface).made == self.count
            or read_text(self._device / _DRIVERS) != old["drivers"]
            or ("UP" in row["flags"], row["mtu"]) != (before.up, before.mtu)
        )

    @property
    def _device(self) -> Path:
        return ROOT / "sys/class/net" / self.interface / "device"


@dataclass(frozen=True)
class VirtualFunction(Resource):
    """One virtual function, set at its card: a network card here, or one of a virtual machine.

    It is trusted, so that it may receive what is not addressed to it, and may send from any
    address, as what forwards has to.
    """

    kind: ClassVar[str] = "virtual-function"

    card: str
    number: int
    interface: str | None
    """What it is called on this machine; None where vfio-pci has it, for a virtual machine."""
    mac: str
    vlan: int

    @property
    def label(self) -> str:
        return f"{self.card}/{self.number}"

    def read(self) -> dict[str, Any]:
        """What its card says of it, in the words of ip-link(8); nothing when there is none."""
        for row in (link(None, self.card) or {}).get("vfinfo_list", ()):
            if row["vf"] == self.number:
                vlans = cast("list[dict[str, Any]]", row.get("vlan_list") or [{}])
                return {
                    "mac": str(row.get("address", "")),
                    "vlan": int(vlans[0].get("vlan", 0)),
                    "spoofchk": bool(row.get("spoofchk")),
                    "trust": bool(row.get("trust")),
                }
        return {}

    def plan(self) -> dict[str, Any]:
        return {"mac": self.mac, "vlan": self.vlan, "spoofchk": False, "trust": True}

    def apply(self) -> dict[str, str]:
        """Set it, then give it to its driver: its `address` on the PCI bus, and the `alias` by
        which a kernel finds the driver of such functions.

        Raises `MachineError` when its card keeps other settings, and when no driver takes it.
        """
        wanted = self.plan()
        reason = "it says otherwise"
        try:
            words = [word for key, value in wanted.items() for word in (key, _word(value))]
            LocalHost().run([*self._command(), *words])
        except CommandFailed as error:
            reason = error.reason
        found = self.read()
        if found != wanted:
            differing = ", ".join(
                f"{key} {_word(value)}" for key, value in wanted.items() if found.get(key) != value
            )
            raise MachineError(
                f"{self.card} does not give its virtual function {self.number} {differing} "
                f"({reason}): choose other cards, or leave out what asks for such functions"
            )
        address = (ROOT / "sys/class/net" / self.card / "device" / f"virtfn{self.number}").resolve()
        told = {"address": address.name, "alias": read_text(address / "modalias") or ""}
        if self.interface is None:
            pci.require_apart(address)
            pci.bind(address.name, pci.VFIO, ROOT)
            return told
        mac = None
        for _ in range(GIVEN_TIMES):
            _give_to_driver(address.name, self.interface)
            mac = read_text(ROOT / "sys/class/net" / self.interface / "address")
            if mac == self.mac:
                return told
            pci.release(address.name)
        raise MachineError(
            f"the driver of virtual function {self.number} of {self.card} took it {GIVEN_TIMES} "
            f"times with another hardware address, {mac} at last, and {self.mac} was set: choose "
            "another card"
        )

    def undo(self, old: Mapping[str, Any], applied: Value = None) -> None:
        found = self.read()
        for key, value in old.items():
            if found and found.get(key) != value:
                # No address is what a card cannot be given, and the function is about to go.
                LocalHost().run([*self._command(), key, _word(value)], check=False)

    def pending(self, old: Mapping[str, Any], applied: Value = None) -> bool:
        return self.read() not in ({}, old)

    def _command(self) -> list[str]:
        return ["ip", "link", "set", "dev", self.card, "vf", str(self.number)]


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _give_to_driver(address: str, interface: str) -> None:
    """Have a driver take a function, and call its interface so. Raises `MachineError`."""
    local = LocalHost()
    device = ROOT / "sys/bus/pci/devices" / address
    modalias = read_text(device / "modalias") or ""
    pci.probe(address)
    found = wait_until(
        lambda: sorted(path.name for path in device.glob("net/*")), SEEN_SECONDS, 0.01
    )
    if not found:
        driver = pci.driver_of(address)
        why = f"{driver} makes no interface of it" if driver else f"none knows {modalias}"
        raise MachineError(f"no network driver takes the virtual function {address}: {why}")
    if UDEV.exists():
        # It gives the interface a name of its own, and would do so later.
        local.run(["udevadm", "settle", f"--timeout={SEEN_SECONDS:.0f}"], check=False)
        found = sorted(path.name for path in device.glob("net/*"))
    if found != [interface]:
        local.run(["ip", "link", "set", "dev", found[0], "down", "name", interface])


def _write(path: Path, text: str) -> None:
    try:
        set_value(path, text)
    except OSError as error:
        raise MachineError(
            f"cannot write {text}: {error.strerror}: the card's driver or firmware says "
            "no (`dmesg`): choose another card"
        ).at(path) from error
