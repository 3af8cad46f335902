"""Threads of the kernel: which CPUs they may run on, and before whom."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_cpus
from tailtap.host.changes.resource import Resource, read_text


def allowed(status: str) -> str | None:
    """The CPUs in what ``/proc/PID/status`` says, as the kernel writes them."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return value.strip()
    return None


def _is_still(number: str, name: str) -> bool:
    """Whether a thread has that name; any user can call a thread of theirs the same."""
    folder = Path("/proc", number)
    with contextlib.suppress(OSError):
        return folder.stat().st_uid in (0, os.geteuid()) and read_text(folder / "comm") == name
    return False


@dataclass(frozen=True)
class ThreadAffinity(Resource):
    """The CPUs that threads may run on, the same for all of them."""

    kind: ClassVar[str] = "thread affinity"

    threads: Mapping[str, str]
    """Each thread's number, and its name: a number may be given to another one."""
    cpus: str
    """As the kernel writes them."""

    @property
    def label(self) -> str:
        return f"CPUs {self.cpus} for {len(self.threads)} threads of the kernel"

    @property
    def claims(self) -> Sequence[str]:
        return [f"thread {number}" for number in self.threads]

    def read(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for number, name in self.threads.items():
            cpus = allowed(read_text(Path("/proc", number, "status")) or "")
            if cpus is not None and _is_still(number, name):
                found[number] = cpus
        return found

    def plan(self) -> dict[str, str]:
        return dict.fromkeys(self.threads, self.cpus)

    def apply(self) -> None:
        """Move them. Raises `MachineError` for one that the kernel does not let go."""
        for number, cpus in self.read().items():
            if cpus != self.cpus:
                self._move(number, self.cpus)
        for number, cpus in self.read().items():
            if cpus != self.cpus:
                raise MachineError(
                    f"{self.threads[number]} should run on CPUs {self.cpus}, but the kernel says "
                    f"{cpus}"
                )

    def undo(self, old: Mapping[str, str], applied: None = None) -> str | None:
        changed: list[str] = []
        for number, cpus in self.read().items():
            before = old.get(number, cpus)
            if cpus == self.cpus != before:
                self._move(number, before)
            elif cpus != before:
                changed.append(f"{self.threads[number]} ({cpus}, before tailtap {before})")
        if not changed:
            return None
        return f"somebody else moved {', '.join(changed)}: it is left as it is"

    def pending(self, old: Mapping[str, str], applied: None = None) -> bool:
        return any(cpus != old.get(number, cpus) for number, cpus in self.read().items())

    def _move(self, number: str, cpus: str) -> None:
        try:
            os.sched_setaffinity(int(number), parse_cpus(cpus))
        except ProcessLookupError:
            return
        except OSError as error:
            name = self.threads[number]
            raise MachineError(f"{name} cannot run on CPUs {cpus}: {error.strerror}") from error


@dataclass(frozen=True)
class ThreadPriority(Resource):
    """The real-time priority of threads (SCHED_FIFO), the same for all of them."""

    kind: ClassVar[str] = "thread priority"

    threads: Mapping[str, str]
    """Each thread's number, and its name: a number may be given to another one."""
    priority: int

    @property
    def label(self) -> str:
        return f"priority {self.priority} for {len(self.threads)} threads of the kernel"

    @property
    def claims(self) -> Sequence[str]:
        return [f"priority of thread {number}" for number in self.threads]

    def read(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, name in self.threads.items():
            if _is_still(number, name):
                with contextlib.suppress(ProcessLookupError):
                    policy = os.sched_getscheduler(int(number))
                    found[number] = [policy, os.sched_getparam(int(number)).sched_priority]
        return found

    def plan(self) -> dict[str, list[int]]:
        return {number: [os.SCHED_FIFO, self.priority] for number in self.threads}

    def apply(self) -> None:
        """Set it. Raises `MachineError` when the kernel says otherwise."""
        wanted = [os.SCHED_FIFO, self.priority]
        for number, now in self.read().items():
            if now != wanted:
                self._set(number, wanted)
        for number, now in self.read().items():
            if now != wanted:
                raise MachineError(
                    f"{self.threads[number]} should have priority {self.priority}, but the kernel "
                    f"says {_order(now)}"
                )

    def undo(self, old: Mapping[str, list[int]], applied: None = None) -> str | None:
        changed: list[str] = []
        for number, now in self.read().items():
            before = old.get(number, now)
            if now == [os.SCHED_FIFO, self.priority] != before:
                self._set(number, before)
            elif now != before:
                name = self.threads[number]
                changed.append(f"{name} ({_order(now)}, before tailtap {_order(before)})")
        if not changed:
            return None
        return f"somebody else changed {', '.join(changed)}: it is left as it is"

    def pending(self, old: Mapping[str, list[int]], applied: None = None) -> bool:
        return any(now != old.get(number, now) for number, now in self.read().items())

    def _set(self, number: str, order: Sequence[int]) -> None:
        policy, priority = order
        try:
            os.sched_setscheduler(int(number), policy, os.sched_param(priority))
        except ProcessLookupError:
            return
        except OSError as error:
            name = self.threads[number]
            raise MachineError(f"{name} cannot have {_order(order)}: {error.strerror}") from error


def _order(order: Sequence[int]) -> str:
    """A policy and a priority as people say them."""
    policy, priority = order
    names = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "FIFO", os.SCHED_RR: "round robin"}
    return f"policy {names.get(policy, policy)}, priority {priority}"
