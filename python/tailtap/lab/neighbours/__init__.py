"""Neighbours load CPUs while packets are measured: a class and a row in `NEIGHBOURS` each.

A neighbour is defined noise. What it does is asked for in numbers, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, Field, field_validator

from tailtap.base.errors import Check
from tailtap.base.registry import Kind, Registry
from tailtap.base.schema import Cpus, Size, Strict, Time
from tailtap.base.units import format_share
from tailtap.records import run as records
from tailtap.records.record import Notice
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


NEIGHBOURS: Registry[Neighbour] = Registry(
    "neighbour",
    "tailtap.neighbours",
    Neighbour,
    lambda: {
        "cpu": Processor(),
        "cache": Cache(),
        "memory": Memory(),
        "interrupts": Interrupts(),
        "packets": Packets(),
    },
)
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


def too_little(told: Mapping[str, records.Neighbour]) -> Iterator[Notice]:
    """A warning about each neighbour that did less than it was asked for."""
    for name, one in told.items():
        short = [cpu for cpu, row in one.cpus.items() if row.reached < ENOUGH * one.asked]
        if short:
            parts = ", ".join(
                f"{format_share(one.cpus[cpu].reached / one.asked)} on CPU {cpu}" for cpu in short
            )
            yield Notice(
                "neighbour-short",
                f"the neighbour {name} did less than its load: {parts}",
            )


Percent = Annotated[int, Field(ge=1, le=100)]


class OnCpus(Strict):
    """A neighbour on some CPUs."""

    cpus: Cpus = Field(
        description="The CPUs that it loads, each by a thread of its own. They may be those of the "
        "DuT.",
        examples=[[1]],
    )

    nice: Annotated[int, Field(ge=-20, le=19)] = Field(
        default=0,
        description="How much it gives way to others: from -20, which takes the core from ordinary "
        "tasks, to 19.",
        examples=[-20],
    )


class Busy(OnCpus):
    """A neighbour that wants a share of its CPUs."""

    busy: Percent = Field(
        default=50,
        description="How much of each period it works, in per cent of a CPU's time.",
        examples=[20],
    )
    period: Time = Field(
        default=10_000_000,
        description="It works at the beginning of each period, and sleeps for the rest.",
        examples=["100 ms"],
    )

    @field_validator("period")
    @classmethod
    def _no_shorter_than_its_clock(cls, period: int) -> int:
        if not 100_000 <= period <= 10_000_000_000:
            raise ValueError("a period lasts from 100 us to 10 s")
        return period


class _Own:
    """A neighbour that is a part of tailtap."""

    def diagnose(self) -> Iterator[Check]:
        return iter(())


class Sharing(_Own):
    """A kind of neighbour that is asked for a share of its CPUs' time."""

    def arguments(self, options: Any) -> Sequence[str]:
        return ["--busy", str(options.busy), "--period", f"{options.period} ns"]

    def asked(self, options: Any) -> float:
        return float(options.busy / 100)

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        return cpu_ns / elapsed_ns


class Paced(_Own):
    """A kind of neighbour that is asked for so many `unit` per second."""

    def arguments(self, options: Any) -> Sequence[str]:
        return ["--per-second", f"{self.asked(options):.0f}"]

    def asked(self, options: Any) -> float:
        return float(options.rate)

    def reached(self, done: int, cpu_ns: int, elapsed_ns: int) -> float:
        return done * 1e9 / elapsed_ns


class Processor(Sharing):
    """It takes the core, and touches no memory."""

    summary = "Computes for a share of the time."
    documentation = "What it takes is the core alone: it touches no memory."
    unit = "ns of CPU time"
    Options: type[BaseModel] = Busy


LARGEST = 1 << 32


class CacheOptions(Busy):
    """How much memory, and how long in which period."""

    size: Size = Field(
        default=8 << 20,
        description="How much memory it reads.",
        examples=["32 MiB"],
    )

    @field_validator("size")
    @classmethod
    def _that_fits(cls, size: int) -> int:
        if not 4096 <= size <= LARGEST:
            raise ValueError("it reads from 4 KiB to 4 GiB")
        return size


class Cache(Sharing):
    """Each line says which one is next, so that no prefetcher helps."""

    summary = "Reads cache lines in a random order for a share of the time."
    documentation = "Each line says which one is next, so that no prefetcher helps."
    unit = "lines"
    Options: type[BaseModel] = CacheOptions

    def arguments(self, options: CacheOptions) -> Sequence[str]:
        return [*super().arguments(options), "--size", f"{options.size} B"]


class MemoryOptions(OnCpus):
    """How much per second."""

    rate: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="How many megabytes each of its CPUs copies per second, between two areas of "
        "128 MiB; as many are read as written.",
        examples=[1000],
    )


class Memory(Paced):
    """It takes bandwidth of memory from others."""

    summary = "Copies memory at a rate."
    documentation = "It takes bandwidth of memory, and lines of the last cache."
    unit = "bytes"
    Options: type[BaseModel] = MemoryOptions

    def asked(self, options: MemoryOptions) -> float:
        return options.rate * 1_000_000


class InterruptsOptions(OnCpus):
    """How many per second."""

    rate: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="How often per second a timer interrupts each of its CPUs, and wakes a task "
        "that sleeps again.",
        examples=[1000],
    )


class Interrupts(Paced):
    """Each time costs an interrupt, and a switch to the task and back."""

    summary = "Is woken by a timer at a rate."
    documentation = "Each time costs an interrupt, and a switch to the task and back."
    unit = "wake-ups"
    Options: type[BaseModel] = InterruptsOptions


class PacketsOptions(OnCpus):
    """How many per second, and how many at once."""

    rate: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        description="How many datagrams per second the receive softirq of each of its CPUs "
        "delivers, each of them to 16 sockets.",
        examples=[50_000],
    )
    burst: Annotated[int, Field(ge=1, le=64)] = Field(
        default=64,
        description="How many of them come at once.",
        examples=[16],
    )


class Packets(Paced):
    """They are sent and received on the same CPU, by way of a loopback interface."""

    summary = "Has the receive softirq deliver packets of its own at a rate."
    documentation = (
        "They are in a network namespace of their own. A burst of 64 occupies the softirq "
        "for some 0.3 ms."
    )
    unit = "datagrams"
    Options: type[BaseModel] = PacketsOptions

    def arguments(self, options: PacketsOptions) -> Sequence[str]:
        return [*super().arguments(options), "--burst", str(options.burst)]
