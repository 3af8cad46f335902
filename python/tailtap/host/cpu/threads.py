"""Threads of the kernel: which CPUs they may run on, and before whom."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text
from tailtap.base.proc import ALLOWED, status
from tailtap.base.units import parse_cpus
from tailtap.host.changes.resource import SameValue


def _is_still(number: str, name: str) -> bool:
    """Whether a thread has that name; any user can call a thread of theirs the same."""
    folder = Path("/proc", number)
    with contextlib.suppress(OSError):
        return folder.stat().st_uid in (0, os.geteuid()) and read_text(folder / "comm") == name
    return False


@dataclass(frozen=True)
class OfThreads(SameValue):
    """What threads of the kernel are to have, the same for all of them."""

    threads: Mapping[str, str]
    """Each thread's number, and its name: a number may be given to another one."""

    def called(self, place: str) -> str:
        return self.threads[place]


@dataclass(frozen=True)
class ThreadAffinity(OfThreads):
    """The CPUs that threads may run on."""

    kind: ClassVar[str] = "thread affinity"

    cpus: str

    @property
    def label(self) -> str:
        return f"CPUs {self.cpus} for {len(self.threads)} threads of the kernel"

    @property
    def claims(self) -> Sequence[str]:
        return [f"thread {number}" for number in self.threads]

    def read(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for number, name in self.threads.items():
            cpus = status(number).get(ALLOWED)
            if cpus is not None and _is_still(number, name):
                found[number] = cpus
        return found

    @property
    def wanted(self) -> str:
        return self.cpus

    def told(self, value: str) -> str:
        return f"CPUs {value}"

    def set(self, place: str, value: str) -> None:
        try:
            os.sched_setaffinity(int(place), parse_cpus(value))
        except ProcessLookupError:
            return
        except OSError as error:
            name = self.threads[place]
            raise MachineError(f"{name} cannot run on CPUs {value}: {error.strerror}") from error


@dataclass(frozen=True)
class ThreadPriority(OfThreads):
    """The real-time priority of threads (SCHED_FIFO)."""

    kind: ClassVar[str] = "thread priority"

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

    @property
    def wanted(self) -> list[int]:
        return [os.SCHED_FIFO, self.priority]

    def told(self, value: Sequence[int]) -> str:
        policy, priority = value
        names = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "FIFO", os.SCHED_RR: "round robin"}
        return f"policy {names.get(policy, policy)}, priority {priority}"

    def set(self, place: str, value: Sequence[int]) -> None:
        policy, priority = value
        try:
            os.sched_setscheduler(int(place), policy, os.sched_param(priority))
        except ProcessLookupError:
            return
        except OSError as error:
            name = self.threads[place]
            raise MachineError(
                f"{name} cannot have {self.told(value)}: {error.strerror}"
            ) from error
