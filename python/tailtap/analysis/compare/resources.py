"""The cost of a configuration: CPU time, memory and power, from the counters of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec.structs import replace

from tailtap.analysis.runs.energy import watts
from tailtap.analysis.runs.run import Run
from tailtap.records.compare import Resources

#: Times in which a CPU does no work. Waiting for a disk is idle time, too.
_IDLE = ("idle", "iowait")


def resources(runs: Sequence[Run]) -> Resources:
    """The resources of repeats of one configuration."""
    found = [_of(run) for run in runs]
    memory = _median(one.memory for one in found)
    reserved = _median(one.reserved for one in found)
    return Resources(
        None if reserved is None else round(reserved),
        _median(one.cpus for one in found),
        _median(one.cpu_ns for one in found),
        None if memory is None else round(memory),
        _median(one.watts for one in found),
    )


def _of(run: Run) -> Resources:
    cpus = [str(cpu) for cpu in run.device_cpus]
    spent = run.record.cpu_ns if run.record else {}
    elapsed = run.record.elapsed_ns if run.record else None
    result = Resources(len(cpus) or None, memory=_memory(run), watts=watts(run))
    if not cpus or not elapsed or not spent.keys() >= set(cpus):
        return result
    stolen = run.steal_ns
    not_busy = sum(spent[cpu].get(kind, 0) for cpu in cpus for kind in _IDLE)
    not_busy += sum(stolen.get(cpu, 0) for cpu in cpus)
    busy = len(cpus) * elapsed - not_busy
    if busy <= 0:
        busy = sum(ns for cpu in cpus for kind, ns in spent[cpu].items() if kind not in _IDLE)
    arrived = run.taps["ingress"].seen if "ingress" in run.taps else None
    each = busy / arrived if arrived else None
    return replace(result, cpus=busy / elapsed, cpu_ns=each)


def _memory(run: Run) -> int | None:
    used = run.platform_facts.memory_used
    if used is not None:
        return used
    # Only part of a virtual machine's forwarder is a process of this machine.
    if run.traits is not None and run.traits.own_kernel:
        return run.dut.memory
    return run.record.forwarder_memory if run.record else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
