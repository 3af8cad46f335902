"""What forwarding costs: CPU time of the forwarder's process, and of the DuT's CPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.forwarder.setting import CpuTime

if TYPE_CHECKING:
    from tailtap.forwarder import Running

PROC = Path("/proc")
# Columns of a cpu line in /proc/stat, in clock ticks; proc_stat(5).
COLUMNS = {"user": 1, "nice": 2, "system": 3, "idle": 4, "irq": 6, "softirq": 7}


@dataclass(frozen=True)
class Usage:
    """CPU times at the beginning of a run."""

    running: Running | None
    process: CpuTime | None
    cpus: Mapping[int, Mapping[str, int]]

    @classmethod
    def begin(cls, running: Running | None, cpus: Sequence[int]) -> Usage:
        """The times now."""
        return cls(running, None if running is None else running.cpu_time(), busy(cpus))

    def so_far(self) -> dict[str, Any]:
        """CPU time in ns since the beginning: of the `process`, None without one, and of `cpus`.

        The CPUs' times are all that the kernel did on them, and what others did there too.
        """
        now = None if self.running is None else self.running.cpu_time()
        process = None
        if now is not None and self.process is not None:
            process = {name: value - self.process[name] for name, value in now.items()}
        cpus = {
            str(cpu): {name: value - self.cpus[cpu].get(name, 0) for name, value in times.items()}
            for cpu, times in busy(list(self.cpus)).items()
        }
        return {"process": process, "cpus": cpus}


def busy(cpus: Sequence[int], proc: Path = PROC) -> dict[int, dict[str, int]]:
    """What the CPUs have spent their time on since boot, in ns."""
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    times: dict[int, dict[str, int]] = {}
    for line in (proc / "stat").read_text(encoding="ascii").splitlines():
        words = line.split()
        name = words[0].removeprefix("cpu") if words else ""
        if name.isdecimal() and int(name) in cpus:
            times[int(name)] = {
                column: int(words[at]) * tick_ns
                for column, at in COLUMNS.items()
                if at < len(words)
            }
    return times
