"""Forwarding by the kernel itself: there is no process, and the rules go with the namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailtap.lab.forwarders.served import SOFTIRQ, Served
from tailtap.lab.forwarders.setting import READY_SECONDS


@dataclass(frozen=True)
class InKernel:
    """Installed rules. The counters of the DuT's CPUs include their work."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the rules, for ``run.json``."""
    kernel: Served = SOFTIRQ
    """By what of the kernel packets are served."""
    process: None = None
    holds_ns: int = 0
    ready_seconds: float = READY_SECONDS
    warnings: Sequence[Mapping[str, str]] = ()

    def served(self) -> Served:
        """By the softirq that receives, or by threads that do so in its place."""
        return self.kernel

    def cpu_time(self) -> None:
        """None: no process does the kernel's work."""

    def failure(self) -> str:
        """Why it lets nothing through, as one line."""
        return (
            f"the forwarder {self.name} lets nothing through: does it work on this kernel? "
            "`tailtap doctor` tells"
        )

    def stop(self) -> dict[str, Any]:
        """Return the facts; the rules stay."""
        return dict(self.facts)

    def close(self) -> None:
        """The rules go with the namespace."""
