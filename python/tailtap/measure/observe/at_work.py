"""Taps and tracer at work on what is observed: processes of ours that end when we do."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import re
import selectors
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.base.files import make_folder
from tailtap.base.units import format_share, list_cpus
from tailtap.lab.instruments.taps.inline import READY_SECONDS, stopped
from tailtap.lab.instruments.taps.kinds import PCAP
from tailtap.lab.instruments.tracer import ended, warnings_of
from tailtap.measure.observe.interfaces import Xdp
from tailtap.measure.observe.look import SNAP
from tailtap.measure.observe.prepared import SLUGS, Prepared
from tailtap.records.datapath import TapsOfFlows, TapsSoFar
from tailtap.records.live import ObservedCost
from tailtap.records.record import Notice, parsed
from tailtap.records.trace import Taken
from tailtap.remote.local import STOP_SECONDS, LocalHost, Process

SIDES = ("ingress", "egress")
MARKS = "marks"
SETTLE_SECONDS = 0.2
"""How long packets may be under way after the last one that counts came."""
TELL_NS = 200_000_000
LOOK_SECONDS = 1.0
COST_AFTER_SECONDS = 0.5
"""When what all of this costs is measured first, then ever later, up to `COST_AGAIN_SECONDS`."""
COST_AGAIN_SECONDS = 60.0
BUSY_SECONDS = 120.0
"""How long loading the tracer's programs may take on a machine that is busy."""


@dataclass(frozen=True)
class Stopped:
    """What taps and tracer left."""

    taps: TapsOfFlows
    """By the run folder's name and the side."""
    trace: Taken | None
    warnings: Sequence[Notice]
    cost: ObservedCost | None
    """None where the kernel does not tell."""
    span_ns: tuple[int, int]
    """Packets that came between these two moments count, by the monotonic clock."""
    xdp: Mapping[str, Xdp] = field(default_factory=dict)
    """The XDP programs before stamps, and what they dropped, by the interfaces' targets."""


@dataclass
class AtWork:
    """The processes of one observation, which write into a folder."""

    prepared: Prepared
    folder: Path
    tap: Process
    tracer: Process | None
    xdp: Mapping[str, Xdp] = field(default_factory=dict)
    warnings: list[Notice] = field(default_factory=list)
    cost: ObservedCost | None = None
    began_ns: int = field(default_factory=time.monotonic_ns)
    """When all programs were attached."""
    told: TapsSoFar | None = None

    @classmethod
    def start(
        cls,
        prepared: Prepared,
        folder: Path,
        *,
        rotate_ns: int | None = None,
        tell_ns: int | None = None,
    ) -> AtWork:
        """Begin to stamp and to trace into run folders in `folder`, which exists.

        With `rotate_ns` they go on to another file so often, and with `tell_ns` the taps say
        so often what they counted. Returns when all programs are attached. Raises `MachineError`.
        """
        for slug, _ in zip(SLUGS, prepared.ways, strict=False):
            make_folder(folder / slug, below=folder)
        and_tracer = " and the tracer" if prepared.traced else ""
        prepared.options.on_step(f"loading the taps{and_tracer}")
        host = LocalHost()
        words = _tap_words(prepared, folder, rotate_ns, tell_ns)
        traced = _trace_words(prepared, folder / SLUGS[0], rotate_ns)
        with contextlib.ExitStack() as stack:
            tracing = None
            if prepared.traced:
                tracing = host.start([*host.program, *traced])
                stack.callback(tracing.close)
                if suffix_of(prepared) != MARKS:
                    # It has to see what all packets waited for; of marks the earlier ones are cut.
                    tracing.ready(BUSY_SECONDS)
            tap = host.start([*host.program, *words])
            stack.callback(tap.close)
            tap.ready(READY_SECONDS)
            if tracing is not None and suffix_of(prepared) == MARKS:
                tracing.ready(BUSY_SECONDS)
            stack.pop_all()
        return cls(prepared, folder, tap, tracing, prepared.xdp())

    def watch(self, look: Callable[[float | None], object] | None = None) -> None:
        """Return when the time that was asked for is over, or so many packets have passed.

        `look` is called each second with the seconds that are left, None where no time was asked
        for. Raises `MachineError` when a tap or the tracer ended.
        """
        began = time.monotonic()
        duration_ns = self.prepared.options.duration_ns
        end = inf if duration_ns is None else began + duration_ns / 1e9
        costs = began + COST_AFTER_SECONDS
        with selectors.DefaultSelector() as selector:
            for process in self._processes():
                selector.register(process, selectors.EVENT_READ)
            while not self._look() and (now := time.monotonic()) < end:
                if now >= costs:
                    self._measure_cost()
                    costs = now + min(COST_AGAIN_SECONDS, 4 * (now - began))
                    for key in list(selector.get_map().values()):
                        if key.fileobj not in self._processes():
                            selector.unregister(key.fileobj)
                again = min(end, costs)
                if look is not None:
                    look(None if end == inf else end - now)
                    again = min(again, now + LOOK_SECONDS)
                while (left := again - time.monotonic()) > 0:
                    if selector.select(left) and self._look():
                        return

    def _processes(self) -> Sequence[Process]:
        return [one for one in (self.tap, self.tracer) if one is not None]

    def _look(self) -> bool:
        """Take in what the processes said; whether as many packets as were asked for have passed.

        Raises `MachineError` when one of them has ended.
        """
        while self.tap.readable():
            lines = self.tap.read_available()
            if lines is None:
                raise MachineError(self.tap.failure())
            for line in lines:
                self.told = parsed(self.tap.title, json.loads(line), TapsSoFar, MachineError)
        if self.tracer is not None and self.tracer.readable():
            raise MachineError(self.tracer.failure())
        options = self.prepared.options.packets
        if options is None or self.told is None:
            return False
        return all(link.seen >= options for link in self.told.links.values())

    def _measure_cost(self) -> None:
        pids = [self.tap.pid, None if self.tracer is None else self.tracer.pid]
        try:
            found, took = shares(pids)
        except MachineError as error:
            self._warning("observing-cost", str(error))
            return
        taps, trace = (one / self.prepared.serving.cores for one in found)
        self.cost = ObservedCost(
            budget=self.prepared.options.budget, taps=taps, trace=trace, measured_ns=took
        )

    def stop(self) -> Stopped:
        """End both; what they left. Raises `MachineError`."""
        until = time.monotonic_ns()
        xdp = {name: one.since(self.xdp.get(name)) for name, one in self.prepared.xdp().items()}
        time.sleep(SETTLE_SECONDS)
        taps = stopped(self.tap)
        trace = None
        if self.tracer is not None:
            self.tracer.interrupt()
            trace = ended(self.tracer, STOP_SECONDS)
            self.warnings += warnings_of(trace)
        self.close()
        self._judge_cost(trace)
        unknown = self.prepared.serving.unknown
        if unknown and self.prepared.traced:
            self._warning("serving-unknown", f"not known: {'; '.join(unknown)}")
        return Stopped(taps, trace, self.warnings, self.cost, (self.began_ns, until), xdp)

    def _judge_cost(self, trace: Taken | None) -> None:
        """Say whether it was more than the budget; a trace knows what it took with its pauses."""
        if self.cost is None or (budget := self.cost.budget) is None:
            return
        if trace is not None and trace.share is not None:
            self.cost.trace = trace.share / self.prepared.serving.cores
        taken = self.cost.taps + self.cost.trace
        if taken > budget:
            self._warning(
                "observing-cost",
                f"observing took {format_share(taken)} of the serving cores' time, and the budget "
                f"is {100 * budget:g} %",
            )

    def close(self) -> None:
        """End what still runs. May be called again."""
        for process in self._processes():
            process.close()

    def _warning(self, code: str, message: str) -> None:
        self.warnings = [one for one in self.warnings if one.code != code]
        self.warnings.append(Notice(code, message))


def _tap_words(
    prepared: Prepared, folder: Path, rotate_ns: int | None, tell_ns: int | None
) -> list[str]:
    options = prepared.options
    links = [
        str(end.link(f"{slug}/{side}"))
        for slug, way in zip(SLUGS, prepared.ways, strict=False)
        for side, end in zip(SIDES, way, strict=True)
    ]
    words = ["tap", *links, "--json", "--clock", "monotonic"]
    if tell_ns is not None or options.packets is not None:
        words += ["--tell", f"{tell_ns or TELL_NS} ns"]
    words += ["--write", str(folder / f"{{link}}.{suffix_of(prepared)}")]
    if suffix_of(prepared) == MARKS:
        words += ["--hash", prepared.looked.key]
        if options.budget is not None:
            words += _budget(prepared)
            behind = [f"{slug}/{SIDES[1]}" for slug, _ in zip(SLUGS, prepared.ways, strict=False)]
            words += [word for name in behind for word in ("--behind", name)]
    else:
        words += ["--snap-length", SNAP]
    if options.filter is not None:
        words += ["--filter", options.filter]
    if options.sample > 1:
        words += ["--sample", f"1/{options.sample}"]
    return [*words, *_rotated(rotate_ns), *_on(prepared)]


def suffix_of(prepared: Prepared) -> str:
    """What the taps write: marks, or what is more than a hash."""
    return MARKS if prepared.hashed else PCAP


def _trace_words(prepared: Prepared, folder: Path, rotate_ns: int | None) -> list[str]:
    serving = prepared.serving
    words = ["trace", "--cpus", list_cpus(serving.cpus), "--out", str(folder), "--json"]
    words += ["--mode", prepared.options.trace]
    for server in serving.servers:
        words += ["--served", str(server)]
    if serving.networks and any(one.served.by == "softirq" for one in serving.servers):
        words += ["--networks", ",".join(map(str, serving.networks))]
    if prepared.options.budget is not None:
        words += _budget(prepared)
    return [*words, *_rotated(rotate_ns), *_on(prepared)]


def _budget(prepared: Prepared) -> list[str]:
    """What taps may take, and so much a tracer: of one core, of which several may serve."""
    share = (prepared.options.budget or 0.0) * prepared.serving.cores
    return ["--budget", f"{min(100.0, 100 * share / (2 if prepared.traced else 1)):g} %"]


def _rotated(rotate_ns: int | None) -> list[str]:
    """Going on to another file; each is whole half that time later."""
    return [] if rotate_ns is None else ["--rotate", f"{rotate_ns} ns",
                                         "--flush", f"{rotate_ns // 2} ns"]  # fmt: skip


def _on(prepared: Prepared) -> list[str]:
    """Where what is stamped and traced is written, if there is a CPU that serves nothing."""
    return [] if prepared.spare is None else ["--cpu", str(prepared.spare)]


MOMENT_SECONDS = 0.25
_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
"""That of bpf(2), by machine."""
_ENABLE_STATS = 32
_ATTRIBUTES = 128
"""Bytes of its argument, of which the first four are BPF_STATS_RUN_TIME, 0."""
_RUN_TIME = re.compile(r"^prog_id:\s*(\d+)$.*^run_time_ns:\s*(\d+)$", re.MULTILINE | re.DOTALL)


def shares(processes: Sequence[int | None]) -> tuple[list[float], int]:
    """The share of one core's time that the eBPF programs of each process take, and how many ns
    that was measured. None and what is gone take nothing. Raises `MachineError`.
    """
    with _counting():
        before, began = [_spent(pid) for pid in processes], time.monotonic_ns()
        time.sleep(MOMENT_SECONDS)
        after, took = [_spent(pid) for pid in processes], time.monotonic_ns() - began
    spent = [
        sum(now - earlier.get(program, now) for program, now in later.items())
        for earlier, later in zip(before, after, strict=True)
    ]
    return [one / took for one in spent], took


@contextlib.contextmanager
def _counting() -> Iterator[None]:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise MachineError(f"the cost of programs is not known on {platform.machine()}")
    attributes = ctypes.create_string_buffer(_ATTRIBUTES)
    call = ctypes.CDLL(None, use_errno=True).syscall
    descriptor = call(number, _ENABLE_STATS, attributes, _ATTRIBUTES)
    if descriptor < 0:
        reason = os.strerror(ctypes.get_errno())
        raise MachineError(f"the cost of programs is not known: bpf: {reason} (Linux 5.8, root)")
    try:
        yield
    finally:
        os.close(descriptor)


def _spent(pid: int | None) -> dict[str, int]:
    """The time in ns of each program that a process holds, by the program's number."""
    found: dict[str, int] = {}
    if pid is None:
        return found
    with contextlib.suppress(OSError):  # it ended
        for path in Path(f"/proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                match = _RUN_TIME.search(path.read_text(encoding="ascii"))
                if match:
                    found[match[1]] = int(match[2])
    return found
