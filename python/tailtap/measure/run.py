"""One run: have the roles begin, wait for the traffic, collect what they found out.

Nothing is done here but asking: what a role does, it does on its station (`roles`), and all of it
is undone when its site is closed.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol

from msgspec.structs import asdict, replace

from tailtap.analysis.runs.folder import RunFolder
from tailtap.base.errors import MachineError, TailtapError
from tailtap.base.files import write_json
from tailtap.base.units import format_rate
from tailtap.experiment.model import Experiment
from tailtap.host.net.silent_link import LEAD_SECONDS
from tailtap.lab.generators.external import External
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.lab.topology.graphs import REVERSE
from tailtap.measure.clocks import Clocks, guest_clock_of, with_events_by_stamps
from tailtap.measure.quality import Measured, Sent
from tailtap.measure.roles import (
    CHECK,
    COUNT,
    DESCRIBE,
    END,
    INTERRUPT,
    OBSERVE,
    PREPARE,
    PROBE,
    READ,
    RESTART,
    RESULT,
    SCHEDULE,
    SILENCE,
    START,
    STOP,
    WHY,
    AskedToBeSilent,
    AskedToCheck,
    AskedToDescribe,
    AskedToProbe,
    AskedToSchedule,
    CheckedSession,
    Forwarded,
    OfFlow,
    Passed,
    Prepared,
    Stamped,
    Stations,
    tasks_of,
)
from tailtap.records.datapath import GeneratorRecord
from tailtap.records.machine import Station as StationRecord
from tailtap.records.record import Notice, Open
from tailtap.records.run import Found
from tailtap.remote.session import FINISHED, RolePlan, Setup, Site, Station

DUT, GENERATOR, TIMESTAMPER = "dut", "generator", "timestamper"
SETTLE_SECONDS = 0.1
"""How long packets may be under way after the last one was sent."""
DRAIN_SECONDS = 2.0
"""How much longer is waited for packets that keep coming out of the device."""
LEAST_AFTER = 10
"""Fewer packets that come after the taps may be the kernel's own, such as those that ask for
neighbours.
"""
SILENT_SECONDS = 2
"""How much longer than its traffic a run has `dut.silent` down: generators take time to begin."""
PROBE_SECONDS = 2.0
"""How long the first packet may take where there is no DuT."""
PROBE_AGAIN_SECONDS = 0.3
"""How long to wait for the probe's packets before others are sent."""
PROBE_PAUSE_SECONDS = 0.005
OVERTIME = 3.0
OVERTIME_SECONDS = 120.0
"""A generator that takes this much longer than the traffic lasts hangs."""
OVERDUE = 2.0
OVERDUE_SECONDS = 3.0
"""A generator of ours that sends for this much longer cannot send the rate: it is told to end."""
LEASE_SECONDS = 30.0
"""How much longer than that a station waits for us."""
FIRST_SECONDS = 0.002
"""How often is looked for the first packet, where something happens after it."""
TICK_SECONDS = 1.0
"""How often the progress is told, and else is looked for the first packet; each time costs the
machine a wake-up.
"""

Tick = Callable[[float], None]


class Guard(Protocol):
    """Says during a measurement whether its rest is worth making."""

    period: float
    """How often it is asked, in s; each time costs the machine a wake-up."""

    def over(self, seconds: float, ingress: int, egress: int, reach: float) -> bool:
        """Whether to end it after `seconds`.

        So many packets of all flows have come to the ingress and the egress taps by now, warm-up
        and probes included. `reach` is how long in s a packet may be under way before it counts as
        lost.
        """
        ...


class StillWarmingUp(MachineError):
    """A generator was ended before it had sent a packet that counts."""

    sent: Mapping[str, Open[GeneratorRecord]]

    def __init__(self, what: str, sent: Mapping[str, Open[GeneratorRecord]]) -> None:
        """`sent` is what the generators of all flows said."""
        super().__init__(what, remedy="lower traffic.rate")
        self.sent = sent


def everywhere(station: Station) -> Stations:
    """All roles on one station."""
    return dict.fromkeys((DUT, GENERATOR, TIMESTAMPER), station)


class Vanished(MachineError):
    """A link of the lab was deleted while packets were sent."""


def measure(
    experiment: Experiment,
    folders: Mapping[str, RunFolder],
    tick: Tick | None,
    guard: Guard | None = None,
    *,
    stations: Stations,
    flush: str | None = None,
) -> Measured:
    """Make one measurement of all flows: stamp files and ``generator.json`` of each.

    `folders` has the run folder of each of the experiment's flows. What is known of the DuT goes
    into the first flow's. A measurement that the `guard` ends is whole but for its length. With
    `flush` taps write so often, for who looks meanwhile; else when they must.

    Raises `MachineError` when it cannot be made or something broke during it. Whatever happens,
    nothing of it stays on the stations.
    """
    with contextlib.ExitStack() as stack:
        setup = Setup(
            experiment=experiment.document(),
            cables=[pair.as_json() for pair in experiment.testbed_cables],
        )
        at_work = _AtWork.open(stations, setup, stack)
        try:
            measured = _measure(experiment, at_work, folders, tick, guard, flush)
        except Exception:
            # What the roles wrote until then may say why. Who is gone cannot tell.
            with contextlib.suppress(TailtapError, OSError):
                at_work.fetch()
            raise
        for site in reversed(at_work.distinct):
            if counters := site.close().counters:
                measured.found.counters = {**(measured.found.counters or {}), **counters}
    return measured


@dataclass(frozen=True)
class _AtWork:
    """The sites of a measurement, and the roles that have begun on them."""

    sites: Mapping[str, Site]
    """By role; roles on one station share one."""
    distinct: Sequence[Site]
    """Each one once, in the order in which they were opened."""
    sessions: list[CheckedSession]

    @classmethod
    def open(cls, stations: Stations, setup: Setup, stack: contextlib.ExitStack) -> _AtWork:
        opened: dict[int, Site] = {}
        for station, tasks in tasks_of(stations):
            site = opened[id(station)] = station.open(replace(setup, tasks=list(tasks)))
            stack.callback(site.close)
        return cls(
            {role: opened[id(station)] for role, station in stations.items()},
            list(opened.values()),
            [],
        )

    def begin(self, role: str, plan: RolePlan) -> CheckedSession:
        session = CheckedSession(self.sites[role].begin(role, plan), role, plan.flows)
        self.sessions.append(session)
        return session

    def keep(self, seconds: float) -> None:
        """Have all sites stay for so long though nobody says a word to them."""
        for site in self.distinct:
            site.keep(seconds)

    def fetch(self) -> None:
        for session in self.sessions:
            session.fetch()


def _measure(
    experiment: Experiment,
    at_work: _AtWork,
    folders: Mapping[str, RunFolder],
    tick: Tick | None,
    guard: Guard | None,
    flush: str | None,
) -> Measured:
    flows = experiment.flows
    folder = folders[flows[0]].path
    dut = at_work.begin(DUT, RolePlan(folder=str(folder)))
    prepared = dut.ask(PREPARE)
    forwards = prepared.ready_seconds is not None
    names = {flow: folders[flow].path.name for flow in flows}
    stamping = RolePlan(folder=str(folder.parent), flows=names, flush=flush)
    timestamper = at_work.begin(TIMESTAMPER, stamping)
    generator = at_work.begin(GENERATOR, RolePlan(flows=names))
    stations = _stations(at_work, prepared, {GENERATOR: generator, TIMESTAMPER: timestamper})
    timestamper.ask(START)
    _probe(dut, prepared, generator, timestamper, flows)
    timestamper.ask(RESTART)
    reach = SETTLE_SECONDS * prepared.patience + prepared.holds_ns / 1e9
    clocks = Clocks(at_work.sites, TIMESTAMPER)
    clocks.look()
    dut.ask(OBSERVE)
    at_work.keep(_longest(experiment) + LEASE_SECONDS)
    _silence(experiment, dut)
    before = _counts(timestamper)
    try:
        generator.ask(START)
        sends = _wait(
            experiment, dut, timestamper, generator, prepared.patience, tick, guard, reach, before
        )
        sent = generator.ask(RESULT).flows
        _require_sent(experiment, sent, sends)
        time.sleep(reach)
        _drain(timestamper, _missing(before), reach)
        observed = dut.ask(READ)
        stamped = timestamper.ask(STOP)
        said = _end(dut, timestamper, experiment, stamped).forwarder
        clocks.look()
        at_work.fetch()
        taps = stamped.flows[flows[0]].taps
        trace, of_guest = guest_clock_of(folder, observed.facts.trace_guest, taps)
        hosts, of_hosts = clocks.reading()
    except Vanished:
        raise
    except MachineError as error:
        # A cable whose card is with a program that failed is down for that reason.
        if all(one.driver is None for one in _external(experiment)):
            _explain(dut, error)
        raise
    for flow in flows:
        write_json(folders[flow].generator, sent[flow].whole, below=folders[flow].top)
    found, of_events = with_events_by_stamps(
        Found(
            **asdict(replace(observed.facts, trace_guest=trace)),
            clocks=hosts,
            platform=prepared.platform,
            tuning=prepared.tuning,
            placement=prepared.placement,
            stations=stations,
            forwarder={**said, "cpu_ns": observed.cpu_ns} if forwards else {},
        ),
        [one.taps[INGRESS].known for one in stamped.flows.values() if INGRESS in one.taps],
    )
    return Measured(
        {flow: Sent(sent[flow], stamped.flows[flow], stamped.cpus) for flow in flows},
        found,
        [*prepared.warnings, *observed.warnings, *of_guest, *of_hosts, *of_events],
        observed.brought,
        own_kernel=prepared.own_kernel,
    )


def _silence(experiment: Experiment, dut: CheckedSession) -> None:
    """Have `dut.silent` down from now on until a little after the last packet."""
    if experiment.dut.silent is not None and experiment.traits.has_dut:
        dut.ask(SILENCE, AskedToBeSilent(for_seconds=(ceil(experiment.seconds) + SILENT_SECONDS)))
        time.sleep(LEAD_SECONDS + SETTLE_SECONDS)


def _stations(
    at_work: _AtWork, prepared: Prepared, sessions: Mapping[str, CheckedSession]
) -> dict[str, StationRecord]:
    """What is known of machines besides the DuT's, by the role that they have."""
    found = {}
    for role, session in sessions.items():
        if at_work.sites[role] is not at_work.sites[DUT]:
            told = session.ask(DESCRIBE, AskedToDescribe(boot_id=prepared.boot_id)).station
            if told is not None:
                found[role] = told
    return found


def _explain(dut: CheckedSession, error: MachineError) -> None:
    """Raise what explains `error`: a link that is gone, a forwarder that ended."""
    try:
        dut.ask(CHECK, AskedToCheck(links=True))
    except MachineError as cause:
        raise cause from error


def _probe(
    dut: CheckedSession,
    prepared: Prepared,
    generator: CheckedSession,
    timestamper: CheckedSession,
    flows: Sequence[str],
) -> None:
    """Send packets of each flow until one gets from the generator to the egress tap.

    Everything may take `patience` times longer than usual. Raises `MachineError` when the forwarder
    ends or its time is over.
    """
    before = _counts(timestamper)
    missing = list(flows)
    limit = prepared.patience * (prepared.ready_seconds or PROBE_SECONDS)
    deadline = time.monotonic() + limit
    while True:
        dut.ask(CHECK, AskedToCheck())
        generator.ask(PROBE, AskedToProbe(flows=missing))
        again = time.monotonic() + PROBE_AGAIN_SECONDS
        while time.monotonic() < again:
            now = _counts(timestamper)
            missing = [flow for flow in missing if now[flow].egress == before[flow].egress]
            if not missing:
                return
            time.sleep(PROBE_PAUSE_SECONDS)
        if time.monotonic() > deadline:
            why = dut.ask(WHY).reason
            if missing == [REVERSE]:
                raise MachineError(
                    f"no packet came back through the DuT within {limit:g} s: leave out "
                    f"traffic.bidirectional if the forwarder carries packets one way only: {why}"
                )
            of_flow = f" of flow {missing[0]}" if len(missing) < len(flows) else ""
            raise MachineError(f"no packet{of_flow} came through the DuT within {limit:g} s: {why}")


def _counts(timestamper: CheckedSession) -> Mapping[str, Passed]:
    return timestamper.ask(COUNT).flows


def _came(counts: Mapping[str, Passed]) -> int:
    """How many packets of all flows have come to the ingress taps."""
    return sum(one.ingress for one in counts.values())


def _missing(counts: Mapping[str, Passed]) -> int:
    """How many more packets went in than came out."""
    return sum(one.ingress - one.egress for one in counts.values())


def _drain(timestamper: CheckedSession, missing: int, reach: float) -> None:
    """Wait while packets come out of the device and some are `missing` that were not before.

    A device that is not served for a while is late: what it holds is not lost.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    before = _counts(timestamper)
    while _missing(before) > missing and time.monotonic() < deadline:
        time.sleep(reach)
        now = _counts(timestamper)
        if all(now[flow].egress == before[flow].egress for flow in now):
            return
        before = now


def _end(
    dut: CheckedSession, timestamper: CheckedSession, experiment: Experiment, stamped: Stamped
) -> Forwarded:
    """End the forwarders; a warning with each flow of which packets came out after the taps ended.

    Nobody looks where no packet is missing, nor at a server, whose answers are as many as it likes.
    """
    missing = {flow: max(0, _unseen(told)) for flow, told in stamped.flows.items()}
    if experiment.answers or not any(missing.values()):
        return dut.ask(END)
    before = _counts(timestamper)
    forwarded = dut.ask(END)
    for flow, now in _counts(timestamper).items():
        after = min(missing[flow], now.egress - before[flow].egress)
        if after >= LEAST_AFTER:
            stamped.flows[flow].warnings.append(
                Notice(
                    "forwarded-after",
                    f"at least {after:,} of the {missing[flow]:,} packets that the egress tap did "
                    "not see came out of the device after the taps had ended: they were late, and "
                    "count as lost; give the device CPUs that nothing else uses",
                )
            )
    return forwarded


def _unseen(told: OfFlow) -> int:
    seen = {side: tap.known.seen for side, tap in told.taps.items()}
    return seen.get(INGRESS, 0) - seen.get(EGRESS, 0)


def _wait(
    experiment: Experiment,
    dut: CheckedSession,
    timestamper: CheckedSession,
    generator: CheckedSession,
    patience: float,
    tick: Tick | None,
    guard: Guard | None,
    reach: float,
    before: Mapping[str, Passed],
) -> float:
    """Sleep until all generators have ended; return how long in s they sent.

    They are ended early when the `guard` says so, and when they send for so long that the load is
    not what was asked for: the rest would tell no more. What they need before their first packet,
    as a card that is reset for it, does not count. Where events follow the first packet, the DuT is
    told of it. `before` is what had passed then: the packets of the probe.

    Raises `MachineError` when a link is deleted, a tap or forwarder ends, or time runs out.
    """
    began = time.monotonic()
    deadline, overdue = began + _longest(experiment), _overdue(experiment, patience)
    begin = _begin(experiment) or inf
    since: float | None = None
    # The DuT first: what it says explains what others miss.
    everybody = (dut, timestamper, generator)
    while True:
        # Before it sleeps: an answer may have brought events along.
        finished = False
        for session in everybody:
            for event in session.events():
                if event.reason is not None:
                    raise (Vanished if event.link else MachineError)(event.reason)
                finished |= event.event == FINISHED and session is generator
        now = time.monotonic()
        if finished:
            return 0.0 if since is None else now - since
        if now > deadline:
            generator.ask(INTERRUPT)  # who cannot be reached any more has another reason
            raise MachineError("the generator does not come to an end")
        if since is None and now > began + begin and _came(_counts(timestamper)) == _came(before):
            generator.ask(INTERRUPT)
            said = ""
            with contextlib.suppress(MachineError):  # one that does not end says no more
                results = generator.ask(RESULT).flows.values()
                said = "".join(f": it printed {one.known.said!r}" for one in results)
            raise MachineError(
                f"no packet of the generator came to the ingress tap within {begin:g} s "
                f"(traffic.external.begin){said}"
            )
        if since is None and _came(_counts(timestamper)) != _came(before):
            since = now
            if experiment.events:
                traffic = experiment.traffic
                ahead = traffic.warm_up_ns + (traffic.pause if traffic.warm_up_ns else 0)
                dut.ask(SCHEDULE, AskedToSchedule(after_ns=ahead))
        if since is not None and now - since > overdue:
            overdue = inf
            generator.ask(INTERRUPT)
        pauses = [deadline - now]
        if since is None:
            pauses.append(FIRST_SECONDS if experiment.events else TICK_SECONDS)
        else:
            pauses.append(overdue + since - now)
        if tick is not None:
            pauses.append(TICK_SECONDS)
        if guard is not None:
            pauses.append(guard.period)
        _sleep(everybody, min(pauses))
        seconds = time.monotonic() - began
        if tick is not None:
            tick(seconds)
        if guard is not None:
            counts = _counts(timestamper)
            egress = sum(one.egress for one in counts.values())
            if guard.over(seconds, _came(counts), egress, reach):
                guard = None
                generator.ask(INTERRUPT)


def _overdue(experiment: Experiment, patience: float) -> float:
    """After how many seconds of sending a generator is told to end.

    Those of others may take any time before they begin, and need not understand it.
    """
    if _external(experiment):
        return inf
    return OVERDUE * experiment.seconds + OVERDUE_SECONDS * patience


def _external(experiment: Experiment) -> list[External]:
    """How generators of others are called, one for each flow that has one."""
    every = (experiment.traffic_of(flow).external for flow in experiment.flows)
    return [one for one in every if one is not None]


def _require_sent(
    experiment: Experiment, sent: Mapping[str, Open[GeneratorRecord]], seconds: float
) -> None:
    """Raises `StillWarmingUp` when one was ended in its warm-up, after `seconds` of sending."""
    for flow, told in sent.items():
        if told.known.still_warming_up:
            rate = format_rate(experiment.traffic_of(flow).rate)
            raise StillWarmingUp(
                f"the generator was still busy with the warm-up after {seconds:.0f} s, where the "
                f"whole run takes {experiment.seconds:g} s: it cannot send {rate}",
                sent,
            )


def _longest(experiment: Experiment) -> float:
    """How long in s generators may take for all traffic."""
    return OVERTIME * experiment.seconds + OVERTIME_SECONDS + _begin(experiment)


def _begin(experiment: Experiment) -> float:
    """How long in s generators of others may take until their first packet; 0 without any."""
    return max((one.begin / 1e9 for one in _external(experiment)), default=0.0)


def _sleep(sessions: Sequence[CheckedSession], seconds: float) -> None:
    with selectors.DefaultSelector() as selector:
        for descriptor in {session.fileno() for session in sessions}:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.select(seconds)
