"""The interrupts of a network card: which there are, and on which CPUs they are handled."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.units import parse_cpus
from tailtap.host.changes.kernel_values import same
from tailtap.host.changes.resource import Resource, left_as_it_is
from tailtap.host.facts.machine import interrupt_numbers
from tailtap.remote.local import LocalHost, NamespaceHost

_REFUSED = frozenset((errno.EIO, errno.EPERM, errno.ENOSPC))
"""Answers that say no more than that an interrupt does not go there: the kernel places it itself,
or no vector is left on that CPU. irqbalance leaves it then, too."""


def device_interrupts(device: Path, root: Path) -> dict[str, str]:
    """The CPUs that each interrupt of a device may go to, as a list, by its number."""
    found = {number: read_text(affinity(number, root)) for number in interrupt_numbers(device)}
    return {number: going for number, going in found.items() if going is not None}


def in_places(numbers: Iterable[str]) -> dict[str, str]:
    """The number of each interrupt of a card, by its place among them, such as ``interrupt 0``.

    A driver that changes the number of queues requests interrupts anew: they may get other numbers.
    """
    return {f"interrupt {place}": one for place, one in enumerate(sorted(numbers, key=int))}


def affinity(number: str, root: Path) -> Path:
    """The file of the CPUs that an interrupt may go to."""
    return root / "proc/irq" / number / "smp_affinity_list"


@dataclass(frozen=True)
class CardInterrupts(Resource):
    """The interrupts of a card in the lab, on `cpus` as far as the kernel lets it.

    Most cards have theirs only when they are up; a card without interrupts has nothing to change.
    """

    kind: ClassVar[str] = "card-interrupts"

    namespace: str | None
    """Where the card is; None for this process's own namespace."""
    port: str
    cpus: str
    """As a list."""
    apart: bool = False
    """Whether each of them goes to one CPU, in turn, instead of to any of these."""
    root: str = "/"

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.port}"

    def read(self) -> dict[str, str]:
        host = LocalHost() if self.namespace is None else NamespaceHost(self.namespace)
        device = Path(self.root, "sys/class/net", self.port, "device")
        told = host.run(["readlink", "--canonicalize-existing", str(device)], check=False).stdout
        return device_interrupts(Path(told.strip()), Path(self.root)) if told else {}

    def plan(self) -> dict[str, str]:
        return self._wanted(self.read())

    def apply(self) -> dict[str, str]:
        """Send them there; where each was sent.

        An interrupt that does not go there stays: what interrupts do in the end is in the facts of
        a run. Raises `MachineError` when the kernel says anything else.
        """
        wanted = self.plan()
        for number, cpus in wanted.items():
            self._write(number, cpus)
        return wanted

    def undo(self, old: Mapping[str, str], applied: Mapping[str, str] | None = None) -> str | None:
        sent = applied or self._wanted(old)
        changed: list[str] = []
        for number, before in old.items():
            path = affinity(number, Path(self.root))
            now = read_text(path)
            if now is None or same(now, before, "cpus"):
                continue
            if same(now, sent.get(number, self.cpus), "cpus"):
                self._write(number, before)
            else:
                changed.append(f"/{path.relative_to(self.root)} ({now}, before tailtap {before})")
        return left_as_it_is(changed)

    def pending(self, old: Mapping[str, str], applied: Mapping[str, str] | None = None) -> bool:
        return any(old.get(number, cpus) != cpus for number, cpus in self.read().items())

    def _wanted(self, numbers: Iterable[str]) -> dict[str, str]:
        if not self.apart:
            return dict.fromkeys(numbers, self.cpus)
        cpus = parse_cpus(self.cpus)
        return {
            number: str(cpus[place % len(cpus)])
            for place, number in enumerate(sorted(numbers, key=int))
        }

    def _write(self, number: str, cpus: str) -> None:
        path = affinity(number, Path(self.root))
        try:
            set_value(path, cpus)
        except FileNotFoundError:  # it is gone
            return
        except OSError as error:
            if error.errno not in _REFUSED:
                raise MachineError(
                    f"interrupt {number} of {self.port} cannot go to CPUs {cpus}: {error.strerror}"
                ) from error
