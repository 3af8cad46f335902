"""Neighbours load CPUs while packets are measured: a file and a row in `NEIGHBOURS` each.

A neighbour is defined noise. What it does is asked for in numbers, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from tailtap.base.check import Check
from tailtap.base.registry import Registry

__all__ = ["NEIGHBOURS", "Neighbour"]


class Neighbour(Protocol):
    """A kind of load; it runs as ``tailtap load``, a process on each of its CPUs."""

    summary: str
    documentation: str
    unit: str
    """What it counts, such as ``bytes``."""
    Options: type[BaseModel]
    """Its options; `cpus` are among them."""

    def diagnose(self) -> Iterator[Check]:
        """What `tailtap doctor` says of it."""

    def arguments(self, options: Any) -> Sequence[str]:
        """Those of ``tailtap load`` that say how much."""

    def asked(self, options: Any) -> float:
        """What each CPU is asked for: the number of `unit` per second, or a share of its time."""

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        """The same as it came to be."""


def _built_in() -> Mapping[str, Neighbour]:
    from tailtap.lab.neighbours.kinds import Cache, Interrupts, Memory, Packets, Processor

    return {
        "cpu": Processor(),
        "cache": Cache(),
        "memory": Memory(),
        "interrupts": Interrupts(),
        "packets": Packets(),
    }


NEIGHBOURS: Registry[Neighbour] = Registry("neighbour", "tailtap.neighbours", Neighbour, _built_in)
"""Every kind of neighbour by its name in the experiment file."""
