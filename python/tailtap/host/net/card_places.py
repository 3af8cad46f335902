"""Where the work of a card's queues is done: interrupts, receive steering (RPS), sending (XPS).

A driver that changes the number of a card's queues frees its interrupts and requests others, which
go wherever new ones go, and a queue that comes back has no masks. So whoever changes the number
looks at all of this before, and puts it back afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from tailtap.base.files import set_value
from tailtap.host.changes.resource import read_text
from tailtap.host.net.card_interrupts import affinity, device_interrupts, in_places
from tailtap.host.net.inside import inside

T = TypeVar("T")

ROOT = Path("/")
_MASKS = ("rx-*/rps_cpus", "tx-*/xps_cpus")


def places(port: str, namespace: str | None = None, root: Path = ROOT) -> dict[str, str]:
    """The CPUs of each queue's masks and of each interrupt of a card; nothing when it is gone.

    Interrupts are told by their place among the card's: new ones may have other numbers.
    """
    return _there(namespace, partial(_read, port, root))


def put_back(
    port: str, before: Mapping[str, str], namespace: str | None = None, root: Path = ROOT
) -> None:
    """Make those what they were that are there, as far as the kernel lets it."""
    _there(namespace, partial(_write, port, before, root))


def _there(namespace: str | None, work: Callable[[], T]) -> T:
    return work() if namespace is None else inside([(namespace, work)])[0]


def _read(port: str, root: Path) -> dict[str, str]:
    found = {name: read_text(path) for name, path in _files(port, root).items()}
    return {name: text for name, text in found.items() if text is not None}


def _write(port: str, before: Mapping[str, str], root: Path) -> None:
    for name, path in _files(port, root).items():
        text = before.get(name)
        if text is not None and read_text(path) != text:
            with contextlib.suppress(OSError):  # the kernel places some interrupts itself
                set_value(path, text)


def _files(port: str, root: Path) -> dict[str, Path]:
    """The file of each."""
    card = root / "sys/class/net" / port
    found = {
        f"{path.parent.name}/{path.name}": path
        for pattern in _MASKS
        for path in sorted((card / "queues").glob(pattern))
    }
    device = card / "device"
    numbers = device_interrupts(device.resolve(), root) if device.exists() else {}
    return found | {place: affinity(number, root) for place, number in in_places(numbers).items()}
