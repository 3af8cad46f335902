"""How well a platform isolates its guests: a judgement with reasons, not a measurement.

After "Packet processing in virtualized environments", section 7: its table of recommendations
ranks bare metal above VMs above containers, and shared last-level caches below separated ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tailtap.analysis.runs.run import Run
from tailtap.records.compare import Cache, Grade, Isolation, Layout
from tailtap.records.machine import Traits, Virtualization

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
    return set(_cpus(text))


def _cpus(text: str) -> Iterable[int]:
    for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text):
        end = min(int(last or first), _LARGEST_CPU)
        yield from range(int(first), end + 1)
