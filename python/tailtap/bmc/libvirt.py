"""`libvirt`: a domain of libvirt, such as a guest of QEMU."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Annotated
from xml.etree import ElementTree as ET

from pydantic import Field

from tailtap.base.errors import MachineError
from tailtap.base.schema import Matching, Strict
from tailtap.bmc import BootDevice, State, Switches
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, require_program

ASK_SECONDS = 10.0
SWITCH_SECONDS = 60.0
OFF = ("shut off", "crashed")
"""The states of domains that do not run; virsh(1), domstate."""
NAMES: Mapping[BootDevice, str] = {
    "network": "network",
    "disk": "hd",
    "optical": "cdrom",
    "floppy": "fd",
}
"""What libvirt calls them; https://libvirt.org/formatdomain.html, ``<boot dev=…>``."""
EXTENSIONS = {
    "qemu": "http://libvirt.org/schemas/domain/qemu/1.0",
    "lxc": "http://libvirt.org/schemas/domain/lxc/1.0",
}
"""The prefixes of parts of a definition, which would lose them when it is written again."""


class LibvirtOptions(Strict):
    """Which domain, and of which libvirt."""

    name: Annotated[str, Matching(r"^[^-\s/][^\s/]*$", "the name of a domain, or its UUID")] = (
        Field(
            max_length=255,
            description="The domain's name or UUID.",
            examples=["guest1"],
        )
    )
    uri: Annotated[
        str, Matching(r"^[a-z][a-z0-9+]*:\S*$", "a URI of libvirt, such as qemu:///system")
    ] = Field(
        default="qemu:///system",
        description="Which libvirt it is of.",
        examples=["qemu:///session"],
    )


class Domain(Switches):
    """A domain that libvirt has a definition of, by libvirt's program virsh."""

    def __init__(self, options: LibvirtOptions) -> None:
        require_program("virsh")
        self.options = options
        self.status()

    def status(self) -> State:
        """Off is shut off or crashed; all else is on: also paused and shutting down."""
        return "off" if self._run("domstate", seconds=ASK_SECONDS).strip() in OFF else "on"

    def switch(self, wanted: State) -> None:
        try:
            self._run("start" if wanted == "on" else "destroy")
        except CommandFailed:  # it may have ended by itself
            if self.status() != wanted:
                raise

    def reset(self) -> None:
        self._run("reset")

    def shutdown(self) -> None:
        self._run("shutdown")

    def boot_device(self) -> BootDevice:
        return first_device(self._definition())

    def set_boot_device(self, device: BootDevice) -> None:
        if device == "default":
            return
        definition = self._definition()
        put_first(definition, device)
        text = ET.tostring(definition, encoding="unicode")
        self._virsh("define", "/dev/stdin", stdin=text)

    def _definition(self) -> ET.Element:
        # Without its secrets it would lose them when it is defined again.
        told = self._run("dumpxml", "--inactive", "--security-info")
        try:
            return ET.fromstring(told)
        except ET.ParseError as error:
            raise MachineError(f"virsh tells no definition of the domain: {error}") from error

    def _run(self, what: str, *arguments: str, seconds: float = SWITCH_SECONDS) -> str:
        return self._virsh(what, self.options.name, *arguments, seconds=seconds)

    def _virsh(self, *words: str, stdin: str = "", seconds: float = SWITCH_SECONDS) -> str:
        # virsh translates what it tells.
        command = ["env", "LC_ALL=C", "virsh", "-q", "-c", self.options.uri, *words]
        try:
            return LocalHost().run(command, stdin=stdin, seconds=seconds).stdout
        except CommandFailed as error:
            reason = re.sub(r"\s*error:\s*", " ", error.reason).strip()
            raise CommandFailed(["virsh", "-c", self.options.uri, *words], reason) from error


def first_device(definition: ET.Element) -> BootDevice:
    """What a domain boots from first: of `<os>`, or the least order of its devices."""
    names = {name: device for device, name in NAMES.items()}
    boot = definition.find("os/boot")
    if boot is not None:
        return names.get(boot.get("dev", ""), "default")
    ordered: list[tuple[int, BootDevice]] = []
    for device in definition.findall("devices/*"):
        order = device.find("boot")
        if order is not None:
            kind = _kind(device)
            with contextlib.suppress(ValueError):
                ordered.append((int(order.get("order", "")), kind))
    return min(ordered)[1] if ordered else "default"


def put_first(definition: ET.Element, device: BootDevice) -> None:
    """Let a domain boot from `device`, then from what it booted from before.

    libvirt refuses an order in `<os>` beside orders of devices, so that those of devices become
    kinds in `<os>`.
    """
    names = [boot.get("dev", "") for boot in definition.findall("os/boot")]
    ordered: list[tuple[int, str]] = []
    for one in definition.findall("devices/*"):
        for order in one.findall("boot"):
            name = NAMES.get(_kind(one))
            if name is not None:
                ordered.append((int(order.get("order", "0")), name))
            one.remove(order)
    names += [name for _, name in sorted(ordered)]
    system = definition.find("os")
    if system is None:
        raise MachineError("the domain's definition has no <os>, which says what it boots from")
    for boot in system.findall("boot"):
        system.remove(boot)
    for name in dict.fromkeys([NAMES[device], *names]):
        ET.SubElement(system, "boot", dev=name)


def _kind(device: ET.Element) -> BootDevice:
    if device.tag == "interface":
        return "network"
    if device.tag == "disk":
        kinds: Mapping[str, BootDevice] = {"cdrom": "optical", "floppy": "floppy"}
        return kinds.get(device.get("device", "disk"), "disk")
    return "default"


for _prefix, _namespace in EXTENSIONS.items():
    ET.register_namespace(_prefix, _namespace)
