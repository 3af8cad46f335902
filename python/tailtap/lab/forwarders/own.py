"""Forwarders that are ``tailtap forward``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from tailtap.base.errors import Findings, MachineError
from tailtap.base.proc import stat
from tailtap.base.schema import Rate, Strict, Time, Written
from tailtap.base.units import list_cpus
from tailtap.host.net.port_work import poll_in_threads
from tailtap.lab.forwarders.setting import (
    OTHER_KERNEL,
    READY_SECONDS,
    Asked,
    CpuTime,
    Plain,
    Serves,
    Setting,
    cpu_time,
)
from tailtap.lab.platforms.dut import Dut
from tailtap.lab.served import Served, by_kernel, threads_of
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.lab import Lab
from tailtap.records.record import Notice
from tailtap.remote.local import STOP_SECONDS, Process

START_SECONDS = 15.0
"""Seconds from its start until it must report that it forwards."""


@dataclass(frozen=True)
class Forwarding:
    """The program while it runs; `holds_ns` is the longest time that it holds a packet."""

    name: str
    process: Process
    holds_ns: int = 0
    ready_seconds: float = READY_SECONDS
    hint: str = ""
    """Why it may let nothing through."""
    warnings: Sequence[Notice] = ()
    own_kernel: bool = False
    """Whether it runs under another kernel, so that its process here is only a proxy."""
    kernel: Served | None = None
    """By what of the kernel packets are served; None when this program does it."""
    others: Mapping[str, Forwarding] = field(default_factory=dict)
    """More of it, for other ways through the same node: `reverse`, or the names of two ports."""

    @classmethod
    def start(cls, name: str, dut: Dut, arguments: Sequence[str], holds_ns: int = 0) -> Forwarding:
        """Start it and wait until it forwards. Raises `MachineError`."""
        process = dut.host.start([*dut.host.program, "forward", *arguments, "--json"])
        process.ready(START_SECONDS * dut.patience)
        return cls(name, process, holds_ns, own_kernel=dut.host.own_kernel)

    def served(self) -> Served:
        if self.kernel is not None:
            return self.kernel
        pids = [self.process.pid, *(one.process.pid for one in self.others.values())]
        return Served("task", [thread for pid in pids for thread in threads_of(pid)])

    def cpu_time(self) -> CpuTime | None:
        found = None if self.own_kernel else stat(self.process.pid)
        return None if found is None else cpu_time(found)

    def failure(self) -> str:
        if self.process.ended:
            return f"the forwarder {self.name}: {self.process.failure()}"
        hint = f": {self.hint}" if self.hint else ""
        return f"the forwarder {self.name} runs and lets nothing through{hint}"

    def stop(self) -> dict[str, Any]:
        self.process.interrupt()
        done = self.process.expect("done", STOP_SECONDS)
        self.process.close()
        told = {name: value for name, value in done.items() if name != "event"}
        return {**told, **{name: one.stop() for name, one in self.others.items()}}

    def close(self) -> None:
        self.process.close()
        for one in self.others.values():
            one.close()


PacketIds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**32)], ...],
    Field(strict=False, max_length=10_000),
    Written("list of packet ids"),
]


class Hold(Strict):
    """Packets that are held; `time` in ns."""

    ids: PacketIds = Field(
        description="The ids of these packets, counted from 0.", examples=[[100, 200]]
    )
    time: Time = Field(description="How long they are held.", examples=["2 ms"])


class Limit(Strict):
    """A device of known speed: `rate` in pkt/s; `queue` packets wait, more are dropped."""

    rate: Rate = Field(
        description="How many packets it forwards per second.", examples=["5 kpkt/s"]
    )
    queue: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=100,
        description="How many packets may wait; it drops more.",
        examples=[50],
    )


class FaultOptions(Strict):
    """Packets to hold, drop and duplicate, by their ids from 0, and the speed of the device."""

    hold: Hold | None = Field(
        default=None,
        description="Which packets it holds, and how long. By default none.",
        examples=[{"ids": [100, 200], "time": "2 ms"}],
    )
    drop: PacketIds = Field(
        default=(),
        description="The ids of packets that it drops, counted from 0.",
        examples=[[300]],
    )
    duplicate: PacketIds = Field(
        default=(),
        description="The ids of packets that it sends twice, counted from 0.",
        examples=[[400]],
    )
    limit: Limit | None = Field(
        default=None,
        description="The speed of the device. By default it has no limit.",
        examples=[{"rate": "5 kpkt/s", "queue": 50}],
    )

    @property
    def longest_ns(self) -> int:
        hold = 0 if self.hold is None else self.hold.time
        wait = 0 if self.limit is None else self.limit.queue * 1_000_000_000 // self.limit.rate
        return max(hold, wait)

    @model_validator(mode="after")
    def _one_fate_each(self) -> FaultOptions:
        held = () if self.hold is None else self.hold.ids
        for one, other, what in (
            (held, self.drop, "held and dropped"),
            (self.drop, self.duplicate, "dropped and duplicated"),
        ):
            both = sorted(set(one) & set(other))
            if both:
                raise ValueError(f"packet {both[0]} cannot be {what}")
        return self


class Fault(Plain):
    """``tailtap forward`` on the first of the DuT's CPUs.

    Each way through the node has a process. With traffic in both directions only the forward one
    has faults: packets that come in at the egress port pass a process on the last of the CPUs,
    unchanged.
    """

    name = "fault"
    summary = "Forwards, and holds, drops, duplicates or limits packets as told (layer 2)."
    documentation = (
        "A DuT with a known fault, to try a measurement on. `tailtap forward` on the first of the "
        "DuT's CPUs."
    )
    serves: Serves = "ports"
    shares_cpus = True
    Options: type[BaseModel] = FaultOptions

    def start(self, dut: Dut, options: FaultOptions, setting: Setting) -> Forwarding:
        arguments: list[str] = []
        if options.hold is not None and options.hold.ids:
            arguments += ["--hold", _list(options.hold.ids)]
            arguments += ["--hold-for", f"{options.hold.time} ns"]
        if options.drop:
            arguments += ["--drop", _list(options.drop)]
        if options.duplicate:
            arguments += ["--duplicate", _list(options.duplicate)]
        if options.limit is not None:
            arguments += ["--limit", f"{options.limit.rate} pkt/s"]
            arguments += ["--queue", str(options.limit.queue)]
        others: dict[str, Forwarding] = {}
        with contextlib.ExitStack() as stack:
            for number, (entered, left) in reversed(list(enumerate(dut.ways))):
                back = (left, entered) in dut.ways[:number]
                words = [entered, left, "--cpu", str(dut.cpus[-1 if back else 0])]
                words += [] if back else arguments
                holds = 0 if back else options.longest_ns
                running = Forwarding.start("fault", dut, words, holds)
                stack.callback(running.close)
                if number:
                    others["reverse" if back else f"{entered} to {left}"] = running
            stack.pop_all()
        return replace(running, others=others)


def _list(ids: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in ids)


GENERIC_HINT = (
    "in generic mode the kernel lets packets pass that were redirected to the port, as the lab's "
    "are: use dut.options.mode: native"
)


class XdpOptions(Strict):
    """Where the program runs: in the kernel's receive path, or in the driver."""

    mode: Literal["native", "generic"] = Field(
        default="native",
        description="native runs in the driver; generic in the kernel's receive path, with any "
        "driver, on network cards only.",
        examples=["generic"],
    )


class Xdp(Plain):
    """``tailtap forward --xdp``; the program stays for as long as that process."""

    name = "xdp"
    remedy = OTHER_KERNEL
    summary = "tailtap's own XDP program redirects packets from one port to the other (layer 2)."
    documentation = (
        "On the lab's links it runs in a kernel thread on the DuT's CPUs (threaded NAPI, Linux "
        "5.12), on network cards where dut.irq sends their interrupts. Ready within 2 s."
    )
    in_kernel = True
    serves: Serves = "ports"
    Options: type[BaseModel] = XdpOptions

    def foresee(self, options: XdpOptions, asked: Asked, findings: Findings) -> None:
        if options.mode == "generic" and not (asked.cards or asked.own_kernel):
            findings.notes.append(f"dut.forwarder: {GENERIC_HINT}")

    def start(self, dut: Dut, options: XdpOptions, setting: Setting) -> Forwarding:
        mode = options.mode
        lab = setting.lab
        cards = lab.graph.cards_of(dut.node)
        if mode == "native":
            # A veth port takes redirected frames only if its peer polls, as it does with GRO on.
            for port in dict.fromkeys(left for _, left in dut.ways if left not in cards):
                peer = lab.graph.peer(Port(dut.node, port))
                lab.host(peer.node).run(["ethtool", "-K", peer.name, "gro", "on"])
        started: dict[str, Forwarding] = {}
        threads: list[int] = []
        with contextlib.ExitStack() as stack:
            for number, (entered, left) in enumerate(dut.ways):
                if (left, entered) in dut.ways[:number]:
                    continue  # one program does both
                arguments = [entered, left, "--xdp", mode]
                arguments += ["--both-ways"] if (left, entered) in dut.ways else []
                running = started[f"{entered} to {left}"] = Forwarding.start("xdp", dut, arguments)
                stack.callback(running.close)
            if mode == "native":
                for entered in (entered for entered, _ in dut.ways if entered not in cards):
                    threads += _poll_in_thread(lab, dut, entered)
            stack.pop_all()
        kernel = Served("task", threads) if threads else by_kernel(lab, dut)
        hint = GENERIC_HINT if mode == "generic" else ""
        first = started.pop(next(iter(started)))
        return replace(first, kernel=kernel, hint=hint, others=started)


def _poll_in_thread(lab: Lab, dut: Dut, port: str) -> list[int]:
    """Move the polling of `port` to where its packets are to be received: the threads' ids.

    Raises `MachineError`.
    """
    cpus, placement = dut.cpus, lab.graph.node(dut.node).placement
    if not dut.host.own_kernel:
        cpus = lab.placed(dut.node).receiving[port]
    if not cpus or placement.threads:  # it is left where it is, or it is there
        return []
    try:
        return sorted(map(int, poll_in_threads(dut.host, port, list_cpus(cpus))))
    except MachineError as error:
        raise MachineError("use dut.options.mode: generic").at(error) from error
