"""Management controllers for containers and guests: IPMI 2.0 over UDP.

```
client ─UDP─▶ controller ─packet─▶ session ─request─▶ controller ─▶ machine
              its own thread       keys, sequence     commands      lxc, libvirt, command
```

`packets.py` reads and writes packets and messages, with cipher suite 17. Sessions end, and failed
logins are told and answered up to a limit. ipmitool and pyghmi's client are the tests' other side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.registry import Registry

__all__ = ["DEVICES", "MACHINES", "BootDevice", "Machine", "MachineKind", "State"]

State = Literal["on", "off"]
BootDevice = Literal["default", "network", "disk", "optical", "floppy"]
DEVICES: Mapping[BootDevice, int] = {
    "default": 0,
    "network": 1,
    "disk": 2,
    "optical": 5,
    "floppy": 15,
}
"""The boot devices that can be chosen, and their numbers; IPMI 2.0, table 28-14."""


class Machine(Protocol):
    """What a controller controls. Every call ends within a time limit and raises `MachineError`.

    A status is asked for while another call is under way in another thread; other calls come one
    after the other.
    """

    def status(self) -> State:
        """Whether it runs."""
        ...

    def on(self) -> None:
        """Start it; does nothing when it runs."""
        ...

    def off(self) -> None:
        """End it at once; does nothing when it does not run."""
        ...

    def cycle(self) -> None:
        """End it at once, and start it; it runs."""
        ...

    def reset(self) -> None:
        """Let it begin anew at once."""
        ...

    def shutdown(self) -> None:
        """Ask it to shut down; returns without waiting for that."""
        ...

    def boot_device(self) -> BootDevice:
        """What it boots from first, as far as that was chosen."""
        ...

    def set_boot_device(self, device: BootDevice) -> None:
        """Let it boot from `device` first, from its next start on."""
        ...


class MachineKind(Protocol):
    """One kind of machines that can have a controller."""

    summary: str
    """What it is, in one sentence."""

    documentation: str
    """What its users should know, as a paragraph of Markdown."""

    Options: type[BaseModel]
    """The keys beside ``kind`` and ``listen``; one of them is ``name``."""

    def diagnose(self) -> Iterator[Check]:
        """The checks of `tailtap doctor`: whether what it calls is there."""
        ...

    def open(self, options: BaseModel) -> Machine:
        """The machine that `options` name. Raises `MachineError` when there is none."""
        ...


def _built_in() -> Mapping[str, MachineKind]:
    from tailtap.bmc.command import CommandKind
    from tailtap.bmc.libvirt import LibvirtKind
    from tailtap.bmc.lxc import LxcKind

    return {"lxc": LxcKind(), "libvirt": LibvirtKind(), "command": CommandKind()}


MACHINES: Registry[MachineKind] = Registry("machine", "tailtap.machines", MachineKind, _built_in)
"""Every kind of machines by its name."""
