"""The lab on one machine: a graph, made of network namespaces, links and cards, and removed."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

from tailtap.base.errors import MachineError
from tailtap.base.units import parse_cpus
from tailtap.host.changes.journal import Journal
from tailtap.host.changes.resource import Joint, Resource
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net import cards
from tailtap.host.net.inside import NAMESPACES
from tailtap.host.net.namespaces import shown
from tailtap.host.net.pci import VFIO, PciDriver, VfioCard
from tailtap.host.net.port_work import CardInterrupts, PortThreads, device_interrupts
from tailtap.host.net.virtual_functions import VirtualFunction
from tailtap.lab.topology.compiler import (
    BELOW,
    Step,
    compile_graph,
    in_order,
    name_of,
    placed,
    tap_devices,
)
from tailtap.lab.topology.graph import TASKS, Graph, Port, Task
from tailtap.lab.topology.numbering import Way, ways
from tailtap.lab.topology.placement import Placed
from tailtap.records.record import as_json
from tailtap.remote.local import LocalHost, NamespaceHost, Process

T = TypeVar("T")
R = TypeVar("R", bound=Resource)

CABLES = "`cables` of the testbed file"
"""What names the cards of several machines."""
UP_SECONDS = 5.0
"""How long links may take to come up."""


log = logging.getLogger("tailtap")


@dataclass(frozen=True)
class Passed:
    """What is passed through to a virtual machine."""

    address: str
    """Its place on the PCI bus."""
    alias: str
    """By which a kernel finds its driver; modules.alias of depmod(8)."""


@dataclass(frozen=True)
class Broken:
    """A port that is gone or carries no packets, or a card whose virtual functions are ports."""

    state: str
    """What is wrong, a verb and more."""
    card: str | None
    """The card that it is, by the name that its host gives it."""
    port: str = ""
    """Empty for a card that is no port itself."""
    host: str = ""

    def __str__(self) -> str:
        if not self.port:
            return f"the card {self.card}, whose virtual functions are ports, {self.state}"
        card = f" (the card {self.card})" if self.card else ""
        return f"interface {self.port}{card} of {self.host} {self.state}"


class Lab:
    """What a graph says, on this machine. Use it as a context; leaving removes everything."""

    def __init__(self, graph: Graph, tasks: Collection[Task] = TASKS) -> None:
        """A lab for those nodes of `graph` that have these tasks; makes nothing yet.

        Other nodes are on other machines.
        """
        self.graph = graph
        self._tasks = tasks
        self._here = [node for node in graph.nodes if node.task in tasks]
        own = (graph.cards_behind(node.name).values() for node in self._here)
        self.numa = Numa.of(card for some in own for card in some)
        self._local = LocalHost()
        self._steps: Mapping[str, Sequence[Step]] = {}
        self._beneath: dict[str, tuple[Sequence[Resource], int]] = {}
        self._cards: dict[Port, cards.CardState] = {}
        self._functions: dict[Port, Passed] = {}
        self._threads: dict[str, list[int]] = {}
        self._lent: dict[Port, contextlib.ExitStack] = {}
        self._handed_over: set[Port] = set()
        self._journal: Journal | None = None
        self._kept = contextlib.ExitStack()
        self._were_up = False

    def __enter__(self) -> Lab:
        """Make the nodes that are no DuT, and the links between them."""
        self._journal = Journal.create()
        try:
            service = os.sched_getaffinity(0)
            self._steps = compile_graph(
                self.graph, self._journal.identity, service, self.numa, self._tasks
            )
            self.add({node.name: () for node in self._here if node.task != "dut"})
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def add(self, nodes: Mapping[str, Sequence[Resource]]) -> None:
        """Make nodes, and their links to each other and to those that are there.

        The resources of each are made before it: what its ports are in. Raises `InputError`,
        `MachineError`.
        """
        for node, resources in nodes.items():
            began = time.monotonic_ns()
            for resource in resources:
                self.make(resource)
            self._beneath[node] = tuple(resources), time.monotonic_ns() - began
        steps = in_order(step for node in nodes for step in self._steps[node])
        for kind, group in groupby(steps, _joint):
            if kind is None:
                for step in group:
                    self._make(step)
            else:
                many = [cast("Joint", step.resource) for step in group]
                self._kept.enter_context(self.journal.made_together(many))

    def _make(self, step: Step) -> None:
        entry = self.journal.enter(step.resource)
        stack = self._kept
        if step.port is not None:
            if step.port not in self._lent:
                self._lent[step.port] = self._kept.enter_context(contextlib.ExitStack())
            stack = self._lent[step.port]
        if step.port is not None and isinstance(step.resource, cards.Card):
            self._cards[step.port] = cards.CardState(**entry.old)
        stack.enter_context(self.journal.made(entry, step.resource))
        if step.port is not None and isinstance(step.resource, VirtualFunction):
            self._functions[step.port] = Passed(**cast("Any", self.journal.applied(entry)))
        if isinstance(step.resource, PortThreads):
            made: Any = self.journal.applied(entry)
            self._threads.setdefault(step.resource.namespace, []).extend(map(int, made["threads"]))

    def resources(self, node: str) -> Sequence[Resource]:
        """What was made beneath a node: what `add` was given."""
        return self._beneath[node][0]

    def functions(self, node: str) -> Sequence[Passed]:
        """The virtual functions that a virtual machine has for ports, in the order of these."""
        return [
            self._functions[port] for port in self.graph.ports_of(node) if port in self._functions
        ]

    def making_ns(self, node: str) -> int:
        """How long that took, in ns."""
        return self._beneath[node][1]

    def host(self, node: str) -> NamespaceHost:
        """Where commands see the ports of a node, or the ends of the links to a virtual machine
        that has a namespace.
        """
        return NamespaceHost(self.name_of(node))

    def tap_devices(self, node: str) -> tuple[LocalHost, Mapping[Port, str]]:
        """The tap devices of the ports of a virtual machine, and where they are."""
        devices = tap_devices(self.graph, node)
        if self.graph.has_namespace(node):
            return self.host(node), devices
        beside = {self.graph.peer(port).node for port in devices}
        return self.host(beside.pop()) if beside else self._local, devices

    def networks(self) -> Sequence[int]:
        """The inodes by which the kernel tells the network namespaces of the lab from others."""
        names = [*(self.host(node.name).namespace for node in self._here), self.name_of(BELOW)]
        found = (NAMESPACES / name for name in names)
        return [path.stat().st_ino for path in found if path.exists()]

    def name_of(self, node: str) -> str:
        return name_of(self.journal.identity, node)

    @contextlib.contextmanager
    def handed_over(self, port: Port, driver: PciDriver = VFIO) -> Iterator[str]:
        """The PCI address of the card that is a port, which `driver` has meanwhile.

        It is no port of the lab any more. Raises `MachineError`.
        """
        self._handed_over.add(port)
        self._lent[port].close()
        with self.journal.held(VfioCard.of(self._cards[port].interface, driver)) as card:
            yield card.address

    def port_threads(self, node: str) -> Sequence[int]:
        """The kernel threads that poll the ports of a node; none where softirqs do."""
        # A lab that was not entered has no names.
        return self._threads.get(self.name_of(node), ()) if self._threads else ()

    def facts(self) -> dict[str, Any]:
        """The cards in the lab by the port that each is, for ``run.json``; nothing without any.

        Ports of a line are named with their nodes.
        """
        lent: dict[str, Any] = {}
        for port, card in self._cards.items():
            found = card.facts()
            link = self.graph.link(port)
            if (function := link.function(port)) is not None:
                found |= {**as_json(function), "vlan": link.vlan, "mac": card.address}
            lent[self._told(port)] = found
        for port, passed in self._functions.items():
            link = self.graph.link(port)
            function = link.function(port)
            assert function is not None
            lent[self._told(port)] = {
                **as_json(function),
                "vlan": link.vlan,
                "passed_through": passed.address,
            }
        return {"cards": lent} if lent else {}

    def placed(self, node: str) -> Placed:
        """Where the packets of a node are received, and which cards its ports are."""
        return placed(self.graph, node, self.numa)

    @cached_property
    def ways(self) -> Mapping[str, Sequence[Way]]:
        return ways(self.graph)

    def passes(self, node: str) -> tuple[tuple[str, str], ...]:
        """The names of the ports between which flows pass a node, each pair once."""
        return tuple((entered.name, left.name) for entered, left in self.graph.passes(node))

    def interrupts(self, node: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The interrupts of the cards of a node that are in the lab: port and CPUs by number.

        These CPUs are where they were sent; none for those that were left to the kernel.
        """
        sent = {
            step.port: parse_cpus(step.resource.cpus)
            for step in self._steps[node]
            if step.port is not None and isinstance(step.resource, CardInterrupts)
        }
        return {
            number: (self._told(port), sent.get(port, ()))
            for port, card in self._cards.items()
            if port.node == node and port not in self._handed_over and card.device is not None
            for number in device_interrupts(Path(card.device), cards.ROOT)
        }

    @property
    def journal(self) -> Journal:
        """Where everything that is made for this lab is entered before it is made."""
        assert self._journal is not None
        return self._journal

    def make(self, change: R) -> R:
        """Make a change that is undone when the lab is removed. Raises what `change` raises."""
        return self.keep(self.journal.held(change))

    def keep(self, made: contextlib.AbstractContextManager[T]) -> T:
        """Enter the context of something that stands in the lab; it is left before the links go."""
        return self._kept.enter_context(made)

    def wait_until_up(self) -> None:
        """Return when every port is up, or was once. Raises `MachineError` for one that never is.

        A port of a cable comes up when its other end does, which may be on another machine.
        """
        if self._were_up:
            return
        deadline = time.monotonic() + (cards.UP_SECONDS if self._cards else UP_SECONDS)
        while down := self.broken_ports():
            if time.monotonic() > deadline:
                hint = ""
                if self._cards:
                    keys = "dut.over" if self._shared_cards() else "dut.ports, tap.ports"
                    keys = keys if set(self._tasks) == set(TASKS) else CABLES
                    hint = f": check the cables and {keys}"
                raise MachineError(f"the link did not come up: {down[0]}{hint}")
            time.sleep(0.005)
        self._were_up = True

    def broken_ports(self) -> list[Broken]:
        """The ports that are gone or carry no packets, and cards of which ports are functions."""
        broken: list[Broken] = []
        for node, ports in self._ports().items():
            host = self.host(node)
            rows = shown("ip", "-n", host.namespace, "-j", "link", "show")
            found = {row["ifname"]: row for row in rows}
            for port in ports:
                row = found.get(port.name)
                if row is not None and _carries(row):
                    continue
                state = "vanished" if row is None else f"is {row['operstate'].lower()}"
                card = dict(self.graph.link(port).carded)[port] if port in self._cards else None
                broken.append(Broken(state, card, port.name, host.name))
        # Virtual functions say that they are up while their card still talks to its peer.
        broken += [
            Broken("is down", name)
            for name in self._shared_cards()
            if not _carries(cards.link(None, name) or {})
        ]
        return broken

    def watch(self) -> list[Process]:
        """Processes that print a line when a link of the lab is deleted: `deleted_port` reads it.

        They sleep until then: polling would disturb what is measured.
        """
        return [
            self._local.start(["ip", "-n", self.host(node).namespace, "monitor", "link"])
            for node in self._ports()
        ]

    def deleted_port(self, line: str) -> str | None:
        words = line.split()
        if words[:1] != ["Deleted"] or len(words) < 3:
            return None
        name = words[2].partition("@")[0].rstrip(":")
        ours = {port.name for ports in self._ports().values() for port in ports}
        return name if name in ours else None

    def remove(self) -> None:
        """Undo all changes and leave what was kept, newest first.

        The journal goes last, and stays when something could not be undone.
        """
        try:
            self._kept.close()
        finally:
            self._beneath.clear()
            self._cards.clear()
            self._functions.clear()
            self._threads.clear()
            self._lent.clear()
            self._handed_over.clear()
            if self._journal is not None:
                self._journal.close()
                for sentence in self._journal.left:
                    log.warning("%s", sentence)
                self._journal = None

    def _ports(self) -> dict[str, list[Port]]:
        """The ports of this machine that links have made or that cards are, by their node."""
        found: dict[str, list[Port]] = {
            node.name: []
            for node in self.graph.nodes
            if node.name in self._beneath and self.graph.has_namespace(node.name)
        }
        for link in self.graph.links:
            if link.carded or all(port.node in self._beneath for port in link.ends):
                for port in link.ports:
                    away = port in self._handed_over or port in self._functions
                    if port.node in found and not away:
                        found[port.node].append(port)
        return found

    def _told(self, port: Port) -> str:
        """A port in run.json: with its node where the DuT has several."""
        several = sum(node.task == "dut" for node in self.graph.nodes) > 1
        return str(port) if several else port.name

    def _shared_cards(self) -> list[str]:
        """The cards of this machine whose virtual functions are in the lab."""
        lent = [(port, link) for port, link in self.graph.functions
                if not self._cards.keys().isdisjoint(link.ends)]  # fmt: skip
        return list(dict.fromkeys(dict(link.carded)[port] for port, link in lent))


def _joint(step: Step) -> type[Joint] | None:
    """The kind of a step that can be made at once with others of it."""
    resource = step.resource
    return type(resource) if isinstance(resource, Joint) and step.port is None else None


def _carries(row: Mapping[str, Any]) -> bool:
    """Whether a link is up at both ends, has a queueing discipline, and the kernel has told so.

    Those whose driver never tells stay "unknown".
    """
    told = row.get("operstate") in ("UP", "UNKNOWN")
    return told and {"UP", "LOWER_UP"} <= set(row["flags"]) and row.get("qdisc") != "noop"
