"""What was counted during a run: by processors, by the kernel, and of late packets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tailtap.analysis.interrupts.windows import windows_of
from tailtap.analysis.runs.run import Run
from tailtap.records.causes import CausesRecord
from tailtap.records.interrupt_samples import FILE, SOFTIRQ, read_samples
from tailtap.records.record import read

_CPU = re.compile(r"(.+)_CPU([0-9]{1,5})")
DEVICE = "device"
"""The kind of all interrupts that have a number: those of devices."""


def known(run: Run) -> dict[str, float]:
    """All that was counted on the device's CPUs while packets were sent, by name.

    Events of the processors, then interrupts and softirqs by kind. Raises `InputError` for samples
    that cannot be read.
    """
    window = run.counters.get("run")
    events = window.events.items() if window else ()
    found = {name: float(count) for name, count in events if count is not None}
    counts, _ = _kinds(run)
    return found | {name: float(count) for name, count in counts.items()}


def counted(run: Run, name: str, per: str) -> float | None:
    """How often `name` of `known` was counted in the `run`, or per ``packet`` or ``second``."""
    total = known(run).get(name)
    if total is None:
        return None
    match per:
        case "packet":
            return total / run.packets if run.packets else None
        case "second":
            seconds = _seconds(run, name)
            return total / seconds if seconds else None
        case _:
            return total


def interrupts(run: Run, per: str) -> dict[str, float]:
    """Interrupts and softirqs of the device's CPUs by kind, those that occurred at all."""
    names = _kinds(run)[0]
    found = ((name, counted(run, name, per)) for name in names)
    return {name: count for name, count in found if count}


def causes(run: Run) -> dict[str, float]:
    """The delay of late packets by cause in ns, as ``causes.json`` says; empty without one."""
    path = (run.own_folder or Path()) / "causes.json"
    if run.own_folder is None or not path.is_file():
        return {}
    told = read(path, CausesRecord)
    found: dict[str, float] = {}
    for row in told.causes:
        found[row.cause] = found.get(row.cause, 0.0) + row.delay_ns
    rest = told.unexplained.delay_ns
    return found | ({"unexplained": float(rest)} if rest else {})


def _seconds(run: Run, name: str) -> float:
    window = run.counters.get("run")
    if window and name in window.events:
        return window.elapsed_ns / 1e9
    return _kinds(run)[1]


def _kinds(run: Run) -> tuple[Mapping[str, int], float]:
    """Increments of the kernel's counters by kind, and the seconds that they are of."""
    path = (run.own_folder or Path()) / FILE
    if run.own_folder is None or not path.is_file():
        return {}, 0.0
    windows = windows_of(read_samples(path))
    cpus = set(run.device_cpus)
    found: dict[str, int] = {}
    for name, rises in zip(windows.names, windows.increments.sum(axis=1), strict=True):
        match = _CPU.fullmatch(name)
        if match is not None and (not cpus or int(match[2]) in cpus):
            kind = _kind(match[1])
            found[kind] = found.get(kind, 0) + int(rises)
    return found, float(windows.bounds_ns[-1] - windows.bounds_ns[0]) / 1e9


def _kind(label: str) -> str:
    """The kind of a counter's label: ``LOC``, ``NET_RX softirq``, or `DEVICE`."""
    if label.endswith(f"_{SOFTIRQ}"):
        return f"{label.removesuffix(f'_{SOFTIRQ}')} {SOFTIRQ}"
    name = label.partition("_")[0]
    return DEVICE if name.isdigit() else name
