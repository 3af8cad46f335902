"""What a run's trace says of itself, and whether it belongs to the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tailtap.analysis.causes.taxonomy import Names, Served
from tailtap.analysis.clocks.host import HostClock, host_clock
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.record import read
from tailtap.records.trace import NET_RX, Server, TraceRecord

GUEST_EVENTS, GUEST_RECORD = "trace-guest.events", "trace-guest.json"


def with_trace() -> str:
    """How to measure a run that can be explained."""
    return "measure it with `trace: thin` in the experiment file, or --set trace=thin"


@dataclass(frozen=True)
class Trace:
    """The trace of a run."""

    events: Path
    started_ns: int
    ended_ns: int
    """By its own clock, as all times of its records."""
    cpus: tuple[int, ...]
    served: Served
    """By what packets are served, in all nodes of the device."""
    names: Names
    records: int | None
    lost: Mapping[str, int]
    missing: tuple[str, ...]
    substitutes: tuple[str, ...]
    mode: str
    nodes: Mapping[str, Served] = field(default_factory=dict)
    """By what packets are served in each node, where the device has several."""
    senders: tuple[int, ...] = ()
    """CPUs that tell those of packets, and are followed for what holds them up."""
    paused_ns: int = 0
    """So long nothing was traced, to keep a budget."""
    clock: HostClock | None = None
    """How its clock stands to that of the stamps; None where both are one."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """When it began and ended, by the clock of the stamps."""
        if self.clock is None:
            return self.started_ns, self.ended_ns
        first, last = self.clock.stamps_ns(np.array([self.started_ns, self.ended_ns])).tolist()
        return first, last


def has_trace(run: Run) -> bool:
    """Whether the run was measured with a trace."""
    return run.own_folder is not None and (run.own_folder / "trace.events").is_file()


def load(run: Run) -> Trace:
    """The trace of a run.

    Raises `InputError` when it has none, when the tracer did not come to its end, when it was made
    on another boot, by another kind of clock or at another time than the packets, and when another
    machine stamped these and nobody knows how the clocks stood.
    """
    folder = run.own_folder
    if folder is None or not (folder / "trace.events").is_file():
        none = run.traits is not None and not run.traits.has_dut
        remedy = (
            "platform wire has no device to trace: take a run that has one"
            if none
            else with_trace()
        )
        raise InputError(f"it has no trace: {remedy}").at(folder or run.slug)
    path = folder / "trace.json"
    if not path.is_file():
        raise InputError(
            "there is none: the trace was cut off before its end and cannot be trusted; "
            "measure again"
        ).at(path)
    record = _read(path)
    trace = _trace(folder / "trace.events", record)
    trace = replace(trace, clock=host_clock(run.record, f"{path}: the trace"))
    _belongs(path, record, trace, run)
    return trace


def trace_in(folder: Path) -> Trace:
    """The trace in `folder`, whatever it is of. Raises `InputError`."""
    return _trace(folder / "trace.events", _read(folder / "trace.json"))


def load_guest(folder: Path) -> Trace:
    """The trace that was taken in the run's virtual machine, on its clock. Raises `InputError`."""
    return _trace(folder / GUEST_EVENTS, _read(folder / GUEST_RECORD))


def _read(path: Path) -> TraceRecord:
    record = read(path, TraceRecord)
    if record.served is None:
        raise InputError(
            "it does not say by what packets are served: give "
            "`tailtap trace --served`, or measure with a forwarder that says so"
        ).at(path)
    return record


def _trace(events: Path, record: TraceRecord) -> Trace:
    cpus, rows = tuple(record.cpus), record.served
    assert rows is not None
    nodes = {row.node: _served(row, cpus) for row in rows} if isinstance(rows, list) else {}
    served = (
        Served.together(tuple(nodes.values())) if isinstance(rows, list) else _served(rows, cpus)
    )
    return Trace(
        events=events,
        started_ns=record.started_ns,
        ended_ns=record.ended_ns,
        cpus=cpus,
        served=served,
        nodes=nodes,
        names=Names(
            {int(pid): name for pid, name in record.names.pids.items()},
            {int(number): name for number, name in record.names.irqs.items()},
            {int(address, 16): name for address, name in record.names.functions.items()},
        ),
        records=record.records,
        lost=record.lost,
        missing=tuple(record.missing),
        substitutes=tuple(record.substitutes),
        mode=record.mode,
        senders=tuple(record.senders),
        paused_ns=record.paused_ns,
    )


def _served(row: Server, traced: tuple[int, ...]) -> Served:
    return Served.one(
        row.by, vector=row.vector or NET_RX, pids=row.pids, cpus=tuple(row.cpus) or traced
    )


def _belongs(path: Path, record: TraceRecord, trace: Trace, run: Run) -> None:
    boot = run.environment.boot_id
    if boot and record.boot_id and boot != record.boot_id:
        raise InputError(
            "the trace is of another boot of the DuT's machine than the run; its clock "
            "says nothing of the packets"
        ).at(path)
    if run.clock != "monotonic" or record.clock != "monotonic":
        raise InputError(
            f"its packets were stamped by the clock {run.clock}, its trace by "
            f"{record.clock}: only stamps of the kernel's monotonic clock can be joined"
        ).at(run.slug)
    side = run.stored.inputs.ingress
    first, last = side.first_ns, side.last_ns
    began, ended = trace.span_ns
    if ended <= first or last <= began:
        raise InputError(
            "the trace is of another run: it began and ended "
            f"{_away(began, ended, first, last)} the run's packets"
        ).at(path)
    if not set(trace.served.cpus) <= set(trace.cpus):
        raise InputError(
            f"packets are served on CPUs {_list(trace.served.cpus)}, and traced were "
            f"{_list(trace.cpus)}: measure again with these among the traced ones"
        ).at(path)


def _away(began: int, ended: int, first: int, last: int) -> str:
    if ended <= first:
        return f"{(first - ended) / 1e9:,.1f} s before"
    return f"{(began - last) / 1e9:,.1f} s after"


def _list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus)) or "none"
