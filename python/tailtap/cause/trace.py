"""What a run's trace says of itself, and whether it belongs to the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailtap.cause.taxonomy import NET_RX, Names, Served
from tailtap.errors import InputError
from tailtap.files import read_json
from tailtap.results.run import Run, mapping

SCHEMA = "tailtap.trace/1"
GUEST_EVENTS, GUEST_RECORD = "trace-guest.events", "trace-guest.json"
NO_TRACE = "measure it with `trace: thin` in the experiment file, or --set trace=thin"


@dataclass(frozen=True)
class Trace:
    """The trace of a run."""

    events: Path
    started_ns: int
    ended_ns: int
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


def load(run: Run) -> Trace:
    """The trace of a run.

    Raises `InputError` when it has none, when the tracer did not come to its end, and when it was
    made on another boot, by another clock or at another time than the packets.
    """
    folder = run.own_folder
    if folder is None or not (folder / "trace.events").is_file():
        raise InputError(f"{folder or run.slug}: it has no trace: {NO_TRACE}")
    path = folder / "trace.json"
    if not path.is_file():
        raise InputError(
            f"{path}: there is none: the trace was cut off before its end and cannot be trusted; "
            "measure again"
        )
    record = read_json(path)
    trace = _read(folder / "trace.events", path, record)
    _belongs(path, record, trace, run)
    return trace


def load_guest(folder: Path) -> Trace:
    """The trace that was taken in the run's virtual machine, on its clock. Raises `InputError`."""
    path = folder / GUEST_RECORD
    return _read(folder / GUEST_EVENTS, path, read_json(path))


def _read(events: Path, path: Path, record: Mapping[str, Any]) -> Trace:
    if record.get("schema") != SCHEMA:
        raise InputError(f"{path}: its schema is {record.get('schema')!r} instead of {SCHEMA!r}")
    if record.get("served", {}) is None:
        raise InputError(
            f"{path}: it does not say by what packets are served: give "
            "`tailtap trace --served`, or measure with a forwarder that says so"
        )
    try:
        return _trace(events, record)
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: damaged: {type(error).__name__} {error}; measure again"
        ) from error


def _trace(events: Path, record: Mapping[str, Any]) -> Trace:
    names = mapping(record, "names")
    pids, irqs = mapping(names, "pids"), mapping(names, "irqs")
    functions = mapping(names, "functions")
    cpus = tuple(int(cpu) for cpu in record["cpus"])
    rows = record["served"]
    nodes = {str(row["node"]): _served(row, cpus) for row in rows} if isinstance(rows, list) else {}
    records = record.get("records")
    return Trace(
        events=events,
        started_ns=int(record["started_ns"]),
        ended_ns=int(record["ended_ns"]),
        cpus=cpus,
        served=Served.together(tuple(nodes.values())) if nodes else _served(rows, cpus),
        nodes=nodes,
        names=Names(
            {int(pid): str(name) for pid, name in pids.items()},
            {int(number): str(name) for number, name in irqs.items()},
            {int(address, 16): str(name) for address, name in functions.items()},
        ),
        records=None if records is None else int(records),
        lost={str(cpu): int(count) for cpu, count in mapping(record, "lost").items()},
        missing=tuple(map(str, record.get("missing") or ())),
        substitutes=tuple(map(str, record.get("substitutes") or ())),
        mode=str(record.get("mode", "")),
    )


def _served(row: Mapping[str, Any], traced: tuple[int, ...]) -> Served:
    by = row["by"]
    if by not in ("softirq", "task", "poll", "vcpu"):
        raise ValueError(f"served by {by!r}")
    return Served.one(
        by,
        vector=int(row.get("vector") or NET_RX),
        pids=(int(pid) for pid in row.get("pids") or ()),
        cpus=tuple(int(cpu) for cpu in row.get("cpus") or ()) or traced,
    )


def _belongs(path: Path, record: Mapping[str, Any], trace: Trace, run: Run) -> None:
    boot = run.environment.get("boot_id")
    if boot and record.get("boot_id") and boot != record["boot_id"]:
        raise InputError(
            f"{path}: the trace is of another boot of the machine than the packets; its clock "
            "says nothing of them"
        )
    if run.clock != "monotonic" or record.get("clock") != "monotonic":
        raise InputError(
            f"{run.slug}: its packets were stamped by the clock {run.clock}, its trace by "
            f"{record.get('clock')}: only stamps of the kernel's monotonic clock can be joined"
        )
    side = run.stored.inputs["ingress"]
    first, last = int(side["first_ns"]), int(side["last_ns"])
    if trace.ended_ns <= first or last <= trace.started_ns:
        raise InputError(
            f"{path}: the trace is of another run: it began and ended {_away(trace, first, last)} "
            "the run's packets"
        )
    if not set(trace.served.cpus) <= set(trace.cpus):
        raise InputError(
            f"{path}: packets are served on CPUs {_list(trace.served.cpus)}, and traced were "
            f"{_list(trace.cpus)}: measure again with these among the traced ones"
        )


def _away(trace: Trace, first: int, last: int) -> str:
    if trace.ended_ns <= first:
        return f"{(first - trace.ended_ns) / 1e9:,.1f} s before"
    return f"{(trace.started_ns - last) / 1e9:,.1f} s after"


def _list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus)) or "none"
