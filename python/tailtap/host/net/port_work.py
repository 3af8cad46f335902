"""Who does the work of a port: threads that poll it (threaded NAPI), or a card's interrupts.

Documentation/networking/napi.rst of the kernel: threaded. A veth port is only polled with generic
receive offload on, and then only for packets of a peer that cannot send segments to be cut
(veth_skb_is_eligible_for_gro in drivers/net/veth.c), or while an XDP program is attached to it.

From Linux 6.19 on these threads can poll without a pause (threaded busy polling). That is set of
each instance of NAPI, by netlink.

Before Linux 6.17 a card's threads stay when they are switched off, and are used again. Their name
is what the card was called when they were made. So a card gets them before it moves into a lab
(`cards.Card`): there it is called what any other card was called in the same place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text, set_value
from tailtap.base.proc import ALLOWED, status
from tailtap.base.units import parse_cpus
from tailtap.host.changes.kernel_values import same
from tailtap.host.changes.resource import Resource, Value, left_as_it_is
from tailtap.host.facts.machine import interrupt_numbers, kernel_at_least, kernel_release
from tailtap.host.net import nic
from tailtap.host.net.inside import inside
from tailtap.remote import CommandFailed, Host
from tailtap.remote.local import LocalHost, NamespaceHost

# The kernel threads of a port are called napi/PORT-NUMBER. Behind the name, the 17th word of stat
# is how nice it is; proc_pid_stat(5). A port may be a pattern.
_THREADS = """port=$1
for folder in /proc/[0-9]*; do
    read -r name < "$folder/comm" 2> /dev/null || continue
    case $name in napi/$port-*) ;; *) continue ;; esac
    read -r stat < "$folder/stat" 2> /dev/null || continue
    set -- ${stat##*) }
    echo "${folder#/proc/}" "${17}"
done"""
# Like the softirq that it replaces, such a thread has priority over other work.
URGENT = -20
_FILE = "/sys/class/net/{port}/threaded"
_ANY_PORT = "tt-*"
WITH_BUSY_POLL = (6, 19)
"""The first kernel whose threads can poll without a pause."""
_KTHREADD = "2"
"""The thread of the kernel that all others have their CPUs from."""


def poll_in_threads(host: Host, port: str, cpus: str, card: str | None = None) -> Sequence[str]:
    """Have `port` polled by threads on `cpus`, a list; empty: on any. The threads' numbers.

    `card` is what a network card is called on its own machine. Raises `MachineError` when this
    kernel cannot (before Linux 5.12), or nothing polls the port.
    """
    # A container shares the kernel and does not see its threads.
    kernel = host if host.own_kernel else LocalHost()
    reason = "there is no such thread"
    try:
        before = _threads(kernel, port)
        _write(host, port, "1")
        found = sorted(set(_threads(kernel, port)) - set(before))
        if not found and card is not None:
            found = sorted(_threads(kernel, card))
        # Other measurements have ports of the same name; their threads are urgent.
        found = found or _idle(before)
        if not found and card is not None:
            # Given other queues in a lab, a card has threads that are named after its place there.
            found = _idle(_threads(kernel, _ANY_PORT))
        for thread in found:
            kernel.run(["renice", "-n", str(URGENT), "-p", thread])
            if cpus:
                kernel.run(["taskset", "--pid", "--cpu-list", cpus, thread])
        if found:
            return found
    except CommandFailed as error:
        reason = error.reason
    where = f" on CPUs {cpus}" if cpus else ""
    raise MachineError(
        f"{port} of {host.name} cannot be polled by threads{where} (threaded NAPI, Linux 5.12): "
        f"{reason}"
    )


def require_busy_poll() -> None:
    """Raises `MachineError` unless this kernel's threads can poll without a pause."""
    if not kernel_at_least(WITH_BUSY_POLL):
        raise _no_busy_poll()


def _no_busy_poll() -> MachineError:
    return MachineError(
        f"dut.napi: busy-poll needs Linux 6.19 or newer, and this is {kernel_release()}: choose "
        "threads"
    )


def make_threads(card: str) -> None:
    """Have a network card of this machine polled by threads, which are named after it.

    Raises `MachineError` when this kernel cannot.
    """
    path = Path(_FILE.format(port=card))
    try:
        # sysfs lets nobody make a file, and calls that a lack of rights.
        reason = "" if path.exists() else f"there is no {path}"
        if not reason:
            set_value(path, "1")
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise MachineError(
            f"{card} cannot be polled by threads (threaded NAPI, Linux 5.12): {reason}"
        )


def _threads(kernel: Host, port: str) -> dict[str, int]:
    """How nice the threads of all ports of this name are, in whatever namespace."""
    told = kernel.run(["sh", "-c", _THREADS, "threads", port]).stdout
    rows = (line.split() for line in told.splitlines())
    return {thread: int(nice) for thread, nice in rows}


def _idle(threads: Mapping[str, int]) -> list[str]:
    return sorted(one for one, nice in threads.items() if nice != URGENT)


def _write(host: Host, port: str, value: str) -> None:
    file = _FILE.format(port=port)
    host.run(["sh", "-c", 'echo "$1" > "$2"', "threaded", value, file])


@dataclass(frozen=True)
class PortThreads(Resource):
    """Threads that poll a port of the lab, and nothing else, on `cpus`."""

    kind: ClassVar[str] = "port threads"

    namespace: str
    port: str
    cpus: str
    """As a list; empty: on any."""
    peer_namespace: str | None = None
    peer: str | None = None
    """The other end of a veth pair; None for a network card."""
    card: str | None = None
    """What a network card is called on its own machine; None for a veth port."""
    busy: bool = False

    @property
    def label(self) -> str:
        return f"threads of {self.namespace}/{self.port}"

    def read(self) -> dict[str, Any]:
        """Whether threads poll it, unless it is gone, and of a card how its `threads` run, and what
        polls each of its instances of NAPI (`napi`).
        """
        file = _FILE.format(port=self.port)
        told = NamespaceHost(self.namespace).run(["cat", file], check=False).stdout.strip()
        found: dict[str, Any] = {"threaded": told} if told else {}
        if self.card is not None:
            found["napi"] = self._polled()
            local = LocalHost()
            numbers = [*_threads(local, self.card), *_idle(_threads(local, self.port))]
            found["threads"] = {one: run for one in numbers if (run := _run_of(one)) is not None}
        return found

    def plan(self) -> dict[str, str]:
        return {"threaded": "1"}

    def apply(self) -> dict[str, Any]:
        """Make a veth port one that is polled, and have it polled: the `threads`.

        Raises `MachineError`.
        """
        host = NamespaceHost(self.namespace)
        if self.peer is not None and self.peer_namespace is not None:
            # They go with the pair, which is the lab's own.
            host.run(["ethtool", "-K", self.port, "gro", "on"])
            NamespaceHost(self.peer_namespace).run(["ethtool", "-K", self.peer, "tso", "off"])
        threads = list(poll_in_threads(host, self.port, self.cpus, self.card))
        if self.busy:
            try:
                self._poll(dict.fromkeys(self._polled(), nic.BUSY))
            except OSError as error:
                raise _no_busy_poll() from error
        return {"threads": threads}

    def undo(self, old: Mapping[str, Any], applied: Mapping[str, Any] | None = None) -> str | None:
        """Have it polled as before, by threads that run as before, unless somebody else moved them.

        Threads that were made for it get what the kernel gives to new ones, should they stay.
        """
        before = dict(old.get("threads", {}))
        kernel = status(_KTHREADD).get(ALLOWED)
        for number in (applied or {}).get("threads", ()):
            before.setdefault(number, [0, kernel])
        left = [said for number, run in before.items() if (said := self._back(number, run))]
        now = self.read().get("threaded", old.get("threaded"))
        if now != old.get("threaded"):
            _write(NamespaceHost(self.namespace), self.port, old["threaded"])
        self._poll(self._elsewise(old))
        return left_as_it_is(left)

    def pending(self, old: Mapping[str, Any], applied: Value = None) -> bool:
        now = self.read().get("threaded", old.get("threaded"))
        return (
            now != old.get("threaded")
            or bool(self._elsewise(old))
            or any(
                _run_of(number) not in (None, run) for number, run in old.get("threads", {}).items()
            )
        )

    def _polled(self) -> dict[str, int]:
        """What polls each of its instances of NAPI, as far as it is there and the kernel tells."""
        with contextlib.suppress(OSError, MachineError):
            [found] = inside(
                [(self.namespace, lambda: nic.polled(socket.if_nametoindex(self.port)))]
            )
            return {str(instance): by for instance, by in found.items()}
        return {}

    def _poll(self, wanted: Mapping[str, int]) -> None:
        """Have instances of NAPI polled so. Raises `OSError` where the kernel cannot."""
        inside((self.namespace, partial(nic.poll, int(one), by)) for one, by in wanted.items())

    def _elsewise(self, old: Mapping[str, Any]) -> dict[str, int]:
        """How its instances of NAPI were polled that are polled otherwise now."""
        before, now = old.get("napi", {}), self._polled() if old.get("napi") else {}
        return {one: by for one, by in before.items() if now.get(one, by) != by}

    def _back(self, number: str, before: Sequence[Any]) -> str | None:
        """Let a thread run as `before`; what it is if that is neither ours nor that, else None."""
        now = _run_of(number)
        if now is None or now == list(before):
            return None
        nice, cpus = now
        ours = not self.cpus or parse_cpus(cpus) == parse_cpus(self.cpus)
        if nice not in (URGENT, before[0]) or (not ours and cpus != before[1]):
            return f"thread {number} of {self.port} (nice {nice}, on CPUs {cpus})"
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(number), before[0])
            if before[1] is not None and cpus != before[1]:
                os.sched_setaffinity(int(number), parse_cpus(before[1]))
        return None


def _run_of(number: str) -> list[Any] | None:
    """How nice a polling thread is, and on which CPUs it may run; None when it has ended."""
    cpus = status(number).get(ALLOWED)
    if cpus is None or not (read_text(Path("/proc", number, "comm")) or "").startswith("napi/"):
        return None
    with contextlib.suppress(ProcessLookupError):
        return [os.getpriority(os.PRIO_PROCESS, int(number)), cpus]
    return None


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
