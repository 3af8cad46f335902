"""One run: build the lab, start everything, wait for the traffic, stop everything."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tailtap import forwarder, platform
from tailtap.capture import TAPS
from tailtap.errors import MachineError
from tailtap.experiment.counters import Counters, memory_of
from tailtap.experiment.folder import RunFolder
from tailtap.experiment.model import Experiment
from tailtap.experiment.quality import Measured, Sent
from tailtap.files import write_json
from tailtap.forwarder import Running, Setting
from tailtap.forwarder.setting import CpuTime
from tailtap.host.perf import Counting, window
from tailtap.host.process import Process
from tailtap.platform import Dut
from tailtap.topology.lab import FORWARD, FROM_DUT, INGRESS_TAP, REVERSE, Lab, Way
from tailtap.traffic import GENERATORS
from tailtap.traffic.external import MOONSNIFF
from tailtap.traffic.model import Traffic

SETTLE_SECONDS = 0.1
"""How long packets may be under way after the last one was sent."""
PROBE_SECONDS = 2.0
"""How long the first packet may take where there is no DuT."""
PROBE_AGAIN_SECONDS = 0.3
"""How long to wait for the probe's packets before others are sent."""
OVERTIME = 3.0
OVERTIME_SECONDS = 30.0
"""A generator that takes this much longer than the traffic lasts hangs."""
TICK_SECONDS = 1.0
"""How often the progress is told; each time costs the machine a wake-up."""
ROOM = 1.05
SPARE_ROOM = 65_536
"""Stamps that the taps have room for, beyond the packets that are sent: duplicates, strays."""

Tick = Callable[[float], None]
"""Called now and then with the seconds since the generator was started."""


class Guard(Protocol):
    """Says during a measurement whether its rest is worth making."""

    period: float
    """How often it is asked, in s; each time costs the machine a wake-up."""

    def over(self, seconds: float, ingress: int, egress: int, reach: float) -> bool:
        """Whether to end it after `seconds`.

        So many packets have come to the ingress and the egress tap by now, warm-up and probes
        included. `reach` is how long in s a packet may be under way before it counts as lost.
        """
        ...


def measure(
    experiment: Experiment,
    folder: RunFolder,
    tick: Tick | None,
    guard: Guard | None = None,
    reverse: RunFolder | None = None,
) -> Measured:
    """Make one measurement into `folder`: both stamp files and ``generator.json``.

    The other direction of bidirectional traffic goes into `reverse`. A measurement that the
    `guard` ends is whole but for its length.

    Raises `MachineError` when it cannot be made or something broke during it. Whatever happens,
    nothing of it stays on the machine.
    """
    traffic, dut = experiment.traffic, experiment.dut
    ways = [_Direction(FORWARD, traffic, folder)]
    if reverse is not None:
        ways.append(_Direction(REVERSE, traffic.reversed(), reverse))
    counts = experiment.counters and platform.PLATFORMS[dut.platform].has_dut
    with _away_from(dut.cpus, {way.traffic.cpu for way in ways}):
        if not counts:
            return _measure(experiment, ways, tick, guard, None)
        # From before the DuT is built until it is gone. Whoever starts and ends it is not on its
        # CPUs, so that these tell nothing of that.
        with Counting() as counting:
            before = counting.read()
            measured = _measure(experiment, ways, tick, guard, counting)
            lifetime = window(before, counting.read(), None)
            return replace(measured, counts={**measured.counts, "lifetime": lifetime})


@dataclass(frozen=True)
class _Direction:
    """What is sent which way, and where it is stored."""

    way: Way
    traffic: Traffic
    folder: RunFolder


def _measure(
    experiment: Experiment,
    ways: Sequence[_Direction],
    tick: Tick | None,
    guard: Guard | None,
    counting: Counting | None,
) -> Measured:
    """`measure`, by `counting` also what processors do while packets are sent."""
    traffic, dut = experiment.traffic, experiment.dut
    generator = GENERATORS[traffic.generator]
    tap = TAPS["inline"]
    both_ways = len(ways) > 1
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(
            Lab(max(traffic.sizes), both_ways=both_ways, cables=experiment.cables())
        )
        device = platform.PLATFORMS[dut.platform].build(lab, experiment.wanted(both_ways=both_ways))
        lab.wait_until_up()
        running = None
        if device is not None:
            setting = Setting(lab, ways[0].folder.path, traffic)
            running = _start_forwarder(experiment, device, setting)
            stack.callback(running.close)
        room = int(traffic.packets * ROOM) + SPARE_ROOM
        patience = 1.0 if device is None else device.patience
        stamping: list[Process] = []
        for one in ways:
            stamping.append(tap.start(lab.tap, one.folder.path, room, one.way))
            stack.callback(stamping[-1].close)
        for one in ways:
            _probe(lab, one, running, patience)
        if traffic.key != MOONSNIFF:
            # At another place the packets of the probe have an id as well. They are over now.
            for place, one in enumerate(ways):
                tap.stop(stamping[place])
                stamping[place] = tap.start(
                    lab.tap, one.folder.path, room, one.way, one.traffic.key
                )
                stack.callback(stamping[place].close)
        watching = lab.watch()
        for process in watching:
            stack.callback(process.close)
        working = list(stamping)
        if running is not None and running.process is not None:
            working.append(running.process)

        spent_before = None if running is None else running.cpu_time()
        counted_before = None if counting is None else counting.read()
        before, began = Counters.read(), time.monotonic_ns()
        sending: list[Process] = []
        for one in ways:
            sending.append(generator.start(lab.generator, one.way.generator, one.traffic))
            stack.callback(sending[-1].close)
        try:
            holds = 0 if running is None else running.holds_ns / 1e9
            reach = SETTLE_SECONDS * patience + holds
            watch = None if guard is None else _Watch(guard, stamping[0].pid, reach)
            _Traffic(lab, sending, working, watching).wait(traffic.seconds, tick, watch)
            sent = [generator.result(process) for process in sending]
            time.sleep(reach)
            counters, ended = Counters.read().since(before), time.monotonic_ns()
            spent = _since(spent_before, None if running is None else running.cpu_time())
            counts = {}
            if counting is not None and counted_before is not None:
                counts["run"] = window(counted_before, counting.read(), dut.cpus)
            memory = None
            seen = device is not None and not device.host.own_kernel  # else it is a stand-in
            if seen and running is not None and running.process is not None:
                memory = memory_of(running.process.pid)
            _check_ports(lab)
            counted = [tap.stop(process) for process in stamping]
            told = {} if running is None else {**running.stop(), "cpu_ns": spent}
        except Vanished:
            raise
        except MachineError as error:
            _check_ports(lab)  # a vanished interface explains every other failure
            if running is not None and running.process is not None and running.process.ended:
                raise MachineError(running.failure()) from error
            raise
        for one, content in zip(ways, sent, strict=True):
            write_json(one.folder.generator, content)
        back = Sent(sent[1], counted[1]) if both_ways else None
        result = Measured(
            sent[0], counted[0], counters, ended - began, told, {}, counts, back, memory
        )
        if device is None:
            return result
        return replace(
            result,
            platform=device.facts,
            own_kernel=device.host.own_kernel,
            doubts=device.warnings,
        )


@contextlib.contextmanager
def _away_from(dut_cpus: Iterable[int], generator_cpus: Iterable[int]) -> Iterator[None]:
    """Keep this process and its children off the measured CPUs, as far as there are others.

    Generators and the forwarder then pin themselves to theirs.
    """
    before = os.sched_getaffinity(0)
    for occupied in ({*generator_cpus, *dut_cpus}, set(dut_cpus)):
        if before - occupied:
            os.sched_setaffinity(0, before - occupied)
            break
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _since(before: CpuTime | None, now: CpuTime | None) -> CpuTime | None:
    """The CPU time between two readings; None when one of them could not be had."""
    if before is None or now is None:
        return None
    return {name: value - before[name] for name, value in now.items()}


def _start_forwarder(experiment: Experiment, device: Dut, setting: Setting) -> Running:
    kind = forwarder.FORWARDERS[experiment.dut.forwarder]
    return kind.start(device, kind.Options.model_validate(experiment.dut.options), setting)


def _probe(lab: Lab, one: _Direction, running: Running | None, patience: float) -> None:
    """Send packets until one gets from the generator to the egress tap.

    Everything may take `patience` times longer than usual. Raises `MachineError` when the forwarder
    ends or its time is over.
    """
    before = lab.received(lab.tap, one.way.egress)
    generator = GENERATORS[one.traffic.generator]
    limit = patience * (PROBE_SECONDS if running is None else running.ready_seconds)
    deadline = time.monotonic() + limit
    while True:
        if running is not None and running.process is not None and running.process.ended:
            raise MachineError(running.failure())
        generator.probe(lab.generator, one.way.generator, one.traffic)
        again = time.monotonic() + PROBE_AGAIN_SECONDS
        while time.monotonic() < again:
            if lab.received(lab.tap, one.way.egress) != before:
                return
            time.sleep(0.005)
        if time.monotonic() > deadline:
            why = "the lab's links are broken" if running is None else running.failure()
            if one.way is REVERSE:
                raise MachineError(
                    f"no packet came back through the DuT within {limit:g} s: leave out "
                    f"traffic.bidirectional if the forwarder carries packets one way only: {why}"
                )
            raise MachineError(f"no packet came through the DuT within {limit:g} s: {why}")


class Vanished(MachineError):
    """A link of the lab was deleted while packets were sent."""


@dataclass(frozen=True)
class _Watch:
    """A guard, and where it sees the packets pass."""

    guard: Guard
    tap: int
    """The process id of the taps: what it sees of the network is their namespace."""
    reach: float

    def over(self, seconds: float) -> bool:
        # The egress first: what passes both taps in between counts in favour of the device.
        egress = received(self.tap, FROM_DUT)
        ingress = received(self.tap, INGRESS_TAP)
        return self.guard.over(seconds, ingress, egress, self.reach)


def received(pid: int, port: str) -> int:
    """Packets that `port` has received since it exists, as the process `pid` sees it."""
    for line in Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines():
        name, _, columns = line.partition(":")
        if name.strip() == port:
            return int(columns.split()[1])
    return 0  # it vanished: somebody else tells


@dataclass(frozen=True)
class _Traffic:
    """Everything that runs while packets are sent."""

    lab: Lab
    sending: Sequence[Process]
    working: Sequence[Process]
    watching: Sequence[Process]

    def wait(self, seconds: float, tick: Tick | None, watch: _Watch | None) -> None:
        """Return when every generator has ended, after about `seconds`; sleep until then.

        They are ended early when `watch` says so.

        Raises `MachineError` when a link is deleted, a tap or forwarder ends, or time runs out.
        """
        began = time.monotonic()
        deadline = began + OVERTIME * seconds + OVERTIME_SECONDS
        with selectors.DefaultSelector() as selector:
            left = set(self.sending)
            for process in (*self.sending, *self.working, *self.watching):
                selector.register(process, selectors.EVENT_READ)
            while True:
                pause = max(0.0, deadline - time.monotonic())
                if tick is not None:
                    pause = min(pause, TICK_SECONDS)
                if watch is not None:
                    pause = min(pause, watch.guard.period)
                ready = {key.fileobj for key, _ in selector.select(pause)}
                for process in self.watching:
                    if process in ready and not self._read_news(process):
                        selector.unregister(process)  # the check at the end stands in for it
                for process in self.working:
                    if process in ready:
                        raise MachineError(process.failure())
                for process in [process for process in left if process in ready]:
                    left.remove(process)
                    selector.unregister(process)  # its result is read later
                if not left:
                    return
                if time.monotonic() > deadline:
                    raise MachineError(f"{next(iter(left)).title} does not come to an end")
                if tick is not None:
                    tick(time.monotonic() - began)
                if watch is not None and watch.over(time.monotonic() - began):
                    watch = None
                    for process in left:
                        process.interrupt()

    def _read_news(self, process: Process) -> bool:
        """False when there will be no more. Raises `MachineError` for a link that is gone."""
        lines = process.read_available()
        for line in lines or ():
            port = self.lab.deleted_port(line)
            if port is not None:
                raise Vanished(f"interface {port} vanished during the run")
        return lines is not None


def _check_ports(lab: Lab) -> None:
    broken = lab.broken_ports()
    if broken:
        raise MachineError(f"{broken[0]} during the run")
