"""What a configuration costs and counts: CPU time, memory, counters; and how well it isolates.

The isolation of a platform is a judgement with reasons, not a measurement. After "Packet processing
in virtualized environments", section 7: its table of recommendations ranks bare metal above VMs
above containers, and shared last-level caches below separated ones.

Counters per packet are means over repeats, with tests whether they differ. The unit of replication
is the run, as for latencies, and so are the tests (`significance.py`). There are two families, each
with an error of `ALPHA` for all its tests together: events, which somebody chose, and interrupts
and softirqs by kind, which are all there are. So a choice of few events is decided by fewer
repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median, stdev

from msgspec.structs import replace

from tailtap.analysis.compare.configurations import Load
from tailtap.analysis.compare.significance import (
    ALPHA,
    corrected,
    rank_test,
    shift,
    smallest_p,
)
from tailtap.analysis.interrupts.runs import asked, by_packet
from tailtap.analysis.runs.run import Run
from tailtap.records.compare import (
    Cache,
    Counted,
    CounterPair,
    Counters,
    Grade,
    Isolation,
    Layout,
    Resources,
)
from tailtap.records.machine import Traits, Virtualization

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
    watts = None if run.energy is None else run.energy.watts
    result = Resources(len(cpus) or None, memory=_memory(run), watts=watts)
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


_LARGEST_CPU = 8191


#: By virtualization: the grade where the last-level cache is separated, where it is shared, and
#: why.
JUDGEMENTS: Mapping[Virtualization, tuple[Grade, Grade, str]] = {
    "none": (
        "strong",
        "strong",
        (
            "a machine of its own shares nothing with other tenants (here the generator may stand "
            "in for them: then it is as weak as a container)"
        ),
    ),
    "machine": (
        "good",
        "fair",
        (
            "a kernel of its own behind the hardware's virtualisation; tenants meet in the "
            "hypervisor and in caches that they share"
        ),
    ),
    "container": (
        "fair",
        "weak",
        (
            "namespaces and control groups of one kernel: every tenant's system calls, and the "
            "caches that they share, meet there"
        ),
    ),
}


def cache(run: Run) -> Cache | None:
    """The last-level cache of a run of ours; None where it is not known."""
    topology = run.environment.topology
    unified = [row for row in topology.caches if row.type in ("Unified", "Data") and row.cpus]
    if not unified:
        return None
    level = max(row.level for row in unified)
    groups = {row.cpus for row in unified if row.level == level}
    packages = topology.packages or [",".join(sorted(groups))]
    separated = any(
        sum(cpu_list(group) <= cpu_list(package) for group in groups) > 1 for package in packages
    )
    own = set(run.device_cpus)
    shared: set[int] = set()
    for group in map(cpu_list, groups):
        if own & group:
            shared |= group - own
    virtual = bool(run.environment.cpu.hypervisor)
    layout: Layout = "separated" if separated else "shared"
    return Cache(layout, level, len(groups), tuple(sorted(shared)), virtual)


def common_cache(runs: Sequence[Run]) -> Cache | None:
    """The cache of a configuration's runs; None where it is not known or differs."""
    found = {cache(run) for run in runs}
    return found.pop() if len(found) == 1 else None


def judge(traits: Traits | None, layout: Layout | None) -> Isolation | None:
    """The judgement of a platform; the lower grade where the cache's layout is not known."""
    if traits is None or not traits.has_dut:
        return None
    separated, shared, reason = JUDGEMENTS[traits.virtualization]
    return Isolation(separated if layout == "separated" else shared, reason)


def cpu_list(text: str) -> set[int]:
    """The CPUs in a list of the kernel: ``0-3,8``. Anything else in it is left out."""
    return {
        cpu
        for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text)
        for cpu in range(int(first), min(int(last or first), _LARGEST_CPU) + 1)
    }


Values = dict[str, dict[str, list[float]]]
"""By counter and configuration, one for each run that counted it."""


def counters(loads: Sequence[Load]) -> list[Counters]:
    """What the configurations under each load counted; the tests of all are corrected together.

    Raises `InputError` for samples of interrupts that cannot be read.
    """
    runs = [run for load in loads for found in load.ranked for run in found.runs]
    chosen = list(dict.fromkeys(name for run in runs for name in asked(run)))
    values = [_values(load, chosen) for load in loads]
    pairs: list[list[CounterPair]] = [[] for _ in loads]
    for family in (True, False):
        tests = [
            _Test(place, name, first, second, rows[first], rows[second])
            for place, found in enumerate(values)
            for name, rows in found.items()
            if (name in chosen) is family
            for first, second in combinations(rows, 2)
        ]
        ps = corrected([test.p for test in tests], [test.sizes for test in tests])
        for test, p in zip(tests, ps, strict=True):
            pairs[test.place].append(test.told(p))
    return [
        Counters(
            counted=[
                Counted(
                    counter=name,
                    chosen=name in chosen,
                    configuration=label,
                    values=numbers,
                    mean=fmean(numbers),
                    deviation=stdev(numbers) if len(numbers) > 1 else None,
                )
                for name, rows in found.items()
                for label, numbers in rows.items()
            ],
            comparisons=pairs[place],
        )
        for place, found in enumerate(values)
    ]


def _values(load: Load, chosen: Sequence[str]) -> Values:
    """What was counted per packet, `chosen` events first."""
    every = {
        found.label: [row for run in found.runs if (row := by_packet(run))] for found in load.ranked
    }
    names = {name for runs in every.values() for told in runs for name in told}
    found: Values = {}
    for name in [*(name for name in chosen if name in names), *sorted(names - set(chosen))]:
        for label, told in every.items():
            if name in chosen:
                numbers = [one[name] for one in told if name in one]
            else:  # a run that tells kinds tells all that occurred in it
                numbers = [one.get(name, 0.0) for one in told if one.keys() - set(chosen)]
            if numbers:
                found.setdefault(name, {})[label] = numbers
    return found


@dataclass(frozen=True)
class _Test:
    place: int
    name: str
    first: str
    second: str
    before: list[float]
    after: list[float]

    @property
    def p(self) -> float:
        return rank_test(self.after, self.before)

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.before), len(self.after)

    def told(self, p_corrected: float) -> CounterPair:
        """What is shown of the configuration that was given second."""
        apart = shift(self.after, self.before)
        above = sum((x > y) - (x < y) for x in self.after for y in self.before)
        significant = p_corrected <= ALPHA
        return CounterPair(
            counter=self.name,
            first=self.first,
            second=self.second,
            answer="not shown" if not significant else "more" if above > 0 else "fewer",
            difference=apart.difference,
            difference_low=apart.least,
            difference_high=apart.most,
            ratio=apart.ratio,
            ratio_low=apart.low,
            ratio_high=apart.high,
            p=self.p,
            p_corrected=p_corrected,
            smallest_p=smallest_p(*self.sizes),
        )
