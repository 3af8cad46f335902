"""The role that sends: load generators for all flows, where possible one process for each CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tailtap.host.changes.huge_pages import reservation
from tailtap.host.facts import environment
from tailtap.host.facts.machine import boot_id
from tailtap.lab.generators import GENERATORS, Generator, Sending
from tailtap.lab.generators.external import KEYS
from tailtap.lab.generators.flows import CLIENT, SERVER, Flows
from tailtap.lab.topology.graphs import address_client
from tailtap.lab.topology.lab import Lab
from tailtap.measure.roles import (
    DESCRIBE,
    INTERRUPT,
    PROBE,
    RESULT,
    START,
    Asked,
    AskedToDescribe,
    AskedToProbe,
    Described,
    Done,
    Request,
    Results,
    Workbench,
)
from tailtap.measure.roles.foresee import judged_as_generator
from tailtap.records.datapath import GeneratorRecord
from tailtap.records.machine import Station
from tailtap.records.record import as_json, opened
from tailtap.remote import Host
from tailtap.remote.local import Process
from tailtap.remote.session import FINISHED, RoleEvent, RolePlan

DISCARD = "9"
"""The port of a service that nobody runs (RFC 863)."""


@dataclass
class _Group:
    """Flows that leave from the same CPUs of the same host, by the same kind of generator."""

    kind: Generator
    host: Host
    flows: dict[str, Sending] = field(default_factory=dict)
    processes: Sequence[Process] = ()

    def hand_over(self, lab: Lab, stack: contextlib.ExitStack) -> None:
        """Give generators that drive their cards themselves these cards, and memory, until `stack`
        is closed. Raises `MachineError`.
        """
        for name, sending in self.flows.items():
            external = sending.traffic.external
            if external is None:
                continue
            if external.memory is not None:
                change = reservation(external.memory, keys=KEYS)
                stack.enter_context(lab.journal.held(change))
            if external.driver is not None:
                path = lab.graph.flow(name).path
                sends, absorbs = (
                    stack.enter_context(lab.handed_over(port, external.driver))
                    for port in (path[0], path[-1])
                )
                self.flows[name] = sending._replace(cards=(sends, absorbs))

    def probe(self, names: Collection[str]) -> None:
        chosen = [sending for name, sending in self.flows.items() if name in names]
        if chosen:
            self.kind.probe(self.host, chosen)

    def start(self) -> None:
        self.processes = self.kind.start(self.host, list(self.flows.values()))

    def results(self) -> dict[str, GeneratorRecord]:
        return dict(zip(self.flows, self.kind.result(self.processes), strict=True))


class LoadGenerator:
    """Events: `finished`, when all packets of all flows are sent.

    It is finished as well when generators gave up; then there is no result.
    """

    def __init__(self, bench: Workbench, plan: RolePlan) -> None:
        self._experiment, self._lab = bench.experiment, bench.lab
        groups: dict[tuple[str, tuple[int, ...], str], _Group] = {}
        self._clients: list[tuple[Host, Sending]] = []
        """Those that ask a server, which need an address of their own."""
        for name in plan.flows:
            traffic, flow = bench.experiment.traffic_of(name), bench.lab.graph.flow(name)
            port = flow.generator
            kind = traffic.generator
            group = groups.setdefault(
                (kind, traffic.senders, port.node),
                _Group(GENERATORS[kind], bench.lab.host(port.node)),
            )
            if flow.answered:
                # The server's kernel answers the probe that nobody listens there.
                source, server = CLIENT[traffic.ip], SERVER[traffic.ip]
                flows = Flows(src=source, dst=server, sport=DISCARD, dport=DISCARD)
                traffic = traffic.model_copy(update={"flows": flows})
                self._clients.append((group.host, Sending(port.name, traffic)))
            group.flows[name] = Sending(port.name, traffic)
        self._groups = list(groups.values())
        self._sending: list[Process] = []
        self._lent = contextlib.ExitStack()

    def requests(self) -> Mapping[str, Request]:
        return dict(
            (
                DESCRIBE.by(self._describe),
                PROBE.by(self._probe),
                START.by(self._start),
                INTERRUPT.by(self._interrupt),
                RESULT.by(self._result),
            )
        )

    def sources(self) -> Sequence[Process]:
        return self._sending

    def look(self) -> Sequence[RoleEvent]:
        """The end of the last one, which shows in its output, and by which results are ready."""
        before = self._sending
        self._sending = [process for process in before if not process.readable()]
        return [RoleEvent(event=FINISHED)] if before and not self._sending else []

    def close(self) -> None:
        for group in self._groups:
            for process in group.processes:
                process.close()
        self._lent.close()

    def _describe(self, asked: AskedToDescribe) -> Described:
        """Its machine (`station`): `environment`, and the audit for the role generator (`tuning`).

        None where it is the DuT's machine.
        """
        if asked.boot_id is not None and asked.boot_id == boot_id():
            return Described(station=None)
        tuning = judged_as_generator(self._experiment)
        return Described(station=Station(environment=environment.describe(), tuning=tuning))

    def _probe(self, asked: AskedToProbe) -> Done:
        """Once the links are up, send a few packets of each of the `flows`, which do not count."""
        self._lab.wait_until_up()
        while self._clients:
            host, sending = self._clients.pop()
            address_client(host, sending.port, sending.traffic.ip)
        for group in self._groups:
            group.probe(asked.flows)
        return Done()

    def _start(self, _: Asked) -> Done:
        for group in self._groups:
            group.hand_over(self._lab, self._lent)
            group.start()
            self._sending.extend(group.processes)
        return Done()

    def _interrupt(self, _: Asked) -> Done:
        """End early; what was sent until then counts."""
        for process in self._sending:
            process.interrupt()
        return Done()

    def _result(self, _: Asked) -> Results:
        """``generator.json`` of each of the `flows`, after the end."""
        told = [group.results() for group in self._groups]
        return Results(
            flows={
                name: opened("what a generator says", as_json(result), GeneratorRecord)
                for one in told
                for name, result in one.items()
            }
        )
