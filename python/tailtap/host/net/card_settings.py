"""Where the work of a card's queues is done: interrupts, receive steering (RPS), sending (XPS).

A driver that changes the number of a card's queues frees its interrupts and requests others, which
go wherever new ones go, and a queue that comes back has no masks. So whoever changes the number
looks at all of this before, and puts it back afterwards.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import re
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text, set_value
from tailtap.host.changes.resource import Resource
from tailtap.host.net.inside import inside
from tailtap.host.net.port_work import affinity, device_interrupts, in_places
from tailtap.remote.local import LocalHost, NamespaceHost

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
    card = root / "sys/class/net" / port
    found = {
        f"{path.parent.name}/{path.name}": path
        for pattern in _MASKS
        for path in sorted((card / "queues").glob(pattern))
    }
    device = card / "device"
    numbers = device_interrupts(device.resolve(), root) if device.exists() else {}
    return found | {place: affinity(number, root) for place, number in in_places(numbers).items()}


_SIOCETHTOOL = 0x8946
_SET_TABLE = 0x39


def parse_table(text: str) -> dict[str, str]:
    """What `ethtool -x` shows: the ``table``, over how many queues it spreads (``equal``), and how
    many there are (``max equal``).

    ``equal`` is only there if packets go to the first so many queues, and to each as often as to
    the others: one entry more or less is what division leaves over.
    """
    rows = re.findall(r"^\s*\d+:((?:\s+\d+)+)\s*$", text, re.MULTILINE)
    table = [int(queue) for row in rows for queue in row.split()]
    rings = re.search(r"with (\d+) RX ring", text)
    if rings is None or not table:
        return {}
    often = [table.count(queue) for queue in range(max(table) + 1)]
    equal = {"equal": str(len(often))} if max(often) - min(often) <= 1 else {}
    return {**equal, "max equal": rings[1], "table": " ".join(map(str, table))}


def set_table(interface: str, table: str, queues: int, namespace: str | None = None) -> None:
    """Have a card that has so many queues spread packets so: the queue of each entry.

    Raises `MachineError`.
    """
    entries = list(map(int, table.split()))
    if entries == [place % queues for place in range(len(entries))]:
        # The kernel's own table: whoever asks for no entries gets it, and it does not stand against
        # fewer queues, as a table of somebody does.
        entries = []
    _there(namespace, partial(_set_table, interface, entries))


def _set_table(interface: str, entries: Sequence[int]) -> None:
    content = array.array("I", [_SET_TABLE, len(entries), *entries])
    place, _ = content.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), place))
    except OSError as error:
        raise MachineError(
            f"{interface} cannot spread packets over its queues as before: {error.strerror}"
        ) from error


SHOW = {"coalesce": "-c", "rings": "-g", "channels": "-l", "features": "-k", "pause": "-a",
        "eee": "--show-eee", "spread": "-x"}  # fmt: skip
"""The option of `ethtool` that shows each table of settings."""
CHANGE = {"coalesce": "-C", "rings": "-G", "channels": "-L", "features": "-K", "pause": "-A",
          "eee": "--set-eee", "spread": "-X"}  # fmt: skip
"""The option that changes settings of that table."""
_SHORT = {
    "generic-receive-offload": "gro",
    "large-receive-offload": "lro",
    "tcp-segmentation-offload": "tso",
    "generic-segmentation-offload": "gso",
}
"""Features are changed by other names than they are shown by."""
_SPREAD, _QUEUES = "spread", "channels"
_BESIDE = ("places", "table")
"""What is read of a card beside settings, as a change of them changes it."""
_NAMES = {"autonegotiate": "autoneg", "eee status": "eee"}
_EEE = {"enabled": "on", "disabled": "off"}


def parse(table: str, text: str) -> dict[str, str]:
    """The settings in what `ethtool` shows of a table, by the names that change them.

    Maxima have ``max`` in front of their name. What a card does not have is left out, and so are
    features that the kernel does not let anybody change.
    """
    if table == _SPREAD:
        return parse_table(text)
    found: dict[str, str] = {}
    prefix = ""
    for line in text.splitlines():
        if line.startswith(("Pre-set maximums", "Current hardware settings")):
            prefix = "max " if line.startswith("Pre-set") else ""
        elif adaptive := re.match(r"Adaptive RX:\s*(\S+)\s+TX:\s*(\S+)", line):
            found["adaptive-rx"], found["adaptive-tx"] = adaptive.groups()
        elif pair := re.match(r"\s*([\w -]+?):\s*(\S.*?)\s*$", line):
            name = pair[1].lower()
            name = prefix + _NAMES.get(name, _SHORT.get(name, name))
            if not pair[2].endswith("[fixed]"):
                found.setdefault(name, pair[2].split()[0])
    if table == "eee":
        return {"eee": _EEE[found["eee"]]} if found.get("eee") in _EEE else {}
    return {name: value for name, value in found.items() if value != "n/a"}


def settings(interface: str, table: str, namespace: str | None = None) -> dict[str, str]:
    """What a card says that is in a network namespace; nothing if it has no such table.

    None is this process's own namespace. Raises `MachineError` when `ethtool` is missing.
    """
    told = _host(namespace).run(["ethtool", SHOW[table], interface], check=False)
    return parse(table, told.stdout) if told.status == 0 else {}


def _host(namespace: str | None) -> LocalHost:
    return LocalHost() if namespace is None else NamespaceHost(namespace)


@dataclass(frozen=True)
class CardSetting(Resource):
    """Settings of one table of a network card, made at once: some are only allowed together."""

    kind: ClassVar[str] = "card setting"

    interface: str
    table: str
    """A key of `SHOW`."""
    values: Mapping[str, str]
    """By the names that `ethtool` changes them by."""
    namespace: str | None = None
    """Where the card is; None for this process's own namespace."""

    @property
    def label(self) -> str:
        return " ".join(["ethtool", CHANGE[self.table], self.interface, *self._words(self.values)])

    @property
    def claims(self) -> Sequence[str]:
        return [f"{self.table} of card {self.interface}"] if self.namespace is None else ()

    def read(self) -> dict[str, Any]:
        """Each setting as it is; those that the card does not have are left out.

        With the number of queues, also where their work is done, the `places`, and how packets are
        spread over them, the `table`; that also with the number of those they are spread over.
        """
        found: dict[str, Any] = self._now()
        if found and self.table == _QUEUES:
            found["places"] = places(self.interface, self.namespace)
        if found and self.table in (_QUEUES, _SPREAD):
            found |= {name: text for name, text in self._spread().items() if name == "table"}
        return found

    def plan(self) -> dict[str, str]:
        return dict(self.values)

    def apply(self) -> None:
        before = self.read()
        differing = {
            name: value for name, value in self.values.items() if before.get(name) != value
        }
        try:
            self._change(differing)
        except MachineError:
            if not self._spread_over_fewer(before):
                raise
            self._change(differing)
        if "places" in before:
            put_back(self.interface, before["places"], self.namespace)
        after = self._now()
        for name, value in self.values.items():
            if after.get(name) != value:
                said = after.get(name, "not there")
                raise MachineError(f"{name} should be {value}, but is {said}").at(self.label)

    def undo(self, old: Mapping[str, Any], applied: None = None) -> str | None:
        """Make those that still are as we made them what they were before.

        Over which queues packets are spread is not put back by its number, but as it was.
        """
        now = self._now()
        back: dict[str, str] = {}
        changed: list[str] = []
        for name, value in now.items():
            before = old.get(name, value)
            if value == self.values[name] != before:
                back[name] = before
            elif value != before:
                changed.append(f"{name} ({value}, before tailtap {before})")
        if self.table != _SPREAD:
            self._change(back)
        if not changed:
            if any(old.get(name) != self.values[name] for name in now):
                self._put_back(old)
            return None
        names = ", ".join(changed)
        return f"somebody else changed {self.interface}'s {names}: it is left as it is"

    def pending(self, old: Mapping[str, Any], applied: None = None) -> bool:
        return any(value != old.get(name, value) for name, value in self.read().items())

    def _now(self) -> dict[str, str]:
        found = settings(self.interface, self.table, self.namespace)
        return {name: found[name] for name in self.values if name in found}

    def _spread(self) -> dict[str, str]:
        return settings(self.interface, _SPREAD, self.namespace)

    def _spread_over_fewer(self, before: Mapping[str, Any]) -> bool:
        """Spread packets over as many queues as there are to be: with a table that somebody has
        set, the kernel refuses fewer.
        """
        if self.table != _QUEUES or "table" not in before:
            return False
        count = self.values.get("combined", self.values.get("rx", "0"))
        if max(map(int, before["table"].split())) < int(count) or count == "0":
            return False
        CardSetting(self.interface, _SPREAD, {"equal": count}, self.namespace).apply()
        return True

    def _put_back(self, before: Mapping[str, Any]) -> None:
        """What a change of the settings has changed beside them."""
        if "places" in before:
            put_back(self.interface, before["places"], self.namespace)
        if "table" in before and (now := self._spread()).get("table") not in (
            None,
            before["table"],
        ):
            set_table(self.interface, before["table"], int(now["max equal"]), self.namespace)

    def _change(self, values: Mapping[str, str]) -> None:
        if values:  # ethtool calls a change of nothing a failure
            words = self._words(values)
            _host(self.namespace).run(["ethtool", CHANGE[self.table], self.interface, *words])

    @staticmethod
    def _words(values: Mapping[str, str]) -> list[str]:
        return [word for pair in values.items() for word in pair]


@dataclass(frozen=True)
class CardQueues(Resource):
    """The number of queues of a card in the lab, each with an interrupt for receiving.

    Cards that send and receive through the same queues call them combined. Changing their number
    takes the link down for a moment.
    """

    kind: ClassVar[str] = "card queues"

    namespace: str
    port: str
    count: int

    @property
    def label(self) -> str:
        return f"{self.count} queues of {self.namespace}/{self.port}"

    def read(self) -> dict[str, Any]:
        """How many queues of each kind there are, and what `CardSetting` reads beside; nothing for
        a card that has no choice.
        """
        return self._setting(_kinds_of(self._told())).read()

    def plan(self) -> dict[str, str]:
        return dict.fromkeys(_kinds_of(self._told()), str(self.count))

    def apply(self) -> None:
        told = self._told()
        kinds = _kinds_of(told)
        most = min((int(told[f"max {name}"]) for name in kinds), default=1)
        if self.count > most:
            raise MachineError(
                f"dut.queues: {self.count}: the card at {self.port} has {most} at most: take fewer"
            )
        if kinds:
            self._setting(kinds).apply()

    def undo(self, old: Mapping[str, Any], applied: None = None) -> str | None:
        return self._setting(name for name in old if name not in _BESIDE).undo(old) if old else None

    def pending(self, old: Mapping[str, Any], applied: None = None) -> bool:
        return any(value != old.get(name, value) for name, value in self.read().items())

    def _told(self) -> dict[str, str]:
        return settings(self.port, "channels", self.namespace)

    def _setting(self, kinds: Iterable[str]) -> CardSetting:
        values = dict.fromkeys(kinds, str(self.count))
        return CardSetting(self.port, "channels", values, self.namespace)


def _kinds_of(told: Mapping[str, str]) -> list[str]:
    """The kinds of queues that a card receives and sends through."""
    kinds = ["combined"] if int(told.get("max combined", "0")) else ["rx", "tx"]
    return [name for name in kinds if name in told and int(told.get(f"max {name}", "0"))]
