"""Taking a trace: how much of it is kept in memory, who writes what is more, and its files.

A writer that wakes while packets are sent takes a core from whoever sends or serves them. So there
is room for what a run records, and nothing is written before its last packet has passed. A trace
that does not fit is written meanwhile, on a CPU that neither sends nor serves where there is one.

``trace.json`` says what ``trace.events`` is. It is written when the latter is complete: a trace
without it was cut off. A trace in a row of files is one pair after the other:
``trace-00001.events``, ``trace-00001.json``, and so on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tailtap.base.errors import Check, Findings, MachineError, TailtapError
from tailtap.base.files import write_json
from tailtap.base.units import format_share
from tailtap.host.facts import machine as facts
from tailtap.host.facts.needs import missing_capabilities, require_programs
from tailtap.host.facts.timekeeping import require_kernel_clock
from tailtap.lab.instruments.observing import Reading, Scope, Tracing
from tailtap.lab.served import Server, server_records
from tailtap.records.record import Notice, as_json, parsed
from tailtap.records.run import Facts
from tailtap.records.trace import Taken, TraceRecord, UsualPasses
from tailtap.remote.local import STOP_SECONDS, LocalHost, Process

USED = 2
"""The tracer begins to write when half of the room is used."""

SPARE = 65_536
"""Records that a run has whatever it sends: ticks, tasks, what the tracer itself causes."""

STEERED, THIN, FULL = 2, 5, 8
"""Records for each packet, with a margin: in a thin trace where usual packets have none, in any
other one, and in a full one."""

RECORD_BYTES = 32

SHARE = 8
"""The rings of all CPUs take an eighth of the memory that is available at most."""

LEAST, MOST = 1 << 16, 1 << 26
"""Bounds of the records of a ring; the latter is the tracer's."""


@dataclass(frozen=True)
class Room:
    """What a trace has of memory and of CPUs."""

    records: int
    """What each CPU's ring holds, a power of two."""
    whole: bool
    """Whether all that a run records fits, so that nothing is written while packets are sent."""
    cpu: int | None
    """Where the writer runs; None where every CPU sends or serves."""

    def bytes(self, cpus: int) -> int:
        """What the rings of so many CPUs take."""
        return self.records * RECORD_BYTES * cpus

    def sentence(self, cpus: int) -> str:
        """What `tailtap run --check` says of it."""
        mib = self.bytes(cpus) >> 20
        size = f"trace: {mib} MiB hold {self.records:,} records of each CPU"
        if self.whole:
            return f"{size}; nothing is written before the last packet"
        if self.cpu is not None:
            return f"{size}, and a run may have more: they are written meanwhile on CPU {self.cpu}"
        return (
            f"{size}, and a run may have more: they are written meanwhile on a CPU that sends or "
            "serves, as there is no other, and that makes packets late; shorter runs do not need it"
        )


def room_of(
    packets: int,
    mode: str,
    *,
    steered: bool,
    cpus: int,
    spare: int | None,
    memory: int | None = None,
) -> Room:
    """The room of a run that sends so many packets, on a machine with so much free `memory`.

    `cpus` is how many CPUs are traced, and `spare` one that neither sends nor serves. Unless given,
    the memory is what is free now.
    """
    wanted = records_of(packets, mode, steered=steered)
    if memory is None:
        memory = facts.memory("MemAvailable")
    most = MOST if memory is None else memory // SHARE // RECORD_BYTES // max(1, cpus)
    held = min(wanted, max(LEAST, min(MOST, 1 << max(0, most.bit_length() - 1))))
    return Room(held, held == wanted, spare)


def records_of(packets: int, mode: str, *, steered: bool = False) -> int:
    """What the ring of a CPU should hold for so many packets, a power of two."""
    each = FULL if mode == "full" else STEERED if steered else THIN
    return 1 << (USED * (packets * each + SPARE) - 1).bit_length()


def spare_cpu(available: Collection[int], busy: Collection[int]) -> int | None:
    """A CPU of those `available` that is not `busy`, the last one; None where there is none."""
    return max(set(available) - set(busy), default=None)


READY_SECONDS = 30.0
"""How long loading the programs may take."""


def trace_device(scope: Scope) -> Following | None:
    """One process that follows the DuT's cores."""
    if scope.tracing is None or not scope.dut_cpus:
        return None
    return Following(scope.dut_cpus, scope.tracing)


def diagnose_tracer() -> Iterator[Check]:
    """What `tailtap doctor` says of it: load and attach all programs. Leaves nothing."""
    area, name = "instruments", "tracer"
    if os.geteuid() != 0 or missing_capabilities():
        yield Check(area, name, "untested", "only root can try it", "run it with sudo")
        return
    cpu = min(os.sched_getaffinity(0))
    try:
        with tempfile.TemporaryDirectory(prefix="tt-") as folder:
            following = Following([cpu], Tracing("full", Path(folder), 0, ()))
            trace = following.taken()
    except TailtapError as error:
        remedy = "CONFIG_DEBUG_INFO_BTF; tried on Linux 5.10, 6.1, 6.12 and 6.18"
        yield Check(area, name, "missing", str(error), remedy)
        return
    found = f"{len(trace.hooks)} tracepoints were followed"
    if trace.missing:
        remedy = "Linux 6.5 or newer; a trace says what it lacks"
        yield Check(
            area, name, "poor", f"{found}; {_lack(trace.missing, trace.substitutes)}", remedy
        )
    else:
        yield Check(area, name, "ok", found)


def foresee(mode: str, room: Room, cpus: int, findings: Findings) -> None:
    """Find out what a trace of so many CPUs would lack, and say where it is kept; makes nothing."""
    from tailtap import _core

    findings.notes.append(room.sentence(cpus))
    findings.ask(require_programs, "trace", "set trace: none")
    lacks = findings.ask(_core.trace_lacks, mode)
    if lacks is not None and lacks[0]:
        findings.notes.append(f"trace: {_lack(*lacks)}")


def _lack(missing: Sequence[str], substitutes: Sequence[str]) -> str:
    instead = f"; instead: {'; '.join(substitutes)}" if substitutes else ""
    return f"it lacks {'; '.join(missing)}{instead}"


class Following:
    """A tracer at work."""

    def __init__(self, cpus: Sequence[int], tracing: Tracing) -> None:
        """Returns when all its programs are attached. Raises `MachineError`."""
        host = LocalHost()
        self._room = room_of(
            tracing.packets,
            tracing.mode,
            steered=tracing.steered,
            cpus=len(cpus),
            spare=tracing.spare,
        )
        command = [*host.program, "trace", "--cpus", ",".join(map(str, cpus))]
        command += ["--out", str(tracing.folder), "--mode", tracing.mode]
        command += ["--records", str(self._room.records), "--flush", "0 s", "--json"]
        if self._room.cpu is not None:
            command += ["--cpu", str(self._room.cpu)]
        for server in tracing.served:
            command += ["--served", str(server)]
        if tracing.senders:
            command += ["--senders", ",".join(map(str, tracing.senders))]
        if tracing.networks:
            command += ["--networks", ",".join(map(str, tracing.networks))]
        if tracing.steered:
            command.append("--steered")
        self._process = host.start(command).ready(READY_SECONDS)

    def sources(self) -> Sequence[Process]:
        return [self._process]

    def trouble(self) -> str | None:
        return self._process.failure() if self._process.readable() else None

    def stop(self) -> Reading:
        trace = self.taken()
        warnings = [*warnings_of(trace), *written(trace, self._room)]
        return Reading(Facts(trace=trace), warnings, (EVENTS, RECORD))

    def taken(self) -> Taken:
        """Let it write what it holds, and end it. Raises `MachineError`."""
        self._process.interrupt()
        trace = ended(self._process, STOP_SECONDS)
        self._process.close()
        return trace

    def close(self) -> None:
        self._process.close()


def ended(process: Process, seconds: float) -> Taken:
    """What a tracer says at its end, within `seconds`. Raises `MachineError`."""
    return parsed(process.title, process.expect("done", seconds).get("trace"), Taken, MachineError)


def written(trace: Taken, room: Room) -> Iterator[Notice]:
    """Whether the trace was written where packets are sent or served."""
    if trace.writes and room.cpu is None:
        yield Notice(
            "trace-written",
            f"the trace was written {trace.writes} times while packets were sent: "
            f"more than {room.records // USED:,} records of a CPU came, and every CPU sends or "
            "serves",
        )


def warnings_of(trace: Taken, name: str = "the trace") -> Iterator[Notice]:
    """What a trace lacks; `name` is what it is called."""
    lost = {cpu: count for cpu, count in trace.lost.items() if count}
    if lost:
        counts = ", ".join(f"{count} of CPU {cpu}" for cpu, count in lost.items())
        yield Notice(
            "trace-lost",
            f"{name} had no room for {counts}: packets of that time are unexplained",
        )
    if trace.paused_ns:
        part = 1 - trace.paused_ns / max(1, trace.ended_ns - trace.started_ns)
        yield Notice(
            "trace-thinned",
            f"{name} covers {format_share(part)} of the time, to keep the budget",
        )
    if trace.missing:
        lack = _lack(trace.missing, trace.substitutes)
        yield Notice("trace-incomplete", f"of {name}: {lack}")


EVENTS, RECORD = "trace.events", "trace.json"

THIN_FLOOR_NS = 1000
"""Interrupts and softirqs that are shorter are added up in a thin trace."""


def take(
    folder: Path,
    cpus: Sequence[int],
    on_ready: Callable[[], object],
    *,
    senders: Sequence[int] = (),
    mode: str,
    floor_ns: int | None = None,
    served: Sequence[Server] = (),
    networks: Sequence[int] = (),
    steered: bool = False,
    records: int | None = None,
    rotate_ns: int | None = None,
    flush_ns: int | None = None,
    duration_ns: int | None = None,
    cpu: int | None = None,
    budget: float | None = None,
    measure_cost: bool = False,
) -> Taken:
    """Trace `cpus` into `folder` until SIGINT, SIGTERM or the duration.

    There is room for `records` of each CPU. `networks` are the inodes of the network
    namespaces whose packets softirqs serve, as far as that is known; `steered` says that they come
    by function calls of other CPUs alone. With `rotate_ns` a row of files is written, each for so
    long, and the last one is what is returned. Where the programs take more than `budget` of one
    core's time, nothing is traced for a part of the time. Raises `InputError`, `MachineError`.
    """
    from tailtap import _core

    require_kernel_clock()
    told = server_records(served, cpus)
    floor = (THIN_FLOOR_NS if mode == "thin" else 0) if floor_ns is None else floor_ns
    (folder / RECORD).unlink(missing_ok=True)
    keep = partial(
        _keep,
        mode=mode,
        cpus=list(cpus),
        senders=sorted(set(senders) - set(cpus)),
        floor_ns=floor,
        served=told,
    )
    path, report = _core.trace(
        folder / EVENTS,
        list(cpus),
        on_ready,
        senders=list(senders),
        mode=mode,
        floor_ns=floor,
        served=sorted({pid for one in served for pid in one.served.pids}),
        networks=list(networks),
        steered=steered,
        records=records,
        rotate_ns=rotate_ns,
        on_file=keep,
        flush_ns=flush_ns,
        duration_ns=duration_ns,
        cpu=cpu,
        budget=budget,
        measure_cost=measure_cost,
    )
    return keep(path, report)


def _keep(path: Path, report: Mapping[str, Any], **asked: Any) -> Taken:
    """Write what a complete file has beside it."""
    functions = {f"{int(at):#x}": name for at, name in report["functions"].items()}
    facts = {
        **report,
        **asked,
        "clock": "monotonic",
        "records": sum(report["kinds"].values()),
        "usual": {
            cpu: UsualPasses(passes=passes, half_ns=half)
            for cpu, (passes, half) in report["passes"].items()
        },
        "names": {name: report[name] for name in ("pids", "tasks", "irqs")}
        | {"functions": functions},
    }
    record = msgspec.convert(facts, TraceRecord)
    write_json(path.with_suffix(Path(RECORD).suffix), as_json(record))
    return msgspec.convert(facts, Taken)
