"""What the kernel counts about packet work on each CPU, and how much memory the forwarder has."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from tailtap.base.files import read_text
from tailtap.base.proc import PROC, stats
from tailtap.base.units import format_count, format_size, ranges
from tailtap.lab.instruments.observing import Quiet, Reading, Scope
from tailtap.records import run as records
from tailtap.records.record import Notice
from tailtap.records.run import Facts

# Columns of /proc/net/softnet_stat, hexadecimal; net/core/net-procfs.c of the kernel.
_PROCESSED, _DROPPED, _SQUEEZED, _RECEIVED_RPS, _CPU = 0, 1, 2, 9, 12

# Columns of a cpu line in /proc/stat, in clock ticks; proc_stat(5). Guests count as user.
_STAT = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

STEAL_SHARE = 0.01
"""A hypervisor that took more of a measuring CPU than this had a hand in the tail."""

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Counters:
    """Counters since boot, by CPU."""

    softnet: Mapping[int, Counts]
    steal_ns: Mapping[int, int]
    #: How each CPU spent its time, to a clock tick; time that a hypervisor took is `steal_ns`.
    cpu_ns: Mapping[int, Counts] = field(default_factory=dict)

    @classmethod
    def read(cls, proc: Path = PROC) -> Counters:
        rx = counted((proc / "softirqs").read_text(encoding="ascii")).get("NET_RX", {})
        softnet: dict[int, Counts] = {}
        rows = (proc / "net/softnet_stat").read_text(encoding="ascii").splitlines()
        for position, row in enumerate(rows):
            columns = [int(column, 16) for column in row.split()]
            # Old kernels do not name the CPU; they list the online ones in order.
            cpu = columns[_CPU] if len(columns) > _CPU else position
            softnet[cpu] = {
                "processed": columns[_PROCESSED],
                "dropped": columns[_DROPPED],
                "squeezed": columns[_SQUEEZED],
                "received_rps": columns[_RECEIVED_RPS] if len(columns) > _RECEIVED_RPS else 0,
                "softirq_net_rx": rx.get(cpu, 0),
            }
        spent = _times((proc / "stat").read_text(encoding="ascii"))
        steal = {cpu: times.pop("steal") for cpu, times in spent.items()}
        return cls(softnet, steal, spent)

    def since(self, earlier: Counters) -> Counters:
        """What was counted since `earlier`; the 32-bit counters of softnet may have wrapped."""
        softnet = {
            cpu: {name: (value - before[name]) % 2**32 for name, value in now.items()}
            for cpu, now in self.softnet.items()
            if (before := earlier.softnet.get(cpu)) is not None
        }
        steal = {
            cpu: max(0, now - earlier.steal_ns.get(cpu, now)) for cpu, now in self.steal_ns.items()
        }
        spent = {
            cpu: {name: max(0, value - before[name]) for name, value in now.items()}
            for cpu, now in self.cpu_ns.items()
            if (before := earlier.cpu_ns.get(cpu)) is not None
        }
        return Counters(softnet, steal, spent)

    def facts(self, elapsed_ns: int) -> Facts:
        """Of ``run.json``, for what was counted in so long."""
        return Facts(
            softnet={str(cpu): dict(counts) for cpu, counts in self.softnet.items()},
            steal_ns={str(cpu): ns for cpu, ns in self.steal_ns.items()},
            cpu_ns={str(cpu): dict(spent) for cpu, spent in self.cpu_ns.items()},
            elapsed_ns=elapsed_ns,
        )


class KernelCounters(Quiet):
    """What each CPU received, how it spent its time, and what a hypervisor took of it."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._before, self._began = scope, Counters.read(), time.monotonic_ns()

    def stop(self) -> Reading:
        counters = Counters.read().since(self._before)
        elapsed = time.monotonic_ns() - self._began
        return Reading(
            counters.facts(elapsed),
            tuple(
                warnings_of(counters, elapsed, {*self._scope.generator_cpus, *self._scope.dut_cpus})
            ),
        )


def warnings_of(counters: Counters, elapsed_ns: int, cpus: Collection[int]) -> Iterator[Notice]:
    """What `counters` of `elapsed_ns` say against a measurement on these CPUs."""
    for cpu in sorted(cpus):
        share = counters.steal_ns.get(cpu, 0) / max(1, elapsed_ns)
        if share > STEAL_SHARE:
            yield Notice(
                "steal",
                f"the hypervisor took {100 * share:.1f} % of CPU {cpu}'s time "
                f"(limit {100 * STEAL_SHARE:g} %): late packets may be its work",
            )
    for cpu, counts in counters.softnet.items():
        if counts.get("dropped"):
            yield Notice(
                "backlog-drops",
                f"the kernel dropped {format_count(counts['dropped'], 'packet')} before CPU {cpu} "
                "could receive them (net.core.netdev_max_backlog)",
            )


def _times(text: str) -> dict[int, dict[str, int]]:
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    times: dict[int, dict[str, int]] = {}
    for line in text.splitlines():
        columns = line.split()
        if columns and columns[0].startswith("cpu") and columns[0] != "cpu":
            # Old kernels have fewer columns.
            ticks = [*map(int, columns[1:]), *(0,) * len(_STAT)]
            cpu = int(columns[0].removeprefix("cpu"))
            times[cpu] = {name: ticks[place] * tick_ns for place, name in enumerate(_STAT)}
    return times


InterruptCounts = Mapping[str, Mapping[int, int]]
"""How often each CPU handled an interrupt, by its number or name."""


def card_interrupts(scope: Scope) -> Handled | None:
    """What each CPU handled of each interrupt, and where these go."""
    return Handled(scope.interrupts, PROC) if scope.interrupts else None


class Handled(Quiet):
    """The interrupts from a moment on."""

    def __init__(self, sent: Mapping[str, tuple[str, Sequence[int]]], proc: Path) -> None:
        """By number, the port and the CPUs that each was sent to; none: left to the kernel."""
        self._sent, self._proc = sent, proc
        self._before = counted(_interrupts(proc))

    def stop(self) -> Reading:
        after = counted(_interrupts(self._proc))
        facts: dict[str, records.Handled] = {}
        for number, (port, cpus) in self._sent.items():
            before, folder = self._before.get(number, {}), self._proc / "irq" / number
            handled = {
                cpu: count - before.get(cpu, 0)
                for cpu, count in after.get(number, {}).items()
                if count > before.get(cpu, 0)
            }
            facts[number] = records.Handled(
                port=port,
                cpus=list(cpus),
                affinity=read_text(folder / "smp_affinity_list"),
                effective=read_text(folder / "effective_affinity_list"),
                handled={str(cpu): count for cpu, count in handled.items()},
            )
        return Reading(Facts(card_interrupts=facts), tuple(elsewhere(facts)))


def elsewhere(facts: Mapping[str, records.Handled]) -> Iterator[Notice]:
    """A warning for each interrupt that came to a CPU that it was not sent to."""
    for number, fact in facts.items():
        others = {int(cpu): count for cpu, count in fact.handled.items()
                  if fact.cpus and int(cpu) not in fact.cpus}  # fmt: skip
        if others:
            yield Notice(
                "interrupts-elsewhere",
                f"CPU {ranges(others)} handled {sum(others.values()):,} of the interrupts {number} "
                f"of {fact.port}, which were sent to {ranges(fact.cpus)} and go to "
                f"{fact.effective or fact.affinity}",
            )


def counted(text: str) -> InterruptCounts:
    """The counters in ``/proc/interrupts`` or ``softirqs``: a column for each listed CPU."""
    head, *lines = text.splitlines() or [""]
    cpus = [int(name.removeprefix("CPU")) for name in head.split()]
    found: dict[str, dict[int, int]] = {}
    for line in lines:
        name, _, rest = line.partition(":")
        counts = takewhile(str.isdecimal, rest.split())
        found[name.strip()] = dict(zip(cpus, map(int, counts), strict=False))
    return found


def _interrupts(proc: Path) -> str:
    return (proc / "interrupts").read_text(encoding="ascii", errors="replace")


FAR_SHARE = 0.1
"""Less memory on other nodes than this is that of libraries and tables, which everybody has."""


def forwarder_memory(scope: Scope) -> OfForwarder | None:
    """The memory of the forwarder's processes when the packets have been sent."""
    return None if scope.forwarder is None else OfForwarder(scope.forwarder, scope)


class OfForwarder(Quiet):
    """What one process and its children have."""

    def __init__(self, pid: int, scope: Scope) -> None:
        self._pid, self._scope = pid, scope

    def stop(self) -> Reading:
        facts = Facts(forwarder_memory=memory_of(self._pid))
        numa = self._scope.numa
        if numa is None or len(numa.nodes) < 2:
            return Reading(facts)
        nodes = nodes_of(self._pid)
        facts.forwarder_memory_nodes = {str(node): size for node, size in nodes.items()}
        return Reading(facts, tuple(far(nodes, numa.of_cpus(self._scope.dut_cpus))))


def far(nodes: Mapping[int, int], near: Sequence[int]) -> Iterator[Notice]:
    """A warning when the memory in `nodes` is not on those that are `near`."""
    away = {node: size for node, size in nodes.items() if near and node not in near}
    if sum(away.values()) > FAR_SHARE * sum(nodes.values()):
        yield Notice(
            "numa-crossing",
            f"{format_size(sum(away.values()))} of the forwarder's memory are on NUMA "
            f"node {ranges(away)}, and dut.cpus on {ranges(near)}",
        )


def nodes_of(pid: int, proc: Path = PROC) -> dict[int, int]:
    """Bytes of memory of a process and all that it started, without files, by NUMA node.

    ``numa_maps`` of proc(5): ``N1=3 kernelpagesize_kB=4`` are three pages of 4 KiB on node 1.
    """
    found: dict[int, int] = {}
    for one in _family(pid, proc):
        for line in (read_text(proc / str(one) / "numa_maps") or "").splitlines():
            words = dict(word.partition("=")[::2] for word in line.split())
            if "anon" not in words and "huge" not in words:
                continue
            size = 1024 * int(words.get("kernelpagesize_kB", "4"))
            for name, pages in words.items():
                if name[:1] == "N" and name[1:].isdecimal():
                    found[int(name[1:])] = found.get(int(name[1:]), 0) + size * int(pages)
    return dict(sorted(found.items()))


def memory_of(pid: int, proc: Path = PROC) -> int | None:
    """Bytes of memory of a process and all that it started, pages that are shared in shares.

    None when it is gone.
    """
    found: list[int] = []
    for one in _family(pid, proc):
        with contextlib.suppress(OSError):
            text = (proc / str(one) / "smaps_rollup").read_text(encoding="ascii")
            rows = (line.split() for line in text.splitlines())
            found.append(sum(1024 * int(row[1]) for row in rows if row[0] == "Pss:"))
    return sum(found) if found else None


def _family(pid: int, proc: Path) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for process in stats(proc):
        children.setdefault(process.parent, []).append(process.pid)
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        yield one
