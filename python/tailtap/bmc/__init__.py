"""Management controllers for containers and guests: IPMI 2.0 over UDP.

```
client ─UDP─▶ controller ─packet─▶ session ─request─▶ controller ─▶ machine
              its own thread       keys, sequence     commands      lxc, libvirt, command
```

`packets.py` reads and writes packets and messages, with cipher suite 17. Sessions end, and failed
logins are told and answered up to a limit. ipmitool and pyghmi's client are the tests' other side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, Protocol

from pydantic import BaseModel

from tailtap.base.errors import Check
from tailtap.base.registry import Kind, OwnKind, Registry
from tailtap.measure.testbed.power import Power, State
from tailtap.remote import ProgramMissing
from tailtap.remote.local import require_program

__all__ = ["DEVICES", "MACHINES", "BootDevice", "Machine", "MachineKind", "State"]

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

    def status(self) -> State: ...

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


class MachineKind(Kind, Protocol):
    """One kind of machines that can have a controller."""

    Options: type[BaseModel]
    """The keys beside ``kind`` and ``listen``; one of them is ``name``."""

    def open(self, options: BaseModel) -> Machine:
        """The machine that `options` name. Raises `MachineError` when there is none."""
        ...


class Switches(Power):
    """A machine that is switched off and on to begin anew, and keeps the boot device it is told."""

    _device: BootDevice = "default"

    def reset(self) -> None:
        self.cycle()

    def boot_device(self) -> BootDevice:
        return self._device

    def set_boot_device(self, device: BootDevice) -> None:
        self._device = device


def look_for(kind: str, programs: Sequence[str] = (), remedy: str = "") -> Check:
    """Whether the programs of a `kind` are there; `remedy` brings them."""
    area = "machines with a controller"
    try:
        found = ", ".join(map(require_program, programs)) or "needs nothing of its own"
    except ProgramMissing as error:
        return Check(area, kind, "missing", error.what, remedy)
    return Check(area, kind, "ok", found)


def _built_in() -> Mapping[str, MachineKind]:
    from tailtap.bmc.command import Switched, SwitchedOptions
    from tailtap.bmc.libvirt import Domain, LibvirtOptions
    from tailtap.bmc.lxc import PROGRAMS, Container, LxcOptions

    return {
        "lxc": OwnKind(
            "A container of LXC.",
            "A boot device is kept and told, and changes nothing. Needs the Debian package lxc, "
            "and the rights to start that container.",
            LxcOptions,
            Container,
            partial(look_for, "lxc", PROGRAMS, "apt-get install --no-install-recommends lxc"),
        ),
        "libvirt": OwnKind(
            "A domain of libvirt.",
            "A boot device is put first in the domain's definition, where it stays. It serves from "
            "the next start on: after off and on or a cycle, not after a reset. Needs the Debian "
            "packages libvirt-clients and, for guests of this machine, libvirt-daemon-system.",
            LibvirtOptions,
            Domain,
            partial(
                look_for,
                "libvirt",
                ["virsh"],
                "apt-get install --no-install-recommends libvirt-clients",
            ),
        ),
        "command": OwnKind(
            "Whatever commands switch.",
            "No shell runs them. A boot device is kept and told, and changes nothing.",
            SwitchedOptions,
            Switched,
            partial(look_for, "command"),
        ),
    }


MACHINES: Registry[MachineKind] = Registry("machine", "tailtap.machines", MachineKind, _built_in)
"""Every kind of machines by its name."""
