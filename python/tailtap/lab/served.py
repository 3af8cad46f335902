"""By what a forwarder's packets are served: what must have a core so that a packet moves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tailtap.base.errors import InputError
from tailtap.base.files import read_text
from tailtap.base.proc import PROC, parse_stat, pids, stat, stats
from tailtap.base.units import list_cpus, parse_cpus
from tailtap.records.record import made
from tailtap.records.trace import NET_RX, By, NodeServer
from tailtap.records.trace import Server as ServerRecord
from tailtap.remote import Host

if TYPE_CHECKING:
    from tailtap.lab.platforms.dut import Dut
    from tailtap.lab.topology.lab import Lab
    from tailtap.lab.topology.placement import Placed

_WRITTEN = re.compile(r"(softirq|task|poll|vcpu)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")


@dataclass(frozen=True)
class Served:
    """By what, and for threads by which of them."""

    by: By
    """`softirq`: NET_RX on the DuT's CPUs. `task`: threads that sleep until packets come. `poll`:
    threads that never sleep. `vcpu`: the threads of a virtual machine's CPUs.
    """
    pids: Sequence[int] = ()
    """The ids of the threads, as this kernel numbers them."""

    @classmethod
    def parse(cls, text: str) -> Served:
        """What `str` wrote: ``softirq``, or ``task:PID,PID``. Raises `InputError`."""
        match = _WRITTEN.fullmatch(text)
        if match is None or (match[1] == "softirq") == (match[2] is not None):
            raise InputError(
                f"{text!r} does not say by what packets are served: write softirq, or task, poll "
                "or vcpu with the ids of its threads, 'task:812,813'"
            )
        pids = match[2].split(",") if match[2] else []
        return cls(cast(By, match[1]), tuple(map(int, pids)))

    def __str__(self) -> str:
        """As `tailtap trace --served` takes it."""
        return f"{self.by}:{','.join(map(str, self.pids))}" if self.pids else self.by


@dataclass(frozen=True)
class Server:
    """By what a node's packets are served, and where."""

    served: Served
    node: str = ""
    """Empty for a device that is one node."""
    cpus: Sequence[int] = ()
    """Empty for all that are traced."""

    @classmethod
    def parse(cls, text: str) -> Server:
        """What `str` wrote: ``softirq``, or ``dut2=task:812,813@0,1``. Raises `InputError`."""
        node, _, rest = text.rpartition("=")
        written, _, cpus = rest.partition("@")
        try:
            return cls(Served.parse(written), node, parse_cpus(cpus) if "@" in rest else ())
        except ValueError:
            wrong = InputError(f"{cpus!r} is no list of CPUs: write them as in '2-3,5'")
            raise wrong.at(repr(text)) from None

    def __str__(self) -> str:
        """As `tailtap trace --served` takes it."""
        node = f"{self.node}=" if self.node else ""
        return f"{node}{self.served}" + (f"@{list_cpus(self.cpus)}" if self.cpus else "")


def server_records(
    servers: Sequence[Server], cpus: Sequence[int]
) -> ServerRecord | list[NodeServer] | None:
    """``served`` of ``trace.json``: None, one object, or a row for each node.

    `cpus` are those of what names none. Raises `InputError` when several name no nodes.
    """
    if len(servers) > 1 and (
        len({one.node for one in servers}) < len(servers) or not all(one.node for one in servers)
    ):
        raise InputError(
            "where several things serve packets, each names its node: 'dut1=softirq@0' and "
            "'dut2=task:812@1'"
        )
    rows = [
        NodeServer(
            node=one.node,
            by=one.served.by,
            vector=NET_RX if one.served.by == "softirq" else None,
            pids=list(one.served.pids),
            cpus=list(one.cpus or cpus),
        )
        for one in servers
    ]
    return made(rows[0], ServerRecord) if len(rows) == 1 else rows or None


SOFTIRQ = Served("softirq")
"""The kernel forwards, where it receives."""


def by_kernel(lab: Lab, dut: Dut) -> Served:
    """By what the kernel forwards on a node: threads, or the softirq.

    With threaded NAPI what the softirq would do runs in the threads that poll its ports
    (`dut.napi: threads`). Where the kernel has threads for what is steered to a CPU, they serve
    ports that are no cards.
    """
    threads = lab.port_threads(dut.node)
    if not threads and not dut.host.own_kernel:  # a guest's cards interrupt it
        threads = steered_threads(lab.placed(dut.node), backlog_threads())
    return Served("task", threads) if threads else SOFTIRQ


def steered_threads(placed: Placed, of_cpus: Mapping[int, int]) -> Sequence[int]:
    """Which of the kernel's threads receive packets of a node's ports; none where softirqs do.

    `of_cpus` has the thread of each CPU. What is steered nowhere is received wherever it was sent.
    """
    ports = [cpus for port, cpus in placed.receiving.items() if port not in placed.cards]
    if not all(ports):
        return sorted(of_cpus.values())
    return sorted({of_cpus[cpu] for cpus in ports for cpu in cpus if cpu in of_cpus})


def threads_of(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """The threads of a process and of all that it started; none of one that is gone."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        tasks = proc / str(waiting.pop()) / "task"
        for thread in pids(tasks):
            found.append(thread)
            waiting += map(int, (read_text(tasks / str(thread) / "children") or "").split())
    return tuple(found)


# The shell tells its own id, which the program has that it becomes.
_TELL = "echo $$; exec cat /proc/[0-9]*/task/[0-9]*/stat"
_AGENT, _KTHREADD = 1, 2
"""The first process of a guest, and the parent of the threads of its kernel."""


def in_guest(served: Served, guest: Host) -> Served:
    """By what packets are served in a virtual machine, its threads as its own kernel numbers them.

    Nothing runs in a guest of ours but what was started there, so that these are all threads of
    processes besides the agent; of a forwarder that polls, those that run. So ask while nothing
    but the forwarder was started. Raises `MachineError`.
    """
    if served.by == "softirq":
        return served
    asking, *lines = guest.run(["sh", "-c", _TELL], check=False).stdout.splitlines()
    pids = []
    for thread in filter(None, map(parse_stat, lines)):
        if thread.pid in (int(asking), _AGENT, _KTHREADD) or thread.parent == _KTHREADD:
            continue
        if served.by != "poll" or thread.state == "R":
            pids.append(thread.pid)
    return Served(served.by, pids)


def is_running(thread: int, proc: Path = PROC) -> bool:
    """Whether a thread has a CPU or waits for one; proc_pid_stat(5)."""
    found = stat(thread, proc)
    return found is not None and found.state == "R"


_NAME = re.compile(r"backlog_napi/(\d+)")


def backlog_threads(proc: Path = PROC) -> dict[int, int]:
    """The thread of each CPU, by the CPU's number; none where softirqs receive."""
    return {
        int(match[1]): one.pid
        for one in stats(proc)
        if one.parent == _KTHREADD and (match := _NAME.fullmatch(one.name))
    }
