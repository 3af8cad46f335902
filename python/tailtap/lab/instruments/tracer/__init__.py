"""What the kernel did on the DuT's cores during a run, by ``tailtap trace``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailtap.base.check import Check, Findings
from tailtap.base.errors import MachineError, TailtapError
from tailtap.base.units import format_share
from tailtap.host.changes.privileges import missing_capabilities
from tailtap.lab.instruments.observing import Reading, Scope, Tracing, Warning
from tailtap.lab.instruments.tracer.room import USED, Room, room_of
from tailtap.lab.instruments.tracer.taking import EVENTS, RECORD
from tailtap.records.record import parsed
from tailtap.records.run import Facts
from tailtap.records.trace import Taken
from tailtap.remote.local import LocalHost
from tailtap.remote.process import STOP_SECONDS, Process

READY_SECONDS = 30.0
"""How long loading the programs may take."""


class Tracer:
    """One process that follows the DuT's cores."""

    def start(self, scope: Scope) -> Following | None:
        """Begin to trace; None unless the experiment asks for it and there is a DuT."""
        if scope.tracing is None or not scope.dut_cpus:
            return None
        return Following(scope.dut_cpus, scope.tracing)

    def diagnose(self) -> Iterator[Check]:
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
            remedy = "CONFIG_DEBUG_INFO_BTF; tried on Linux 6.1, 6.12 and 6.18"
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
    lacks = findings.ask(_core.trace_lacks, mode)
    if lacks is not None and lacks[0]:
        findings.notes.append(f"trace: {_lack(*lacks)}")


def _lack(missing: Sequence[str], substitutes: Sequence[str]) -> str:
    """What a trace lacks, as one sentence."""
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
        """The process, which says nothing before its end."""
        return [self._process]

    def trouble(self) -> str | None:
        """Its end."""
        return self._process.failure() if self._process.readable() else None

    def stop(self) -> Reading:
        """What its trace has. Raises `MachineError`."""
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
        """End it."""
        self._process.close()


def ended(process: Process, seconds: float) -> Taken:
    """What a tracer says at its end, within `seconds`. Raises `MachineError`."""
    return parsed(process.title, process.expect("done", seconds).get("trace"), Taken, MachineError)


def written(trace: Taken, room: Room) -> Iterator[Warning]:
    """Whether the trace was written where packets are sent or served."""
    if trace.writes and room.cpu is None:
        yield {
            "code": "trace-written",
            "message": f"the trace was written {trace.writes} times while packets were sent: "
            f"more than {room.records // USED:,} records of a CPU came, and every CPU sends or "
            "serves",
        }


def warnings_of(trace: Taken, name: str = "the trace") -> Iterator[Warning]:
    """What a trace lacks; `name` is what it is called."""
    lost = {cpu: count for cpu, count in trace.lost.items() if count}
    if lost:
        counts = ", ".join(f"{count} of CPU {cpu}" for cpu, count in lost.items())
        yield {
            "code": "trace-lost",
            "message": f"{name} had no room for {counts}: what happened then is not known",
        }
    if trace.paused_ns:
        part = 1 - trace.paused_ns / max(1, trace.ended_ns - trace.started_ns)
        yield {
            "code": "trace-thinned",
            "message": f"to keep the budget, {name} was taken for {format_share(part)} of the time",
        }
    if trace.missing:
        lack = _lack(trace.missing, trace.substitutes)
        yield {"code": "trace-incomplete", "message": f"of {name}: {lack}"}
