"""What was counted during a run as a whole, by name: events, interrupts and softirqs by kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tailtap.analysis.interrupts.windows import windows_of
from tailtap.analysis.runs.run import Run
from tailtap.records.interrupts import FILE, kind_of, read_samples
from tailtap.records.run import Window

Per = Literal["packet", "second", "run"]
LIFETIME, RUN = "lifetime", "run"


def known(run: Run) -> dict[str, float]:
    """All that was counted, by name.

    Events of the device while packets were sent, and as ``NAME (lifetime)`` those of the machine
    from before the device was built until it was gone; then interrupts and softirqs of the device
    by kind. Raises `InputError` for samples that cannot be read.
    """
    found = {
        name: float(count)
        for name, (window, event) in _events(run).items()
        if (count := window.events[event]) is not None
    }
    counts, _ = _kinds(run)
    return found | {name: float(count) for name, count in counts.items()}


def asked(run: Run) -> list[str]:
    """The events that somebody named, whether or not they could be counted."""
    return list(_events(run))


def _events(run: Run) -> dict[str, tuple[Window, str]]:
    """The window and the name in it of each event."""
    found = {}
    for which, name in ((RUN, "{}"), (LIFETIME, f"{{}} ({LIFETIME})")):
        if window := run.counters.get(which):
            found.update({name.format(event): (window, event) for event in window.events})
    return found


def counted(run: Run, name: str, per: Per) -> float | None:
    """How often `name` of `known` was counted in the `run`, or per ``packet`` or ``second``."""
    total = known(run).get(name)
    return None if total is None else _each(run, name, total, per)


def by_packet(run: Run) -> dict[str, float]:
    """All of `known`, per packet."""
    each = ((name, _each(run, name, total, "packet")) for name, total in known(run).items())
    return {name: count for name, count in each if count is not None}


def interrupts(run: Run, per: Per) -> dict[str, float]:
    """Interrupts and softirqs of the device's CPUs by kind, those that occurred at all."""
    found = ((name, counted(run, name, per)) for name in _kinds(run)[0])
    return {name: count for name, count in found if count}


def packets(run: Run) -> int | None:
    """The packets that came while it was counted: those that the tap saw, warm-up included."""
    came = run.taps["ingress"].came if "ingress" in run.taps else None
    return came or run.packets


def _each(run: Run, name: str, total: float, per: Per) -> float | None:
    match per:
        case "packet":
            number = packets(run)
            return total / number if number else None
        case "second":
            seconds = _seconds(run, name)
            return total / seconds if seconds else None
        case "run":
            return total


def _seconds(run: Run, name: str) -> float:
    if found := _events(run).get(name):
        return found[0].elapsed_ns / 1e9
    return _kinds(run)[1]


def _kinds(run: Run) -> tuple[Mapping[str, int], float]:
    """Interrupts and softirqs by kind, and the seconds that they are of.

    As they were counted with events, or else from the first to the last of their samples.
    """
    window = run.counters.get(RUN)
    if window and window.kinds:
        return window.kinds, window.elapsed_ns / 1e9
    path = (run.own_folder or Path()) / FILE
    if run.own_folder is None or not path.is_file():
        return {}, 0.0
    windows = windows_of(read_samples(path))
    cpus = set(run.device_cpus)
    found: dict[str, int] = {}
    for name, rises in zip(windows.names, windows.increments.sum(axis=1), strict=True):
        told = kind_of(name)
        if told is not None and (not cpus or told[0] in cpus):
            found[told[1]] = found.get(told[1], 0) + int(rises)
    return found, float(windows.bounds_ns[-1] - windows.bounds_ns[0]) / 1e9
