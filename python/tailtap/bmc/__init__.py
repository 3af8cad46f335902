"""Management controllers for containers and guests: IPMI 2.0 over UDP.

```
client ─UDP─▶ controller ─packet─▶ session ─request─▶ controller ─▶ machine
              its own thread       keys, sequence     commands      lxc, libvirt, command
```

`packets.py` reads and writes packets and messages, with cipher suite 17. Sessions end, and failed
logins are told and answered up to a limit. ipmitool and pyghmi's client are the tests' other side.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.registry import Registry
from tailtap.remote import ProgramMissing
from tailtap.remote.local import require_program

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


class Switches(abc.ABC):
    """A machine that is switched off and on to begin anew, and keeps the boot device it is told."""

    _device: BootDevice = "default"

    @abc.abstractmethod
    def on(self) -> None: ...

    @abc.abstractmethod
    def off(self) -> None: ...

    def cycle(self) -> None:
        self.off()
        self.on()

    def reset(self) -> None:
        self.cycle()

    def boot_device(self) -> BootDevice:
        return self._device

    def set_boot_device(self, device: BootDevice) -> None:
        self._device = device


@dataclass
class OwnKind:
    """A kind that needs no more than some programs of this machine."""

    name: str
    summary: str
    documentation: str
    Options: type[BaseModel]
    machine: Callable[[Any], Machine]
    """Makes one of its options."""
    programs: Sequence[str] = ()
    remedy: str = ""
    """What brings the programs."""

    def diagnose(self) -> Iterator[Check]:
        area = "machines with a controller"
        try:
            found = ", ".join(map(require_program, self.programs)) or "needs nothing of its own"
        except ProgramMissing as error:
            yield Check(area, self.name, "missing", error.what, self.remedy)
        else:
            yield Check(area, self.name, "ok", found)

    def open(self, options: BaseModel) -> Machine:
        return self.machine(options)


def _built_in() -> Mapping[str, MachineKind]:
    from tailtap.bmc import command, libvirt, lxc

    return {kind.name: kind for kind in (lxc.KIND, libvirt.KIND, command.KIND)}


MACHINES: Registry[MachineKind] = Registry("machine", "tailtap.machines", MachineKind, _built_in)
"""Every kind of machines by its name."""
