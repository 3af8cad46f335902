"""What processors and the kernel count (instructions, TLB misses, migrations); perf_event_open(2).

Events (`events.py`) are counted, not sampled, on every CPU of the machine for as long as a
measurement takes, and read where a window of it begins and ends: in between, counting costs a
processor nothing. Which CPUs a count is about, its scope, is chosen when the window is over. What a
control group does is counted by counters of its own, as the group is there during the run alone.
Interrupts and softirqs by kind, which the kernel counts anyway, are read at the same moments.

`perf stat` could count the same. But it moves itself to every CPU whose counters it switches on or
off, which adds a migration and three context switches to every CPU and window, and windows that
overlap take two sets of a processor's few counters.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import errno
import os
import platform
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tailtap.base.errors import Findings, MachineError
from tailtap.base.units import parse_cpus
from tailtap.host.cpu.cpus import FOLDER
from tailtap.lab.instruments.events import Encoding, Events, encodings
from tailtap.lab.instruments.observing import Counters, Quiet, Reading, Scope
from tailtap.records import run as records
from tailtap.records.interrupts import kind_of, parse_interrupts, parse_softirqs
from tailtap.records.record import Notice
from tailtap.records.run import Facts

PROC = Path("/proc")
SOURCES = Path("/sys/bus/event_source/devices")
_SYSCALL: Mapping[str, int] = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open, for which the C library has no function."""
_ATTRIBUTES = struct.Struct("IIQQQQQIIQQ")
"""The second version of `struct perf_event_attr`, which every kernel since 2.6.33 takes."""
_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING
_OF_GROUP, _CLOSE_ON_EXEC = 1 << 2, 1 << 3
_COUNT = struct.Struct("QQQ")
_NO_COUNTER = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL)
"""What the kernel says when the processor has no such counter, or no hypervisor lends it one."""
_WRAP = 1 << 32
"""The kernel counts each interrupt of each CPU in 32 bits (kstat_irqs_cpu())."""


class Count(NamedTuple):
    """A counter: its value, and for how long it was wanted and did count, in ns."""

    value: int
    wanted_ns: int
    counted_ns: int


@dataclass(frozen=True)
class Snapshot:
    """Every counter of every CPU at a moment of CLOCK_MONOTONIC."""

    at_ns: int
    events: Sequence[str]
    """All that is counted, in the order of the request."""
    by_cpu: Mapping[int, Mapping[str, Sequence[Count | None]]]
    """Nothing for what has no counter there; several counts are parts of one event. An event that
    one CPU counts for many is missing on the others."""
    kinds: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


class Counting:
    """Counters of all online CPUs. Use it as a context: leaving closes them."""

    def __init__(self, asked: Events, folder: Path = FOLDER, sources: Path = SOURCES) -> None:
        """Of everything on the CPUs. The folders of the kernel are others in tests.

        Raises `InputError` for an event that is not known here, `MachineError` where nobody can
        tell.
        """
        self.asked = asked
        self._online = parse_cpus((folder / "online").read_text(encoding="ascii").strip())
        self._events = encodings(asked.events)
        self._apart = _counted_by(sources)
        self._groups: Sequence[Path] = ()
        self._counters: dict[int, dict[str, list[int]]] = {}
        self._stack = contextlib.ExitStack()

    def of_groups(self, groups: Sequence[Path]) -> Counting:
        """Counters of the same events, of what these control groups do on any CPU."""
        found = copy.copy(self)
        found._groups, found._counters = groups, {}
        found._stack = contextlib.ExitStack()
        return found

    def __enter__(self) -> Counting:
        """Begin to count. Raises `MachineError` when this process must not."""
        with contextlib.ExitStack() as stack, contextlib.ExitStack() as folders:
            groups: list[int] = []
            for group in self._groups:
                groups.append(os.open(group, os.O_RDONLY | os.O_CLOEXEC))
                folders.callback(os.close, groups[-1])
            for cpu in self._online:
                counters = self._counters[cpu] = {}
                for name, rows in self._events.items():
                    here = [row for row in rows if cpu in self._apart.get(row.kind, (cpu,))]
                    if not here:
                        continue
                    counters[name] = []
                    for row in here:
                        for whose in groups or (None,):
                            counter = _opened(row, cpu, whose)
                            if counter is not None:
                                stack.callback(os.close, counter)
                                counters[name].append(counter)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def read(self) -> Snapshot:
        """All counters now. Each is read by an interrupt of its CPU, a few microseconds long."""
        at = time.monotonic_ns()
        by_cpu = {
            cpu: {name: [_read(one) for one in several] for name, several in counters.items()}
            for cpu, counters in self._counters.items()
        }
        return Snapshot(at, list(self._events), by_cpu, {} if self._groups else _kinds())


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
            pairs = list(zip(before.by_cpu[cpu][name], now, strict=True))
            by_cpu[cpu][name] = _sum(
                None if one is None or then is None else _between(then, one) for then, one in pairs
            )
            if any(one is not None and one.counted_ns < one.wanted_ns for one in now):
                estimated.add(name)
    kinds = {
        cpu: {
            kind: rises
            for kind, count in counts.items()
            if (rises := (count - before.kinds[cpu].get(kind, 0)) % _WRAP)
        }
        for cpu, counts in after.kinds.items()
        if cpu in before.kinds and cpu in by_cpu
    }
    cpus = sorted(by_cpu) if dut_cpus is None else sorted(dut_cpus)
    both: Counter[str] = Counter()
    for cpu in cpus:
        both.update(kinds.get(cpu, {}))
    return records.Window(
        scope="machine" if dut_cpus is None else "dut.cpus",
        cpus=cpus,
        elapsed_ns=after.at_ns - before.at_ns,
        events={
            name: _sum(by_cpu[cpu][name] for cpu in cpus if name in by_cpu[cpu])
            for name in after.events
        },
        estimated=[name for name in after.events if name in estimated],
        by_cpu={str(cpu): events for cpu, events in by_cpu.items()},
        kinds=dict(sorted(both.items())),
        kinds_by_cpu={str(cpu): counts for cpu, counts in kinds.items()},
    )


def processor_counters(scope: Scope) -> Window | None:
    """What was counted of the DuT while packets were sent."""
    return None if scope.counting is None else Window(scope.counting, scope)


class Window(Quiet):
    """The counters from a moment on."""

    def __init__(self, counting: Counters, scope: Scope) -> None:
        """Begin now. Raises `MachineError` where a control group cannot be counted."""
        self._asked, self._scope = counting.asked, scope
        self._stack = contextlib.ExitStack()
        self._counting = counting
        if self._asked.by == "group":
            if not scope.groups:
                raise MachineError(
                    "counters.by: group: the DuT has no control group by which events are counted: "
                    "mount cgroup2, or choose cpu"
                )
            self._counting = self._stack.enter_context(counting.of_groups(scope.groups))
        self._before = self._counting.read()

    def stop(self) -> Reading:
        cpus = self._scope.dut_cpus if self._asked.by == "cpu" else None
        counts = window(self._before, self._counting.read(), cpus)
        self.close()
        if self._asked.by == "group":
            groups = [str(group) for group in self._scope.groups]
            counts = replace(counts, scope="group", groups=groups)
        return Reading(Facts(counters={"run": counts}), missing(counts))

    def close(self) -> None:
        self._stack.close()


def missing(counts: records.Window) -> Sequence[Notice]:
    """A warning when a window lacks events that were asked for."""
    names = [name for name, count in counts.events.items() if count is None]
    if not names:
        return ()
    message = f"this machine does not count {', '.join(names)}{LACKING}: they are stored as missing"
    return (Notice("counters-missing", message),)


LACKING = " (a virtual machine often has no hardware counters)"


def foresee(asked: Events, findings: Findings) -> None:
    """Whether this process may count, and which events this machine does not count."""
    counting = findings.ask(Counting, asked)
    lacking = findings.ask(_uncounted, counting) if counting is not None else None
    if lacking:
        findings.notes.append(
            f"counters: this machine does not count {', '.join(lacking)}{LACKING}: they will be "
            "missing in each run"
        )


def _uncounted(counting: Counting) -> list[str]:
    with counting:
        before = counting.read()
        events = window(before, counting.read(), None).events
    return [name for name, count in events.items() if count is None]


def _counted_by(sources: Path) -> Mapping[int, Collection[int]]:
    """The CPUs at which sources of events that are no CPU's own are counted, by their types."""
    found: dict[int, Collection[int]] = {}
    for mask in sources.glob("*/cpumask"):
        kind = mask.with_name("type").read_text(encoding="ascii")
        found[int(kind)] = parse_cpus(mask.read_text(encoding="ascii").strip())
    return found


def _kinds() -> dict[int, dict[str, int]]:
    """Interrupts and softirqs since boot by CPU and kind."""
    found: dict[int, Counter[str]] = {}
    for name, parse in (("interrupts", parse_interrupts), ("softirqs", parse_softirqs)):
        listing = parse((PROC / name).read_text(encoding="ascii", errors="backslashreplace"))
        for label, count in zip(listing.labels, listing.values, strict=True):
            told = kind_of(label)
            if told is not None:
                cpu, kind = told
                found.setdefault(cpu, Counter())[kind] += count
    return {cpu: dict(counts) for cpu, counts in found.items()}


def _between(then: Count, now: Count) -> int | None:
    value, wanted, counted = (after - before for before, after in zip(then, now, strict=True))
    if counted >= wanted:
        return value
    return round(value * wanted / counted) if counted else None


def _sum(counts: Iterable[int | None]) -> int | None:
    """None where one is missing, or all are."""
    every = list(counts)
    known = [count for count in every if count is not None]
    return sum(known) if known and len(known) == len(every) else None


def _read(counter: int) -> Count | None:
    content = os.read(counter, _COUNT.size)
    # Nothing comes from a counter that its processor cannot take at all.
    return Count(*_COUNT.unpack(content)) if len(content) == _COUNT.size else None


def _opened(event: Encoding, cpu: int, group: int | None) -> int | None:
    """The descriptor of one counter of one CPU, of whoever works there or of a control group that
    is open; None where there is none.
    """
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise MachineError(
            f"counters: tailtap cannot count on {platform.machine()}: set counters: false"
        )
    content = _ATTRIBUTES.pack(
        event.kind, _ATTRIBUTES.size, event.config, 0, 0, _TIMES, event.flags, 0, event.access,
        event.config1, event.config2,
    )  # fmt: skip
    attributes = ctypes.create_string_buffer(content, _ATTRIBUTES.size)
    library = ctypes.CDLL(None, use_errno=True)
    every_process, no_leader = -1, -1
    whose, flags = (every_process, 0) if group is None else (group, _OF_GROUP)
    descriptor: int = library.syscall(
        number, attributes, whose, cpu, no_leader, ctypes.c_ulong(_CLOSE_ON_EXEC | flags)
    )
    if descriptor >= 0:
        return descriptor
    number_of_error = ctypes.get_errno()
    if number_of_error in _NO_COUNTER:
        return None
    raise MachineError(
        f"counters: cannot count on CPU {cpu}: {os.strerror(number_of_error)}: run it as "
        "root with CAP_PERFMON, on a kernel with CONFIG_PERF_EVENTS, or set counters: false"
    )
