"""What processors count of themselves (instructions, TLB misses, migrations); perf_event_open(2).

The events are those of the article on control groups and added latency. They are counted, not
sampled, on every CPU of the machine for as long as a measurement takes, and read where a window of
it begins and ends: in between, counting costs a processor nothing. Which CPUs a count is about,
its scope, is chosen when the window is over.

`perf stat` could count the same. But it moves itself to every CPU whose counters it switches on or
off, which adds a migration and three context switches to every CPU and window, and windows that
overlap take two sets of a processor's few counters.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import platform
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tailtap.host.cpu.cpus import FOLDER
from tailtap.lab.instruments.observing import Counters, Quiet, Reading, Scope, Warning
from tailtap.records import run as records
from tailtap.records.cpulist import parse_cpus
from tailtap.records.errors import MachineError
from tailtap.records.run import Facts

_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_DTLB, _MISS = 3, 1 << 16
EVENTS: Mapping[str, tuple[int, int]] = {
    "instructions": (_HARDWARE, 1),
    "branches": (_HARDWARE, 4),
    "dTLB-loads": (_CACHE, _DTLB),
    "dTLB-load-misses": (_CACHE, _DTLB | _MISS),
    "cpu-migrations": (_SOFTWARE, 4),
    "context-switches": (_SOFTWARE, 3),
}
"""Events as perf names them, by `type` and `config`; linux/perf_event.h. The last two are counted
by the kernel, wherever it runs; a migration is counted on the CPU that a task comes to."""

_SYSCALL: Mapping[str, int] = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open, for which the C library has no function."""
_ATTRIBUTES = struct.Struct("IIQQQQQIIQ")
"""The first version of `struct perf_event_attr`, which every kernel still takes."""
_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING
_CLOSE_ON_EXEC = 1 << 3
_COUNT = struct.Struct("QQQ")
_NO_COUNTER = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL)
"""What the kernel says when the processor has no such counter, or no hypervisor lends it one."""


class Count(NamedTuple):
    """A counter: its value, and for how long it was wanted and did count, in ns."""

    value: int
    wanted_ns: int
    counted_ns: int


@dataclass(frozen=True)
class Snapshot:
    """Every counter of every CPU at a moment of CLOCK_MONOTONIC; None for what has no counter."""

    at_ns: int
    by_cpu: Mapping[int, Mapping[str, Count | None]]


class Counting:
    """Counters of all online CPUs. Use it as a context: leaving closes them."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """`folder` stands in for the kernel's folder of CPUs in tests."""
        online = parse_cpus((folder / "online").read_text(encoding="ascii").strip())
        self._online = online
        self._counters: dict[int, dict[str, int | None]] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Counting:
        """Begin to count. Raises `MachineError` when this process must not."""
        with contextlib.ExitStack() as stack:
            for cpu, name in itertools.product(self._online, EVENTS):
                counter = _opened(*EVENTS[name], cpu)
                if counter is not None:
                    stack.callback(os.close, counter)
                self._counters.setdefault(cpu, {})[name] = counter
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all counters."""
        self._stack.close()

    def read(self) -> Snapshot:
        """All counters now. Each is read by an interrupt of its CPU, a few microseconds long."""
        at = time.monotonic_ns()
        by_cpu = {
            cpu: {name: _read(counter) for name, counter in counters.items()}
            for cpu, counters in self._counters.items()
        }
        return Snapshot(at, by_cpu)


def window(before: Snapshot, after: Snapshot, dut_cpus: Sequence[int] | None) -> records.Window:
    """What was counted between two readings, for ``run.json``.

    `events` are those of the DuT's CPUs, or of the whole machine where `dut_cpus` is None. None is
    for what cannot be counted, there or anywhere in the scope. A processor with fewer counters than
    events lets them take turns: `estimated` names the events that are projected from their turns.
    """
    by_cpu: dict[int, dict[str, int | None]] = {}
    estimated: set[str] = set()
    for cpu, counters in after.by_cpu.items():
        by_cpu[cpu] = {}
        for name, now in counters.items():
            then = before.by_cpu[cpu][name]
            by_cpu[cpu][name] = None if now is None or then is None else _between(then, now)
            if now is not None and now.counted_ns < now.wanted_ns:
                estimated.add(name)
    cpus = sorted(by_cpu) if dut_cpus is None else sorted(dut_cpus)
    return records.Window(
        scope="machine" if dut_cpus is None else "dut.cpus",
        cpus=cpus,
        elapsed_ns=after.at_ns - before.at_ns,
        events={name: _sum([by_cpu[cpu][name] for cpu in cpus]) for name in EVENTS},
        estimated=[name for name in EVENTS if name in estimated],
        by_cpu={str(cpu): events for cpu, events in by_cpu.items()},
    )


class ProcessorCounters:
    """What the processors counted of the DuT's CPUs while packets were sent."""

    def start(self, scope: Scope) -> Window | None:
        """Read the counters of the site; None where processors are not to be counted on."""
        return None if scope.counting is None else Window(scope.counting, scope.dut_cpus)


class Window(Quiet):
    """The counters from a moment on."""

    def __init__(self, counting: Counters, dut_cpus: Sequence[int]) -> None:
        """Begin now."""
        self._counting, self._cpus = counting, dut_cpus
        self._before = counting.read()

    def stop(self) -> Reading:
        """What was counted meanwhile."""
        counts = window(self._before, self._counting.read(), self._cpus)
        return Reading(Facts(counters={"run": counts}), missing(counts))


def missing(counts: records.Window) -> Sequence[Warning]:
    """A warning when a window lacks events that were asked for."""
    names = [name for name, count in counts.events.items() if count is None]
    if not names:
        return ()
    message = (
        f"this machine does not count {', '.join(names)} (a virtual machine often has no "
        "hardware counters): they are stored as missing"
    )
    return ({"code": "counters-missing", "message": message},)


def _between(then: Count, now: Count) -> int | None:
    value, wanted, counted = (after - before for before, after in zip(then, now, strict=True))
    if counted >= wanted:
        return value
    return round(value * wanted / counted) if counted else None


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _read(counter: int | None) -> Count | None:
    if counter is None:
        return None
    content = os.read(counter, _COUNT.size)
    # Nothing comes from a counter that its processor cannot take at all.
    return Count(*_COUNT.unpack(content)) if len(content) == _COUNT.size else None


def _opened(kind: int, config: int, cpu: int) -> int | None:
    """The descriptor of one counter of one CPU, whoever works there; None where there is none."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise MachineError(
            f"counters: true: tailtap cannot count on {platform.machine()}: set counters: false"
        )
    content = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, config, 0, 0, _TIMES, 0, 0, 0, 0)
    attributes = ctypes.create_string_buffer(content, _ATTRIBUTES.size)
    library = ctypes.CDLL(None, use_errno=True)
    every_process, no_group = -1, -1
    descriptor: int = library.syscall(
        number, attributes, every_process, cpu, no_group, ctypes.c_ulong(_CLOSE_ON_EXEC)
    )
    if descriptor >= 0:
        return descriptor
    number_of_error = ctypes.get_errno()
    if number_of_error in _NO_COUNTER:
        return None
    raise MachineError(
        f"counters: true: cannot count on CPU {cpu}: {os.strerror(number_of_error)}: run it as "
        "root with CAP_PERFMON, on a kernel with CONFIG_PERF_EVENTS, or set counters: false"
    )
