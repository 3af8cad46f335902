"""What neighbours have in common: options, and what these ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator

from tailtap.base.check import Check
from tailtap.base.schema import Cpus, Size, Strict, Time

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
