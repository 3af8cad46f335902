"""Who serves the packets of a device that was there before: found by a look, and by the kernel's
files.

A packet leaves in the context of what serves it: the softirq, or a thread. So a short trace of all
CPUs and the stamps of packets that left meanwhile say who had the core then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.base.proc import ALLOWED, status
from tailtap.base.proc import names as process_names
from tailtap.base.units import parse_cpus, ranges
from tailtap.host.cpu.cpus import usable
from tailtap.lab.instruments.tracer import EVENTS, RECORD
from tailtap.lab.served import SOFTIRQ, Served, Server
from tailtap.measure.observe.interfaces import Interface, behind_tap
from tailtap.records.live import ObservedServer
from tailtap.records.record import read
from tailtap.records.stamps import Marks
from tailtap.records.trace import By, TraceRecord

EVENT = np.dtype(
    [("start", "<u8"), ("dur", "<u4"), ("kind", "u1"), ("flags", "u1"), ("cpu", "<u2"),
     ("aux", "<u8"), ("id", "<u4"), ("steal", "<u4")]
)  # fmt: skip
"""A record of a trace; docs/reference/files.md."""
_MAGIC = b"TTTRACE1"
_SOFTIRQ, _TASK, _SUMMED = 5, 6, 1
_NETS = (2, 3)
"""The softirqs that send and receive packets."""
LEAST_SHARE = 0.1
"""What served fewer of the packets is no server of its own."""
POLLING_SHARE = 0.95
"""A thread that had a core for so much of the look never sleeps."""
WIDE = 8
"""Interrupts or threads that may be on more CPUs than this say nothing of where they are."""
UNKNOWN = -1
"""The context of a packet of which the trace does not tell."""

Times = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Serving:
    """Who serves, and where; what `tailtap trace --served` and `--cpus` are told."""

    servers: Sequence[Server]
    rows: Sequence[ObservedServer]
    """The same for the record of the run."""
    cpus: Sequence[int]
    """Those to be traced: where packets were served, or are said to be."""
    found: Sequence[str] = ()
    unknown: Sequence[str] = ()
    networks: Sequence[int] = ()
    """The network namespaces that packets pass, where all are known."""
    cores: int = 1
    """How many cores were seen serving, at least 1: what a share of their time is of."""


@dataclass(frozen=True)
class Contexts:
    """What had a core when each of some packets passed a tap."""

    packets: int
    """How many passed while there was a trace."""
    threads: Mapping[int, int]
    """Of how many each thread was it; 0 is the softirq."""
    names: Mapping[int, str]
    busy: Mapping[int, float]
    """The share of the look for which a thread had a core."""
    cpus: Collection[int]
    """Where they were served."""

    def shares(self) -> dict[int, float]:
        """Who served a share of the packets that is worth telling."""
        told = {thread: count / max(1, self.packets) for thread, count in self.threads.items()}
        return {thread: share for thread, share in told.items() if share >= LEAST_SHARE}


def contexts(folder: Path, left: Marks) -> Contexts:
    """Who had its core when each packet left, by the trace of all CPUs in `folder`.

    Raises `InputError`.
    """
    record = read(folder / RECORD, TraceRecord)
    times = left["time_ns"]
    left = left[(times >= record.started_ns) & (times <= record.ended_ns) & (left["cpu"] > 0)]
    events = np.fromfile(folder / EVENTS, EVENT, offset=len(_MAGIC))
    events = np.sort(events[(events["flags"] & _SUMMED) == 0], order="start")
    threads = Counter[int]()
    cpus = []
    for cpu in record.cpus:
        at = left["time_ns"][left["cpu"] == cpu + 1]
        here = events[events["cpu"] == cpu]
        nets = here[(here["kind"] == _SOFTIRQ) & np.isin(here["id"], _NETS)]
        task = _covering(here[here["kind"] == _TASK], at)
        threads.update(np.where(_covering(nets, at) != UNKNOWN, 0, task).tolist())
        if len(at) >= LEAST_SHARE * len(left):
            cpus.append(cpu)
    del threads[UNKNOWN]
    tasks = events[events["kind"] == _TASK]
    span = max(1, record.ended_ns - record.started_ns)
    busy = {thread: float(tasks["dur"][tasks["id"] == thread].sum()) / span for thread in threads}
    names = {one: record.names.pids.get(str(one), "") for one in threads if one}
    return Contexts(len(left), threads, names, busy, cpus)


def cpus_at(folder: Path, times: Times, pids: Collection[int]) -> npt.NDArray[np.uint16]:
    """The CPUs, counted from 1, on which one of these threads or, without any, the softirq was at
    work at these times, by the trace in `folder`; 0 where it does not say. Raises `InputError`.
    """
    record = read(folder / RECORD, TraceRecord)
    events = np.fromfile(folder / EVENTS, EVENT, offset=len(_MAGIC))
    kind, ids = (_TASK, list(pids)) if pids else (_SOFTIRQ, list(_NETS))
    events = events[(events["kind"] == kind) & np.isin(events["id"], ids)]
    events = np.sort(events[(events["flags"] & _SUMMED) == 0], order="start")
    found = np.zeros(len(times), np.uint16)
    for cpu in record.cpus:
        found[_covering(events[events["cpu"] == cpu], times) != UNKNOWN] = cpu + 1
    return found


def _covering(events: npt.NDArray[np.void], times: Times) -> npt.NDArray[np.int64]:
    """The id of the event that covers each time; `UNKNOWN` where none does. They ascend."""
    if not len(events):
        return np.full(len(times), UNKNOWN, np.int64)
    place = np.searchsorted(events["start"], times, "right").astype(np.int64) - 1
    one = events[np.maximum(place, 0)]
    covers = (place >= 0) & (times <= one["start"] + one["dur"])
    return np.where(covers, one["id"].astype(np.int64), UNKNOWN)


def serving_of(
    came: Interface, left: Interface, seen: Contexts | None, *, is_behind: bool
) -> Serving:
    """Who serves between two interfaces, by what a look found, if packets passed.

    The device `is_behind` the interfaces where packets leave through the first one and come back by
    the other, as of a virtual machine.
    """
    guests = sorted({pid for one in (came, left) for pid in behind_tap(one.name)
                     if is_behind and one.kind == "tun"})  # fmt: skip
    if guests:
        return _of_guest(came, left, guests, seen.cpus if seen else ())
    places, found = _places((came, left))
    unknown = []
    if is_behind:
        unknown.append(
            "the device is at the other end of its interfaces: what of its work is done on other "
            "cores than where packets come back"
        )
    shares = {} if seen is None else seen.shares()
    if not shares:
        unknown.append("nobody was seen serving packets: it is taken for the softirq")
    own = list(_servers(shares, seen))
    seen_on = seen.cpus if seen else ()
    narrow = (cpu for one, _, _ in own for cpu in _narrow(one.pids))
    cpus = sorted({*seen_on, *places, *narrow}) or sorted(usable())
    rows = [
        ObservedServer(by=one.by, cpus=cpus, threads=names, share=share)
        for one, names, share in own
    ]
    several = len(own) > 1
    servers = [Server(one, one.by, cpus) if several else Server(one) for one, _, _ in own]
    if came.inode != left.inode:
        unknown.append("which network namespaces packets pass between both interfaces")
    return Serving(
        servers=servers,
        rows=rows,
        cpus=cpus,
        found=[*found, *map(_told, rows)],
        unknown=unknown,
        networks=[came.inode] if came.inode == left.inode else [],
        cores=max(1, len(seen_on)),
    )


def _servers(
    shares: Mapping[int, float], seen: Contexts | None
) -> Iterator[tuple[Served, dict[str, str], float | None]]:
    """By what packets are served: the softirq, threads that sleep, threads that poll."""
    if seen is None or not shares:
        yield SOFTIRQ, {}, None
        return
    if 0 in shares:
        yield SOFTIRQ, {}, shares[0]
    polling = {one for one in shares if one and seen.busy[one] >= POLLING_SHARE}
    kinds: tuple[tuple[By, Set[int]], ...] = (
        ("task", shares.keys() - {0} - polling),
        ("poll", polling),
    )
    for by, own in kinds:
        if own:
            names = {str(one): seen.names.get(one, "") for one in sorted(own)}
            yield Served(by, sorted(own)), names, sum((shares[one] for one in own), 0.0)


def _told(row: ObservedServer) -> str:
    where = f"CPU{'s' if len(row.cpus) > 1 else ''} {ranges(row.cpus)}"
    if row.share is None:
        return f"the softirq is taken for what serves, on {where}"
    names = ", ".join(f"{name} ({pid})" for pid, name in row.threads.items()) or "the softirq"
    kind = ", which never sleeps" if row.by == "poll" else ""
    return f"{100 * row.share:.0f} % of the packets left while {names}{kind} had {where}"


def _narrow(pids: Sequence[int]) -> Iterator[int]:
    """The CPUs that threads may run on, of those that may not run nearly everywhere."""
    for pid in pids:
        cpus = parse_cpus(status(pid).get(ALLOWED, ""))
        if len(cpus) <= WIDE:
            yield from cpus


def _places(both: Sequence[Interface]) -> tuple[set[int], list[str]]:
    """The CPUs on which packets that come in by interfaces are received, and what says so."""
    cpus, said = set(), []
    for one in {(each.inode, each.index): each for each in both}.values():
        for number, going in one.interrupts.items():
            said.append(f"interrupt {number} of {one.name} may go to CPUs {ranges(going)}")
            cpus |= set(going) if len(going) <= WIDE else set()
        if one.steered:
            said.append(f"packets of {one.name} are steered to CPUs {ranges(one.steered)} (RPS)")
            cpus |= set(one.steered)
        if one.is_threaded:
            said.append(f"threads of the kernel poll {one.name} (threaded NAPI)")
    return cpus, said


def _of_guest(
    came: Interface, left: Interface, processes: Sequence[int], used: Collection[int]
) -> Serving:
    """The virtual CPUs of a virtual machine whose tap devices are observed."""
    tasks = (process_names(Path("/proc", str(process), "task")) for process in processes)
    virtual = {pid: name for each in tasks for pid, name in each.items() if name.startswith("CPU ")}
    helping = {f"vhost-{pid}" for pid in processes}
    helpers = {pid: name for pid, name in process_names().items() if name in helping}
    cpus = sorted({*used, *_narrow([*virtual, *helpers])})
    names = ", ".join(f"{name} ({pid})" for pid, name in {**virtual, **helpers}.items())
    holder = f"process {' and '.join(map(str, processes))}"
    found = [f"{holder} holds the other end of {came.name} and {left.name}: {names or 'QEMU'}"]
    unknown = ["what the guest's own kernel does: its virtual CPUs are followed from outside"]
    if not virtual:
        return Serving([], [], cpus, found=found, unknown=[*unknown, "which its virtual CPUs are"])
    row = ObservedServer(by="vcpu", cpus=cpus, threads={str(pid): n for pid, n in virtual.items()})
    servers = [Server(Served("vcpu", sorted(virtual)))]
    return Serving(servers, [row], cpus, found=found, unknown=unknown, cores=max(1, len(used)))
