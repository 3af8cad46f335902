"""The role that is measured: a platform with two ports, a forwarder in it, and what observes them.

It exists where there is no device at all, too (platform `wire`): the links are its work then.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tailtap.base.errors import MachineError, TailtapError
from tailtap.base.units import format_time
from tailtap.experiment.sections import GENERATOR, HOST, Due, due
from tailtap.host.facts.machine import boot_id
from tailtap.host.net.silent_link import SilentLink
from tailtap.lab import forwarders as forwarder
from tailtap.lab import platforms as platform
from tailtap.lab.forwarders import Running, Served, Setting
from tailtap.lab.forwarders.setting import CpuTime
from tailtap.lab.instruments.interrupts import sampling_ns
from tailtap.lab.instruments.kinds import INSTRUMENTS
from tailtap.lab.instruments.observing import Guest, Observation, Scope, Tracing
from tailtap.lab.neighbours import Neighbours, too_little
from tailtap.lab.platforms import Dut
from tailtap.lab.served import Server, in_guest
from tailtap.lab.topology.graph import Port
from tailtap.lab.topology.graphs import FORWARD
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import facts as placement_facts
from tailtap.measure.roles import (
    CHECK,
    END,
    OBSERVE,
    PREPARE,
    READ,
    SCHEDULE,
    SILENCE,
    WHY,
    Asked,
    AskedToBeSilent,
    AskedToCheck,
    AskedToSchedule,
    Brought,
    Done,
    Forwarded,
    Observed,
    Prepared,
    Request,
    Why,
    Workbench,
)
from tailtap.measure.roles.foresee import (
    JOINED,
    is_steered,
    needs_joined_plugs,
    packets_of,
    spare_of,
    tune,
)
from tailtap.records.record import Notice, Open, opened, parsed
from tailtap.records.run import Event, Facts, PlatformFacts
from tailtap.records.run import Placement as PlacementRecord
from tailtap.remote import Host
from tailtap.remote.local import LocalHost, Process
from tailtap.remote.session import FAILED, Json, RoleEvent, RolePlan

MOST_SAID = 300
"""How many letters of what an event said are in a warning."""


LINES = 20
"""How many of the last lines of a command are kept."""
LONGEST_LINE = 500
FOREVER_SECONDS = 1e6
END_SECONDS = 2.0
"""How long a command may go on after the last packet."""

Place = Callable[[str], tuple[Host, Mapping[str, object]]]


class Happenings:
    """Events of a measurement: a thread waits for each, and another one for its end."""

    def __init__(self, events: Sequence[Due], place: Place, after_ns: int) -> None:
        """The first packet that counts passes `after_ns` from now; `events` are in their order."""
        self._began = time.monotonic_ns() + after_ns
        self._over, self._cut = threading.Event(), False
        self._told: list[Event] = []
        self.missed: Sequence[Due] = []
        """Those that were not begun: packets had ended before."""
        self._running: dict[threading.Thread, Process | None] = {}
        self._waiting = threading.Thread(target=self._follow, args=(events, place), daemon=True)
        self._waiting.start()

    def stop(self) -> list[Event]:
        """What has happened, in its order: packets have ended."""
        self._over.set()
        self._waiting.join()
        deadline = time.monotonic() + END_SECONDS
        for thread in self._running:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.close()
        return self._told

    def close(self) -> None:
        self._over.set()
        self._waiting.join()
        self._cut = True
        for thread, process in self._running.items():
            if process is not None and thread.is_alive():
                process.interrupt()
            thread.join(END_SECONDS)

    def _follow(self, events: Sequence[Due], place: Place) -> None:
        for number, one in enumerate(events):
            if self._over.wait(max(0.0, (self._began + one.at - time.monotonic_ns()) / 1e9)):
                self.missed = events[number:]
                return
            event = one.event
            told = Event(name=event.called, where=event.where, command=list(event.run),
                         at_ns=one.at, window_ns=event.window,
                         begin_ns=time.monotonic_ns())  # fmt: skip
            self._told.append(told)
            thread = threading.Thread(target=self._run, args=(told, place), daemon=True)
            self._running[thread] = None
            thread.start()

    def _run(self, told: Event, place: Place) -> None:
        lines: deque[str] = deque(maxlen=LINES)
        try:
            host, values = place(told.where)
            told.command = [word.format_map(values) for word in told.command]
            told.begin_ns = time.monotonic_ns()
            process = host.start(["sh", "-c", 'exec "$@" 2>&1', "event", *told.command])
            self._running[threading.current_thread()] = process
            try:
                while (line := process.read_line(FOREVER_SECONDS)) is not None:
                    lines.append(line[:LONGEST_LINE])
                if not self._cut:
                    told.end_ns = time.monotonic_ns()
                process.wait(END_SECONDS)
                told.status = process.status
                lines.extend([process.errors()[:LONGEST_LINE]] if process.errors() else [])
            finally:
                process.close()
        except (TailtapError, OSError) as error:
            lines.append(str(error)[:LONGEST_LINE])
        told.output = "\n".join(lines)


class DeviceUnderTest:
    """The forwarder's log goes into the folder of its plan.

    Events: `failed`, when the forwarder ended on its own or a link was deleted; with ``"link":
    true`` in the latter case.
    """

    def __init__(self, bench: Workbench, plan: RolePlan) -> None:
        self._bench = bench
        assert plan.folder is not None  # it writes
        self._folder = Path(plan.folder)
        self._stack = contextlib.ExitStack()
        self._devices: Sequence[Dut] = ()
        self._running: list[Running] = []
        self._observing: dict[str, Observation] = {}
        self._neighbours: Neighbours | None = None
        self._happenings: Happenings | None = None
        self._spent: CpuTime | None = None
        self._over = False

    def requests(self) -> Mapping[str, Request]:
        return dict(
            (
                PREPARE.by(self._prepare),
                CHECK.by(self._check),
                WHY.by(self._why),
                OBSERVE.by(self._observe),
                SCHEDULE.by(self._schedule),
                SILENCE.by(self._silence),
                READ.by(self._read),
                END.by(self._stop),
            )
        )

    def sources(self) -> Sequence[Process]:
        if self._over or not self._observing:
            return []
        found = [process for one in self._observing.values() for process in one.sources()]
        found += self._neighbours.sources if self._neighbours is not None else ()
        return [*found, *(process for _, process in self._processes())]

    def look(self) -> Sequence[RoleEvent]:
        """What makes the run worth nothing: a link's end, the forwarder's."""
        if self._over or not self._observing:
            return []
        # A vanished interface explains every other failure.
        for one in self._observing.values():
            if trouble := one.trouble():
                self._over = True
                return [RoleEvent(event=FAILED, reason=trouble, link=True)]
        if self._neighbours is not None and (trouble := self._neighbours.trouble()):
            self._over = True
            return [RoleEvent(event=FAILED, reason=trouble)]
        for running, process in self._processes():
            if process.readable():
                self._over = True
                return [RoleEvent(event=FAILED, reason=_failure(running, process))]
        return []

    def close(self) -> None:
        if self._happenings is not None:
            self._happenings.close()
        for one in self._observing.values():
            one.close()
        self._observing.clear()
        if self._neighbours is not None:
            self._neighbours.close()
        self._stack.close()

    def _processes(self) -> list[tuple[Running, Process]]:
        return [(one, one.process) for one in self._running if one.process is not None]

    def _prepare(self, _: Asked) -> Prepared:
        """Tune the machine, build the device and start the forwarder of each of its nodes.

        What was tuned, and what the machine is like then (`tuning`), and what tells its boot from
        those of other machines (`boot_id`); where its packets are received, and what of that
        crosses NUMA nodes (`placement`); the facts of the platform
        (`platform`), warnings about every measurement of it, whether it has a kernel of its own
        (`own_kernel`), how many times longer than here everything may take in it (`patience`);
        how long in s the first packet may take (`ready_seconds`, None where nothing forwards),
        and how long in ns a packet is kept on purpose (`holds_ns`).
        """
        experiment, lab = self._bench.experiment, self._bench.lab
        tuning = tune(experiment, lab)
        self._devices = platform.build(lab, experiment.devices())
        lab.wait_until_up()
        if not self._devices:
            return Prepared(
                platform=Open(PlatformFacts(), {}),
                tuning=tuning,
                boot_id=boot_id(),
                placement=None,
                warnings=[Notice("no-device", told) for told in experiment.unobserved],
                own_kernel=False,
                patience=1.0,
                ready_seconds=None,
                holds_ns=0,
            )
        placement = _placement(lab, [device.node for device in self._devices])
        sent = {flow: experiment.traffic_of(flow) for flow in experiment.flows}
        setting = Setting(
            lab, self._folder, sent, experiment.dut.routing, in_line=len(self._devices) > 1
        )
        for device, member in zip(self._devices, experiment.dut.members, strict=True):
            chosen = forwarder.FORWARDERS[member.dut.forwarder]
            options = chosen.Options.model_validate(member.dut.options)
            running = chosen.start(device, options, setting)
            self._running.append(running)
            self._stack.callback(running.close)
        of_devices = [row for device in self._devices for row in device.warnings]
        warnings = of_devices + [row for one in self._running for row in one.warnings]
        facts = self._told([device.facts for device in self._devices])
        return Prepared(
            platform=opened("the platform", facts, PlatformFacts),
            tuning=tuning,
            boot_id=boot_id(),
            placement=placement,
            warnings=[
                *dict.fromkeys(warnings),
                *(Notice("numa-crossing", sentence) for sentence in placement.crossings),
            ],
            own_kernel=self._own_kernel,
            patience=max(device.patience for device in self._devices),
            ready_seconds=max(running.ready_seconds for running in self._running),
            holds_ns=sum(running.holds_ns for running in self._running),
        )

    def _check(self, asked: AskedToCheck) -> Done:
        """Raises `MachineError` when the forwarder ended or, with `links`, when one of these is
        gone or carries nothing.
        """
        broken = self._bench.lab.broken_ports() if asked.links else []
        if broken:
            raise MachineError(f"{broken[0]} during the run")
        for running, process in self._processes():
            if process.ended:
                raise MachineError(_failure(running, process))
        return Done()

    def _why(self, _: Asked) -> Why:
        if not self._running:
            joined = needs_joined_plugs(self._bench.experiment)
            return Why(reason=JOINED if joined else "the lab's links are broken")
        reason = self._running[0].failure()
        if self._bench.experiment.testbed_cables:
            reason += "; `tailtap testbed check` says whether the cables are right"
        return Why(reason=reason)

    def _observe(self, _: Asked) -> Done:
        bench = self._bench
        if bench.experiment.neighbours:
            self._neighbours = Neighbours(LocalHost(), bench.experiment.neighbours)
        has_dut, lab = bench.experiment.traits.has_dut, bench.lab
        processes = [] if self._own_kernel else [process for _, process in self._processes()]
        scope = Scope(
            bench.experiment.dut.cpus if has_dut else (),
            bench.experiment.senders,
            lab,
            bench.counting,
            processes[0].pid if len(processes) == 1 else None,
            self._tracing(),
            self._guest(),
            self._folder,
            sampling_ns(bench.experiment.interrupts),
            {key: row for one in self._devices for key, row in lab.interrupts(one.node).items()},
            lab.numa,
            [one.group for one in self._devices if one.group is not None],
        )
        self._spent = self._cpu_time()
        for name, instrument in INSTRUMENTS.items():
            observation = instrument(scope)
            if observation is not None:
                self._observing[name] = observation
        return Done()

    def _schedule(self, asked: AskedToSchedule) -> Done:
        experiment = self._bench.experiment
        events = due(experiment.events, experiment.traffic.duration)
        if events and self._devices:
            self._happenings = Happenings(events, self._place, asked.after_ns)
        return Done()

    def _silence(self, asked: AskedToBeSilent) -> Done:
        interface = self._bench.experiment.dut.silent
        if interface is not None:
            silent = SilentLink(interface, asked.for_seconds)
            self._stack.enter_context(self._bench.lab.journal.held(silent))
        return Done()

    def _place(self, where: str) -> tuple[Host, Mapping[str, object]]:
        """Where the commands of a place run, and what is filled into them."""
        device = next((one for one in self._devices if one.node == where), self._devices[0])
        running = self._running[self._devices.index(device)]
        served = running.process.pid if running.process is not None else ""
        values = {
            "ingress": device.ingress, "egress": device.egress, "cpu": device.cpus[0],
            "cpus": ",".join(map(str, device.cpus)), "pid": served,
        }  # fmt: skip
        if where == HOST:
            return LocalHost(), values
        if where == GENERATOR:
            return self._bench.lab.host(self._bench.lab.graph.flows[0].generator.node), values
        return device.host, values

    def _read(self, _: Asked) -> Observed:
        """End the instruments: `facts`, `warnings`, and by instrument what it brought (`brought`).

        Raises `MachineError` when a link is gone or carries nothing.
        """
        self._over = True
        readings = {name: self._observing[name].stop() for name in reversed(self._observing)}
        told = {} if self._neighbours is None else self._neighbours.stop()
        happened: Sequence[Event] = []
        missed: Sequence[Due] = []
        if self._happenings is not None:
            happened, missed = self._happenings.stop(), self._happenings.missed
        facts = Facts(neighbours=told, events=list(happened))
        for reading in readings.values():
            facts = replace(facts, **reading.found)
        warnings = [row for reading in readings.values() for row in reading.warnings]
        spent = self._spent_since()
        return Observed(
            facts=facts,
            warnings=[*warnings, *too_little(told), *_failed(happened, missed)],
            brought={
                name: Brought(facts=sorted(reading.found), files=list(reading.files))
                for name, reading in readings.items()
            },
            cpu_ns=None if spent is None else dict(spent),
        )

    def _stop(self, _: Asked) -> Forwarded:
        """End the forwarders; what they say of themselves (`forwarder`)."""
        return Forwarded(forwarder=self._told([running.stop() for running in self._running]))

    def _told(self, facts: Sequence[Mapping[str, Any]]) -> Json:
        """What the nodes have in common, and by node (`nodes`) what they do not."""
        if not facts:
            return {}
        common = {key: value for key, value in facts[0].items()
                  if all(key in other and other[key] == value for other in facts)}  # fmt: skip
        own = {
            device.node: {key: value for key, value in one.items() if key not in common}
            for device, one in zip(self._devices, facts, strict=True)
        }
        return {**common, **({"nodes": own} if any(own.values()) else {})}

    @property
    def _own_kernel(self) -> bool:
        return any(device.host.own_kernel for device in self._devices)

    def _tracing(self) -> Tracing | None:
        """What the experiment asks a trace for; None where there is no device to trace."""
        experiment = self._bench.experiment
        if experiment.trace == "none" or not self._devices:
            return None
        servers = []
        specs = [spec for _, spec in experiment.devices()]
        for device, running, spec in zip(self._devices, self._running, specs, strict=True):
            served = Served("vcpu", device.threads) if device.host.own_kernel else running.served()
            servers.append(Server(served, device.node, spec.cpus))
        if len(servers) == 1:
            servers = [Server(servers[0].served)]
        # Threads have the time of what they do; a softirq receives for everybody.
        by_softirq = any(one.served.by == "softirq" for one in servers)
        networks = self._bench.lab.networks() if by_softirq else ()
        # Those of a testbed's generator are another machine's, and cards interrupt for them.
        senders = () if experiment.cables() else experiment.senders
        lab = self._bench.lab
        return Tracing(
            experiment.trace,
            self._folder,
            packets_of(experiment),
            servers,
            networks,
            senders=senders,
            steered=by_softirq and is_steered(experiment, lab.graph, lab.numa),
            spare=spare_of(experiment),
        )

    def _guest(self) -> Guest | None:
        if self._bench.experiment.trace == "none" or not self._own_kernel:
            return None
        if len(self._running) != 1:
            return None  # among other nodes, its host alone tells
        [device], [running] = self._devices, self._running
        return Guest(
            device.host,
            device.cpus,
            (device.ingress, device.egress),
            self._bench.experiment.traffic_of(FORWARD).key,
            in_guest(running.served(), device.host),
            device.facts["memory"],
            device.patience,
        )

    def _spent_since(self) -> CpuTime | None:
        """The forwarders' CPU time meanwhile; None when it could not be read."""
        now = self._cpu_time()
        if self._spent is None or now is None:
            return None
        return {name: value - self._spent[name] for name, value in now.items()}

    def _cpu_time(self) -> CpuTime | None:
        """That of all of them so far; None when that of one could not be read."""
        times = [running.cpu_time() for running in self._running]
        known = [one for one in times if one is not None]
        if not known or len(known) < len(times):
            return None
        return {name: sum(one[name] for one in known) for name in known[0]}


def _failed(events: Sequence[Event], missed: Sequence[Due]) -> Iterator[Notice]:
    """A warning about each event whose command did not do what it should, or was not begun."""
    for one in missed:
        at = f"{one.event.called} at {format_time(one.at)}"
        message = f"the event {at} was not begun: packets had ended"
        yield Notice("event-failed", message)
    for event in events:
        if event.status != 0:
            how = "did not end" if event.end_ns is None else f"ended with status {event.status}"
            said = " ".join(event.output.split())[:MOST_SAID]
            yield Notice(
                "event-failed",
                f"the event {event.name} at {format_time(event.at_ns)} {how}"
                + (f": {said}" if said else ""),
            )


def _failure(running: Running, process: Process) -> str:
    return running.failure() if process.ended else process.failure()


def _placement(lab: Lab, nodes: Sequence[str]) -> PlacementRecord:
    """`placement` of ``run.json``: in a line the ports are named with their nodes."""
    told = {node: placement_facts(node, lab.placed(node), lab.numa) for node in nodes}
    if len(nodes) == 1:
        return parsed("the placement", told[nodes[0]], PlacementRecord)
    together = {
        **told[nodes[0]],
        "ports": {str(Port(node, port)): facts
                  for node, one in told.items() for port, facts in one["ports"].items()},
        "crossings": [sentence for one in told.values() for sentence in one["crossings"]],
    }  # fmt: skip
    return parsed("the placement", together, PlacementRecord)
