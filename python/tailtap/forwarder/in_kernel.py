"""Forwarding by the kernel itself: there is no process, and the rules go with the namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailtap.forwarder.setting import READY_SECONDS


@dataclass(frozen=True)
class InKernel:
    """Rules that are installed; its work is counted by the DuT's CPUs."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was found out about them, for ``run.json``."""
    process: None = None
    holds_ns: int = 0
    ready_seconds: float = READY_SECONDS

    def cpu_time(self) -> None:
        """None: the kernel's work is nobody's."""

    def failure(self) -> str:
        """Why it lets nothing through, as one line."""
        return (
            f"the forwarder {self.name} lets nothing through: does it work on this kernel? "
            "`tailtap doctor` tells"
        )

    def stop(self) -> dict[str, Any]:
        """What was found out."""
        return dict(self.facts)

    def close(self) -> None:
        """The rules go with the namespace."""
