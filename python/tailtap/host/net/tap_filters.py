"""Filters of tc that taps left which were killed, before Linux 6.6.

Newer kernels remove a tap's program with its process. Older ones have filters, which stay; nobody
enters these in a journal, as `tailtap observe` changes nothing that a journal would have to undo
where it ends by itself. They are known by their place and by the names of their programs, and left
by who is gone: no process holds the program any more.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from glob import iglob
from pathlib import Path
from typing import Any, ClassVar, Literal

from tailtap.base.errors import MachineError
from tailtap.host.changes.resource import Resource, Value
from tailtap.host.changes.systemd import network_at
from tailtap.host.facts.machine import entries, kernel_at_least
from tailtap.host.net.inside import NAMESPACES, inside_those_left
from tailtap.host.net.namespaces import shown
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

WITH_LINKS = (6, 6)
"""From this version of Linux on a tap's program goes with its process."""
PREFERENCE = 1
MADE = 1 << 16
"""In the handle of a filter whose tap made the queueing discipline as well."""
PROGRAMS = ("tap", "receipt", "tap_filter", "receipt_filter")
HANDLES = {int.from_bytes(name[:2].encode()) for name in PROGRAMS}
"""The lower half of a handle: crates/datapath/src/bpf/filter.rs."""
OWN = "/proc/self/ns/net"
_HELD = re.compile(r"^prog_id:\s*(\d+)$", re.MULTILINE)

Hook = Literal["ingress", "egress"]


@dataclass(frozen=True)
class TapFilter(Resource):
    """A filter that a tap left which was killed."""

    kind: ClassVar[str] = "tap-filter"

    namespace: str
    interface: str
    hook: Hook
    handle: int

    @property
    def label(self) -> str:
        where = "" if self.namespace == OWN else f" in {self.namespace}"
        return f"{self.interface} {self.hook}{where}"

    def read(self) -> bool:
        here = [(self.namespace, partial(_filters, [self.interface]))]
        [found] = inside_those_left(here, ())
        return any((self.interface, self.hook, self.handle) == one[:3] for one in found)

    def plan(self) -> Value:
        return False

    def apply(self) -> None:
        raise MachineError("only a tap attaches its filter").at(self.label)

    def undo(self, old: Value, applied: Value = None) -> None:
        """Remove it, and the queueing discipline if its tap made that and nobody else uses it."""
        if not old:
            inside_those_left([(self.namespace, self._remove)], None)

    def _remove(self) -> None:
        where = ["dev", self.interface]
        chosen = [self.hook, "protocol", "all", "pref", str(PREFERENCE)]
        chosen += ["handle", f"{self.handle:#x}", "bpf"]
        try:
            LocalHost().run(["tc", "filter", "del", *where, *chosen])
        except CommandFailed:
            if any((self.interface, self.hook, self.handle) == one[:3]
                   for one in _filters([self.interface])):  # fmt: skip
                raise
        if self.handle & MADE and not any(_shown(self.interface, hook) for hook in _HOOKS):
            LocalHost().run(["tc", "qdisc", "del", *where, "clsact"], check=False)

    @classmethod
    def existing(cls) -> Sequence[TapFilter]:
        return [] if kernel_at_least(WITH_LINKS) else list(left_behind())


_HOOKS: Sequence[Hook] = ("ingress", "egress")


def left_behind() -> Iterator[TapFilter]:
    """Those whose program no process holds, the ones that made their queueing discipline last."""
    found = []
    for namespace in _namespaces():
        with contextlib.suppress(MachineError):
            [filters] = inside_those_left([(namespace, _filters)], ())
            found += [
                (TapFilter(namespace, port, hook, handle), program)
                for port, hook, handle, program in filters
            ]
    held = _held() if found else set()
    found.sort(key=lambda one: bool(one[0].handle & MADE))
    yield from (one for one, program in found if program not in held)


def _namespaces() -> list[str]:
    found: dict[tuple[int, int], str] = {}
    for path in [Path(OWN), *entries(NAMESPACES), *Path("/proc").glob("[0-9]*/ns/net")]:
        if (network := network_at(path)) is not None:
            found.setdefault(network, str(path))
    return list(found.values())


def _filters(interfaces: Sequence[str] | None = None) -> list[tuple[str, Hook, int, int]]:
    """Filters that taps may have left in the namespace that this thread is in: interface, hook,
    handle and the number of the program.
    """
    if interfaces is None:
        interfaces = sorted({row["dev"] for row in shown("tc", "-json", "qdisc", "show")
                             if row.get("kind") == "clsact"})  # fmt: skip
    return [
        (interface, hook, handle, program)
        for interface in interfaces
        for hook in _HOOKS
        for handle, program in map(_of_tap, _shown(interface, hook))
        if handle
    ]


def _of_tap(row: dict[str, Any]) -> tuple[int, int]:
    """The handle and the program of a filter that is a tap's; zeros of any other."""
    options = row.get("options", {})
    program = options.get("prog", {})
    try:
        handle = int(str(options.get("handle", "0")), 0)
    except ValueError:
        return 0, 0
    is_ours = (
        row.get("pref") == PREFERENCE
        and handle & ~MADE in HANDLES
        and program.get("name") in PROGRAMS
    )
    return (handle, int(program.get("id", 0))) if is_ours else (0, 0)


def _shown(interface: str, hook: Hook) -> list[dict[str, Any]]:
    """All filters of a hook; a filter has a first row that says only where it is."""
    rows = shown("tc", "-json", "filter", "show", "dev", interface, hook)
    return [row for row in rows if "options" in row]


def _held() -> set[int]:
    """The numbers of the programs that processes hold."""
    found: set[int] = set()
    # That of pathlib fails where a process ends meanwhile.
    for path in iglob("/proc/[0-9]*/fdinfo/*"):  # noqa: PTH207
        with contextlib.suppress(OSError):  # it ended meanwhile
            found.update(map(int, _HELD.findall(Path(path).read_text(encoding="ascii"))))
    return found
