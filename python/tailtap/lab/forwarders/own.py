"""Forwarders that are ``tailtap forward``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailtap.lab.forwarders.program import parse_cpu_time
from tailtap.lab.forwarders.served import Served, threads_of
from tailtap.lab.forwarders.setting import READY_SECONDS, CpuTime
from tailtap.lab.platforms.dut import Dut
from tailtap.remote.process import STOP_SECONDS, Process

START_SECONDS = 15.0
"""Seconds from its start until it must report that it forwards."""


@dataclass(frozen=True)
class Forwarding:
    """The program while it runs; `holds_ns` is the longest time that it holds a packet."""

    name: str
    process: Process
    holds_ns: int = 0
    ready_seconds: float = READY_SECONDS
    hint: str = ""
    """Why it may let nothing through."""
    warnings: Sequence[Mapping[str, str]] = ()
    own_kernel: bool = False
    """Whether it runs under another kernel, so that its process here is only a proxy."""
    kernel: Served | None = None
    """By what of the kernel packets are served; None when this program does it."""
    others: Mapping[str, Forwarding] = field(default_factory=dict)
    """More of it, for other ways through the same node: `reverse`, or the names of two ports."""

    @classmethod
    def start(cls, name: str, dut: Dut, arguments: Sequence[str], holds_ns: int = 0) -> Forwarding:
        """Start it and wait until it forwards. Raises `MachineError`."""
        process = dut.host.start([*dut.host.program, "forward", *arguments, "--json"])
        process.ready(START_SECONDS * dut.patience)
        return cls(name, process, holds_ns, own_kernel=dut.host.own_kernel)

    def served(self) -> Served:
        """By the kernel, or by threads that wait for packets."""
        if self.kernel is not None:
            return self.kernel
        pids = [self.process.pid, *(one.process.pid for one in self.others.values())]
        return Served("task", [thread for pid in pids for thread in threads_of(pid)])

    def cpu_time(self) -> CpuTime | None:
        """The CPU time of all its threads so far; None when it is gone or out of sight."""
        if self.own_kernel:
            return None
        with contextlib.suppress(OSError):
            return parse_cpu_time(Path(f"/proc/{self.process.pid}/stat").read_text("utf-8"))
        return None

    def failure(self) -> str:
        """Why it ended early or lets nothing through, as one line."""
        if self.process.ended:
            return f"the forwarder {self.name}: {self.process.failure()}"
        hint = f": {self.hint}" if self.hint else ""
        return f"the forwarder {self.name} runs and lets nothing through{hint}"

    def stop(self) -> dict[str, Any]:
        """Interrupt it; what it counted."""
        self.process.interrupt()
        done = self.process.expect("done", STOP_SECONDS)
        self.process.close()
        told = {name: value for name, value in done.items() if name != "event"}
        return {**told, **{name: one.stop() for name, one in self.others.items()}}

    def close(self) -> None:
        """End it if it still runs."""
        self.process.close()
        for one in self.others.values():
            one.close()
