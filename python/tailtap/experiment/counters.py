"""What the kernel counts about packet work on each CPU, before and after the traffic."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Columns of /proc/net/softnet_stat, hexadecimal; net/core/net-procfs.c of the kernel.
_PROCESSED, _DROPPED, _RECEIVED_RPS, _CPU = 0, 1, 9, 12
# Column of a cpu line in /proc/stat, in clock ticks; proc_stat(5).
_STEAL = 8

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Counters:
    """Counters since boot, by CPU."""

    softnet: Mapping[int, Counts]
    steal_ns: Mapping[int, int]

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
        return cls(softnet, _steal((proc / "stat").read_text(encoding="ascii")))

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
        return Counters(softnet, steal)


def _softirq_net_rx(text: str) -> dict[int, int]:
    lines = text.splitlines()
    cpus = [int(name.removeprefix("CPU")) for name in lines[0].split()]
    for line in lines[1:]:
        name, _, values = line.strip().partition(":")
        if name == "NET_RX":
            return dict(zip(cpus, map(int, values.split()), strict=False))
    return {}


def _steal(text: str) -> dict[int, int]:
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    steal: dict[int, int] = {}
    for line in text.splitlines():
        columns = line.split()
        if columns and columns[0].startswith("cpu") and columns[0] != "cpu":
            ticks = int(columns[_STEAL]) if len(columns) > _STEAL else 0
            steal[int(columns[0].removeprefix("cpu"))] = ticks * tick_ns
    return steal
