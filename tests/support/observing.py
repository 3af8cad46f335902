"""What instruments observe, where there is nothing to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailtap.remote.local import Process


@dataclass
class NoLinks:
    """Links as a lab has them, of which a test says what befalls them."""

    processes: Sequence[Process] = ()
    broken: list[str] = field(default_factory=list)

    def watch(self) -> Sequence[Process]:
        return self.processes

    def deleted_port(self, line: str) -> str | None:
        return line.removeprefix("deleted ") if line.startswith("deleted ") else None

    def broken_ports(self) -> Sequence[str]:
        return self.broken
