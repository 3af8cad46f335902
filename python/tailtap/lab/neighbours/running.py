"""Neighbours at work: a process for each of their CPUs, and what they have done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailtap.lab.neighbours import NEIGHBOURS
from tailtap.records.run import Load, Neighbour
from tailtap.remote import Host
from tailtap.remote.process import STOP_SECONDS, Process

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

    def stop(self) -> dict[str, Neighbour]:
        """End them: by name the `kind`, what each CPU was `asked` for, its `unit`, and for each of
        the `cpus` what was `reached` and the CPU time. Raises `MachineError`.
        """
        for process in self._processes.values():
            process.interrupt()
        told: dict[str, Neighbour] = {}
        for one in self._asked:
            kind = NEIGHBOURS[one.kind]
            cpus = {}
            for cpu in one.options.cpus:
                done = self._processes[one.name, cpu].expect("done", STOP_SECONDS)
                work = {key: done[key] for key in ("done", "cpu_ns", "elapsed_ns")}
                cpus[str(cpu)] = Load(reached=kind.reached(*work.values()), **work)
            told[one.name] = Neighbour(
                kind=one.kind, unit=kind.unit, asked=kind.asked(one.options), cpus=cpus
            )
        self.close()
        return told

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()


def too_little(told: Mapping[str, Neighbour]) -> Iterator[Mapping[str, str]]:
    """A warning about each neighbour that did less than it was asked for."""
    for name, one in told.items():
        short = [cpu for cpu, row in one.cpus.items() if row.reached < ENOUGH * one.asked]
        if short:
            parts = ", ".join(
                f"{one.cpus[cpu].reached / one.asked:.0%} on CPU {cpu}" for cpu in short
            )
            yield {
                "code": "neighbour-short",
                "message": f"the neighbour {name} reached less than it was asked for: {parts}",
            }
