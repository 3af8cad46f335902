"""What a configuration costs: CPU time and memory, from what its runs counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tailtap.compare.reading import Sample
from tailtap.report.values import mapping

#: What a CPU does that is no work. Waiting for a disk is idle time, too.
_IDLE = ("idle", "iowait")


@dataclass(frozen=True)
class Resources:
    """Medians over repeats; None where no run says.

    `cpus` is how many of the `reserved` CPUs of the device were busy on average while packets were
    sent (a forwarder that polls keeps its own fully busy), `cpu_ns` their busy time for each packet
    that arrived before the device. Busy is what was neither idle nor stolen by a hypervisor: the
    kernel measures these two, and samples at its ticks what else a CPU did; work that keeps time
    with the ticks is met by all of them or by none. `memory` (bytes) is what the platform says that
    it used, the memory of a virtual machine, or that of the forwarder's processes.
    """

    reserved: int | None = None
    cpus: float | None = None
    cpu_ns: float | None = None
    memory: int | None = None


def resources(samples: Sequence[Sample]) -> Resources:
    """The resources of repeats of one configuration."""
    found = [_of(sample) for sample in samples]
    memory = _median(one.memory for one in found)
    reserved = _median(one.reserved for one in found)
    return Resources(
        None if reserved is None else round(reserved),
        _median(one.cpus for one in found),
        _median(one.cpu_ns for one in found),
        None if memory is None else round(memory),
    )


def _of(sample: Sample) -> Resources:
    dut: Any = mapping(sample.parameters, "dut").get("cpus")
    cpus = [str(cpu) for cpu in dut] if isinstance(dut, list) else []
    spent = mapping(sample.record, "cpu_ns")
    elapsed = sample.record.get("elapsed_ns")
    result = Resources(len(cpus) or None, memory=_memory(sample))
    if not cpus or not elapsed or not all(isinstance(spent.get(cpu), dict) for cpu in cpus):
        return result
    stolen = mapping(sample.record, "steal_ns")
    not_busy = sum(spent[cpu].get(kind, 0) for cpu in cpus for kind in _IDLE)
    not_busy += sum(stolen.get(cpu, 0) for cpu in cpus)
    busy = max(0, len(cpus) * elapsed - not_busy)
    arrived = mapping(mapping(sample.record, "taps"), "ingress").get("seen")
    return Resources(len(cpus), busy / elapsed, busy / arrived if arrived else None, result.memory)


def _memory(sample: Sample) -> int | None:
    dut = mapping(sample.parameters, "dut")
    # Only part of a virtual machine's forwarder is a process of this machine.
    rest = dut if dut.get("platform") == "vm" else sample.record
    name = "memory" if rest is dut else "forwarder_memory"
    for value in (mapping(sample.record, "platform").get("memory_used"), rest.get(name)):
        if isinstance(value, int):
            return value
    return None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
