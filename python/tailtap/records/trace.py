"""What a trace says of itself: ``trace.json``, and what a run keeps of it."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Literal

from msgspec import Meta, field

from tailtap.records.record import Count, Cpu, CpuText, Number, Record, Texts, Whole, says

By = Literal["softirq", "task", "poll", "vcpu"]
NET_RX = 3
"""The number of the softirq that receives; ``enum`` in include/linux/interrupt.h."""


class Server(Record, kw_only=True):
    """By what packets are served."""

    by: By
    vector: Annotated[Count | None, says("The number of the softirq")] = None
    pids: Annotated[list[Count], says("The threads, as that kernel numbers them")] = []
    cpus: Annotated[list[Cpu], says("Empty: all that are traced")] = []


class NodeServer(Server, kw_only=True):
    """By what packets are served in a node."""

    node: str


class UsualPasses(Record, kw_only=True):
    """Passes of usual packets, which have no records."""

    passes: Count
    half_ns: Annotated[Count, says("What half of all passes took at most")]


ROLES = {
    "generate": "generator",
    "tap": "stamper",
    "trace": "tracer",
    "forward": "forwarder",
    "load": "neighbour",
    "observe": "observer",
}
"""What commands of ours are in a run."""
_CONTAINER = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?$")
_POD = re.compile(r"pod([0-9a-f]{8})[0-9a-f_-]{24,28}(?:\.slice)?$")
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}")


def group_name(path: str) -> str:
    """A control group in short: pod and container, or the last part of its path."""
    parts = path.strip("/").split("/")
    pod = next((f"pod {found[1]}" for part in parts if (found := _POD.search(part))), "")
    container = _CONTAINER.search(parts[-1])
    other = "" if pod else _HASH.sub(r"\1", parts[-1])
    last = f"container {container[1]}" if container else other
    return ", ".join(filter(None, (pod, last)))


class Task(Record, kw_only=True):
    """Who a task is: when it ended before anybody looked, what the trace says of it."""

    pid: Annotated[Count, says("Its process")]
    command: Annotated[
        str | None, says("Null for threads of the kernel, and for what ended before anybody looked")
    ] = None
    policy: Annotated[str, says("OTHER, BATCH, IDLE, FIFO, RR, DEADLINE or EXT; sched(7)")]
    priority: Annotated[Whole, says("From 1 to 99 with FIFO and RR, else the nice value")]
    cgroup: Annotated[str | None, says("The path of its control group")] = None
    own: Annotated[bool, says("Whether tailtap started it")] = False

    @property
    def scheduling(self) -> str:
        """Its policy, and its priority where that is not the usual one."""
        if not self.priority:
            return self.policy
        nice = "" if self.policy in ("FIFO", "RR") else ", nice"
        return f"{self.policy}{nice} {self.priority}"

    def words(self, name: str, group: str) -> str:
        """Who it is, in every run alike, with its `name` and what its group is called."""
        if not self.own:
            how = self.scheduling.removeprefix("OTHER").removeprefix(", ")
            return ", ".join(filter(None, (name, how, group)))
        # Threads are called so, too: it may have ended before anybody looked.
        command = name.removeprefix("tt-")
        words = iter((self.command or "").split())
        if any(PurePath(word).name == "tailtap" for word in words):
            command = next((word for word in words if not word.startswith("-")), "")
        elif self.command or command not in ROLES:
            return f"{name}, started by tailtap"
        return f"{name}, tailtap's {ROLES.get(command) or command or 'own'}"


Pid = Annotated[str, Meta(pattern=r"^-?[0-9]{1,10}$")]


class TraceNames(Record, kw_only=True):
    """What tasks, interrupts and functions are called."""

    pids: dict[Pid, str] = {}
    tasks: Annotated[dict[Pid, Task], says("Who they are, as far as that is known")] = {}
    irqs: dict[Annotated[str, Meta(pattern=r"^[0-9]{1,10}$")], str] = {}
    functions: dict[Annotated[str, Meta(pattern=r"^0x[0-9a-f]{1,16}$")], str] = {}


class TraceFacts(Record, kw_only=True):
    """What any trace tells of itself."""

    clock: str | None = None
    boot_id: str | None = None
    mode: str = ""
    cpus: list[Cpu]
    senders: Annotated[
        list[Cpu], says("CPUs that tell those of packets, and are no part of them")
    ] = []
    started_ns: Annotated[Count, says("When all programs were attached")]
    ended_ns: Annotated[Count, says("When the first of them was taken away")]
    records: Count | None = None
    lost: Annotated[dict[CpuText, Count], says("Records that had no room, by CPU")] = {}
    missing: Texts = []
    substitutes: Texts = []
    steal: Annotated[bool | None, says("Whether the hypervisor tells what it takes")] = None
    floor_ns: Annotated[Count, says("Interrupts and softirqs that are shorter are added up")] = 0
    usual: Annotated[
        dict[CpuText, UsualPasses], says("By CPU; empty: every packet has its records")
    ] = {}
    writes: Count = 0
    paused_ns: Annotated[Count, says("So long nothing was traced, to keep the budget")] = 0
    share: Annotated[
        Number | None,
        says(
            "Of one core's time, what its programs took, pauses included; null where "
            "it has no budget"
        ),
    ] = None
    served: Annotated[
        Server | Annotated[list[NodeServer], Meta(min_length=1)] | None,
        says("Null where nobody said so; a list where the device has several nodes"),
    ]
    kernel: str | None = None


class TraceRecord(TraceFacts, kw_only=True, tag_field="schema", tag="tailtap.trace/1"):
    """``trace.json``."""

    names: TraceNames = field(default_factory=TraceNames)


class Taken(TraceFacts, kw_only=True):
    """What ``tailtap trace`` says at its end, and the record of a run keeps."""

    kinds: dict[str, Count]
    hooks: Annotated[
        dict[str, tuple[Count, Count, Count]],
        says(
            "For each tracepoint how often its program ran, the time of that in ns "
            "(0 unless measured), and the events that it did not see"
        ),
    ]

    @property
    def skipped(self) -> int:
        """Events that were not seen, as they interrupted the program at work on one like them."""
        return sum(missed for _, _, missed in self.hooks.values())
