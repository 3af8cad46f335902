"""What the kernel counts about packet work on each CPU, before and after the traffic."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
# Columns of /proc/net/softnet_stat, hexadecimal; net/core/net-procfs.c of the kernel.
_PROCESSED, _DROPPED, _RECEIVED_RPS, _CPU = 0, 1, 9, 12
# Columns of a cpu line in /proc/stat, in clock ticks; proc_stat(5). Guests count as user.
_STAT = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

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
        """The counters now."""
        rx = _softirq_net_rx((proc / "softirqs").read_text(encoding="ascii"))
        softnet: dict[int, Counts] = {}
        rows = (proc / "net/softnet_stat").read_text(encoding="ascii").splitlines()
        for position, row in enumerate(rows):
            columns = [int(column, 16) for column in row.split()]
            # Old kernels do not name the CPU; they list the online ones in order.
            cpu = columns[_CPU] if len(columns) > _CPU else position
            softnet[cpu] = {
                "processed": columns[_PROCESSED],
                "dropped": columns[_DROPPED],
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


def memory_of(pid: int, proc: Path = PROC) -> int | None:
    """Bytes of memory of a process and all that it started, pages that are shared in shares.

    None when it is gone.
    """
    children: dict[int, list[int]] = {}
    for path in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # processes come and go
            # The name stands in parentheses and may hold any letters, parentheses too.
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        with contextlib.suppress(OSError):
            text = (proc / str(one) / "smaps_rollup").read_text(encoding="ascii")
            rows = (line.split() for line in text.splitlines())
            found.append(sum(1024 * int(row[1]) for row in rows if row[0] == "Pss:"))
    return sum(found) if found else None


def _softirq_net_rx(text: str) -> dict[int, int]:
    lines = text.splitlines()
    cpus = [int(name.removeprefix("CPU")) for name in lines[0].split()]
    for line in lines[1:]:
        name, _, values = line.strip().partition(":")
        if name == "NET_RX":
            return dict(zip(cpus, map(int, values.split()), strict=False))
    return {}


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
