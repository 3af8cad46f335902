"""One run: build the lab, start everything, wait for the traffic, stop everything."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tailtap import forwarder, platform
from tailtap.capture import TAPS
from tailtap.errors import MachineError
from tailtap.experiment.counters import Counters
from tailtap.experiment.folder import RunFolder, write_json
from tailtap.experiment.model import Experiment
from tailtap.experiment.quality import Measured
from tailtap.forwarder import Running
from tailtap.host.local import LocalHost
from tailtap.host.perf import PerfStat
from tailtap.host.process import Process
from tailtap.platform import Dut
from tailtap.topology.lab import FROM_DUT, GENERATOR_PORT, Lab
from tailtap.traffic import GENERATORS

SETTLE_SECONDS = 0.1
"""How long packets may be under way after the last one was sent."""
PROBE_SECONDS = 2.0
"""How long the first packet may take through a DuT that has just been started."""
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


def measure(experiment: Experiment, folder: RunFolder, tick: Tick | None) -> Measured:
    """Make one measurement into `folder`: both stamp files and ``generator.json``.

    Raises `MachineError` when it cannot be made or something broke during it. Whatever happens,
    nothing of it stays on the machine.
    """
    traffic, dut = experiment.traffic, experiment.dut
    counts = experiment.counters and platform.PLATFORMS[dut.platform].has_dut
    with _away_from(dut.cpus, traffic.cpu):
        if not counts:
            return _measure(experiment, folder, tick, contextlib.nullcontext())
        # One window from before the DuT is built until it is gone, and one for the traffic.
        with PerfStat(LocalHost(), dut.cpus, folder.path) as lifetime:
            window = PerfStat(LocalHost(), dut.cpus, folder.path)
            measured = _measure(experiment, folder, tick, window)
            return replace(measured, counts={**measured.counts, "lifetime": lifetime.stop()})


def _measure(
    experiment: Experiment,
    folder: RunFolder,
    tick: Tick | None,
    window: contextlib.AbstractContextManager[PerfStat | None],
) -> Measured:
    """`measure`, counting in `window` while packets are sent."""
    traffic, dut = experiment.traffic, experiment.dut
    generator = GENERATORS[traffic.generator]
    tap = TAPS["inline"]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(max(traffic.sizes)))
        device = platform.PLATFORMS[dut.platform].build(lab, dut.wanted())
        lab.wait_until_up()
        running = None
        if device is not None:
            running = _start_forwarder(experiment, device)
            stack.callback(running.close)
        room = int(traffic.packets * ROOM) + SPARE_ROOM
        stamping = tap.start(lab.tap, folder.path, room)
        stack.callback(stamping.close)
        _probe(lab, experiment)
        watching = lab.watch()
        for process in watching:
            stack.callback(process.close)
        working = [stamping]
        if running is not None and running.process is not None:
            working.append(running.process)

        counting = stack.enter_context(window)
        before, began = Counters.read(), time.monotonic_ns()
        sending = generator.start(lab.generator, GENERATOR_PORT, traffic)
        stack.callback(sending.close)
        try:
            _Traffic(lab, sending, working, watching).wait(traffic.seconds, tick)
            sent = generator.result(sending)
            time.sleep(SETTLE_SECONDS + (0 if running is None else running.holds_ns / 1e9))
            counters, ended = Counters.read().since(before), time.monotonic_ns()
            counts = {} if counting is None else {"run": counting.stop()}
            _check_ports(lab)
            counted = tap.stop(stamping)
            told = {} if running is None else running.stop()
        except Vanished:
            raise
        except MachineError:
            _check_ports(lab)  # a vanished interface explains every other failure
            raise
        write_json(folder.generator, sent)
        facts = {} if device is None else device.facts
        return Measured(sent, counted, counters, ended - began, told, facts, counts)


@contextlib.contextmanager
def _away_from(dut_cpus: Iterable[int], generator_cpu: int) -> Iterator[None]:
    """Keep this process and its children off the measured CPUs, as far as there are others.

    The generator and the forwarder then pin themselves to theirs.
    """
    before = os.sched_getaffinity(0)
    for occupied in ({generator_cpu, *dut_cpus}, set(dut_cpus)):
        if before - occupied:
            os.sched_setaffinity(0, before - occupied)
            break
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _start_forwarder(experiment: Experiment, device: Dut) -> Running:
    kind = forwarder.FORWARDERS[experiment.dut.forwarder]
    return kind.start(device, kind.Options.model_validate(experiment.dut.options))


def _probe(lab: Lab, experiment: Experiment) -> None:
    """Raises `MachineError` unless a packet gets from the generator to the egress tap."""
    before = lab.received(lab.tap, FROM_DUT)
    traffic = experiment.traffic
    GENERATORS[traffic.generator].probe(lab.generator, GENERATOR_PORT, traffic)
    deadline = time.monotonic() + PROBE_SECONDS
    while lab.received(lab.tap, FROM_DUT) == before:
        if time.monotonic() > deadline:
            raise MachineError(
                f"no packet came through the DuT within {PROBE_SECONDS:g} s: does the forwarder "
                f"{experiment.dut.forwarder} work on this kernel? `tailtap doctor` tells"
            )
        time.sleep(0.005)


class Vanished(MachineError):
    """A link of the lab was deleted while packets were sent."""


@dataclass(frozen=True)
class _Traffic:
    """Everything that runs while packets are sent."""

    lab: Lab
    sending: Process
    working: Sequence[Process]
    watching: Sequence[Process]

    def wait(self, seconds: float, tick: Tick | None) -> None:
        """Return when the generator ends, after about `seconds`; sleep until something happens.

        Raises `MachineError` when a link is deleted, a tap or forwarder ends, or time runs out.
        """
        began = time.monotonic()
        deadline = began + OVERTIME * seconds + OVERTIME_SECONDS
        with selectors.DefaultSelector() as selector:
            for process in (self.sending, *self.working, *self.watching):
                selector.register(process, selectors.EVENT_READ)
            while True:
                pause = max(0.0, deadline - time.monotonic())
                if tick is not None:
                    pause = min(pause, TICK_SECONDS)
                ready = {key.fileobj for key, _ in selector.select(pause)}
                for process in self.watching:
                    if process in ready and not self._read_news(process):
                        selector.unregister(process)  # the check at the end stands in for it
                for process in self.working:
                    if process in ready:
                        raise MachineError(process.failure())
                if self.sending in ready:
                    return
                if time.monotonic() > deadline:
                    raise MachineError(f"{self.sending.title} does not come to an end")
                if tick is not None:
                    tick(time.monotonic() - began)

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
