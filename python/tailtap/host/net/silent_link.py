"""An interface of the machine that is down for a while, such as that of its management.

While it is down nobody may be able to reach the machine. So two programs that nobody has to keep
alive are started before: one that takes it down and up again, and another one that brings it up
a little later, should the first be gone. Both end by themselves, whatever happens to who started
them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tailtap.base.errors import MachineError
from tailtap.host.changes.journal import Owner
from tailtap.host.changes.resource import Value
from tailtap.host.net.cards import OfCard, link
from tailtap.remote.local import LocalHost

LEAD_SECONDS = 1
"""How long after `SilentLink.apply` it goes down: until then an answer may leave by it."""
GRACE_SECONDS = 3
"""How much later the second program brings it up."""
LARGEST = 100_000
"""Characters of each of its tables: an argument of a program holds 131,071 (execve(2))."""
_SAVE = (
    'for kind in "-6 addr" "-4 route" "-6 route"; do what="save dev $1"; '
    'case $kind in *route) what="$what table all type unicast" ;; esac; '
    "ip $kind $what 2> /dev/null | base64 -w 0; echo; done"
)
"""Of routes those that somebody added: what the kernel makes of addresses it makes again."""
_UP = (
    'ip link set dev "$1" up; kept=$(mktemp); '
    'put() { printf %s "$1" | base64 -d > "$kept"; ip "$2" "$3" restore < "$kept"; }; '
    'put "$2" -6 addr; put "$3" -4 route; put "$4" -6 route; rm -f "$kept"; '
)
"""What is there already stays: the kernel removed the addresses of IP version 6, and routes. Routes
are restored from files only, as they are read several times.
"""
_DOWN_AND_UP = f'sleep "$5"; ip link set dev "$1" down; sleep "$6"; {_UP}'
_UP_LATER = f'sleep "$5"; {_UP}'


@dataclass(frozen=True)
class SilentLink(OfCard):
    """An interface that is down for some seconds, from `LEAD_SECONDS` after it is asked for on."""

    kind: ClassVar[str] = "silent-link"

    seconds: int

    def read(self) -> list[str]:
        """What it loses when it goes down: addresses of IP version 6, and routes of both versions.

        As ip-address(8) and ip-route(8) save them. Raises `MachineError` for an interface that is
        not there or not up.
        """
        row = link(None, self.interface)
        if row is None:
            raise MachineError(
                f"dut.silent: there is no interface {self.interface!r} on this machine (`ip link` "
                "lists them): name another one"
            )
        if "UP" not in row["flags"]:
            raise MachineError(f"dut.silent: {self.interface} is down already: leave it out")
        saved = LocalHost().run(["sh", "-c", _SAVE, "save", self.interface]).stdout
        found = saved.split("\n")[:3]
        if any(len(one) > LARGEST for one in found):
            raise MachineError(
                f"dut.silent: {self.interface} has more routes than can be put back: leave it out"
            )
        return found

    def plan(self) -> list[str]:
        return []

    def apply(self) -> list[dict[str, int]]:
        kept = self.read()
        latest = LEAD_SECONDS + self.seconds + GRACE_SECONDS
        return [
            _start(_UP_LATER, [self.interface, *kept, str(latest)]),
            _start(_DOWN_AND_UP, [self.interface, *kept, str(LEAD_SECONDS), str(self.seconds)]),
        ]

    def undo(self, old: list[str], applied: Value = None) -> None:
        programs = [Owner(**one) for one in applied or ()]
        for one in programs[1:]:
            _end(one)
        if link(None, self.interface) is not None:
            LocalHost().run(["sh", "-c", _UP, "up", self.interface, *old], check=False)
        for one in programs[:1]:
            _end(one)

    def pending(self, old: list[str], applied: Value = None) -> bool:
        row: Mapping[str, Any] | None = link(None, self.interface)
        if row is None:
            return False
        return "UP" not in row["flags"] or any(Owner(**one).alive for one in applied or ())


def _start(script: str, arguments: Sequence[str]) -> dict[str, int]:
    """Start a program that outlives this one; who it is."""
    started = subprocess.Popen(
        ["sh", "-c", script, "tt-silent", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return asdict(Owner.of(started.pid))


def _end(program: Owner) -> None:
    if program.alive:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # it is not this process's
        os.waitpid(program.pid, 0)
