"""What a trace says of itself: ``trace.json``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailtap.records.record import Count, Cpu, Record, Texts


class Served(Record, kw_only=True):
    """By what packets are served."""

    node: str | None = None
    by: Literal["softirq", "task", "poll", "vcpu"]
    vector: Count | None = None
    pids: list[Count] | None = None
    cpus: list[Cpu] | None = None


class NodeServed(Served, kw_only=True):
    """By what packets are served in a node."""

    node: str


class TraceNames(Record, kw_only=True):
    """What tasks, interrupts and functions are called."""

    pids: dict[Annotated[str, Meta(pattern=r"^-?[0-9]{1,10}$")], str] | None = None
    irqs: dict[Annotated[str, Meta(pattern=r"^[0-9]{1,10}$")], str] | None = None
    functions: dict[Annotated[str, Meta(pattern=r"^0x[0-9a-f]{1,16}$")], str] | None = None


class TraceRecord(Record, kw_only=True):
    """``trace.json``."""

    clock: str | None = None
    boot_id: str | None = None
    mode: str | None = None
    cpus: list[Cpu]
    started_ns: Count
    ended_ns: Count
    records: Count | None = None
    lost: dict[str, Count] | None = None
    missing: Texts | None = None
    substitutes: Texts | None = None
    senders: list[Cpu] | None = None
    served: Served | Annotated[list[NodeServed], Meta(min_length=1)] | None
    names: TraceNames | None = None
