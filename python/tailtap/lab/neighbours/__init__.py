"""Neighbours load CPUs while packets are measured: a file and a row in `NEIGHBOURS` each.

A neighbour is defined noise. What it does is asked for in numbers, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from tailtap.base.registry import Kind, Registry
from tailtap.records import run as records
from tailtap.remote import Host
from tailtap.remote.local import STOP_SECONDS, Process

__all__ = ["NEIGHBOURS", "Neighbour"]


class Neighbour(Kind, Protocol):
    """A kind of load; it runs as ``tailtap load``, a process on each of its CPUs."""

    unit: str
    """What it counts, such as ``bytes``."""
    Options: type[BaseModel]
    """Its options; `cpus` are among them."""

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

READY_SECONDS = 30.0
"""How long touching its memory may take."""

ENOUGH = 0.9
"""The part of what was asked for that a neighbour should reach."""

PREFIX = "tt-"
"""Its threads are called so, and by the neighbour's name."""


@dataclass(frozen=True)
class Asked:
    """A neighbour as an experiment has it; `options` is an instance of its kind's `Options`."""

    name: str
    kind: str
    options: Any


class Neighbours:
    """All neighbours of a run."""

    def __init__(self, host: Host, asked: Sequence[Asked]) -> None:
        """Returns when all of them are at work. Raises `MachineError`."""
        self._asked = asked
        self._processes: dict[tuple[str, int], Process] = {}
        try:
            for one in asked:
                words = NEIGHBOURS[one.kind].arguments(one.options)
                for cpu in one.options.cpus:
                    command = [*host.program, "load", one.kind, "--cpu", str(cpu), *words]
                    name, nice = f"{PREFIX}{one.name}", str(one.options.nice)
                    command += ["--name", name, "--nice", nice, "--json"]
                    self._processes[one.name, cpu] = host.start(command)
            for process in self._processes.values():
                process.expect("ready", READY_SECONDS)
        except BaseException:
            self.close()
            raise

    @property
    def sources(self) -> Sequence[Process]:
        return list(self._processes.values())

    def trouble(self) -> str | None:
        for (name, cpu), process in self._processes.items():
            if process.readable():
                return f"the neighbour {name} on CPU {cpu}: {process.failure()}"
        return None

    def stop(self) -> dict[str, records.Neighbour]:
        """End them: by name the `kind`, what each CPU was `asked` for, its `unit`, and for each of
        the `cpus` what was `reached` and the CPU time. Raises `MachineError`.
        """
        for process in self._processes.values():
            process.interrupt()
        told: dict[str, records.Neighbour] = {}
        for one in self._asked:
            kind = NEIGHBOURS[one.kind]
            cpus = {}
            for cpu in one.options.cpus:
                done = self._processes[one.name, cpu].expect("done", STOP_SECONDS)
                work = {key: done[key] for key in ("done", "cpu_ns", "elapsed_ns")}
                cpus[str(cpu)] = records.Load(reached=kind.reached(*work.values()), **work)
            told[one.name] = records.Neighbour(
                kind=one.kind, unit=kind.unit, asked=kind.asked(one.options), cpus=cpus
            )
        self.close()
        return told

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()


def too_little(told: Mapping[str, records.Neighbour]) -> Iterator[Mapping[str, str]]:
    """A warning about each neighbour that did less than it was asked for."""
    for name, one in told.items():
        short = [cpu for cpu, row in one.cpus.items() if row.reached < ENOUGH * one.asked]
        if short:
            parts = ", ".join(
                f"{one.cpus[cpu].reached / one.asked:.0%} on CPU {cpu}" for cpu in short
            )
            yield {
                "code": "neighbour-short",
                "message": f"the neighbour {name} did less than its load: {parts}",
            }
