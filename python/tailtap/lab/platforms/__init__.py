"""What a DuT runs on: one file for each kind, one row in `PLATFORMS`.

A platform gives a DuT with an ingress and an egress port, which are ends of the lab's links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic import BaseModel

from tailtap.base.errors import Findings, MachineError
from tailtap.base.registry import Kind, Registry
from tailtap.host.changes.resource import Resource
from tailtap.host.facts import machine as facts
from tailtap.lab.platforms.dut import Dut, DutSpec
from tailtap.lab.topology.graph import Graph, Node, NodeKind
from tailtap.lab.topology.graphs import Cables, dut_names, line, network, served, share_out
from tailtap.lab.topology.lab import Lab
from tailtap.records.machine import Traits

__all__ = [
    "PLATFORMS",
    "Devices",
    "Dut",
    "DutSpec",
    "Platform",
    "alike",
    "build",
    "declaring",
    "graph_of",
    "require_memory",
]


class Platform(Kind, Protocol):
    """One kind of platform."""

    traits: Traits

    ports_in: NodeKind | None
    """What holds the DuT's ports; None where there is no DuT."""

    Options: type[BaseModel]
    """The keys of `dut` that it understands, besides those that all platforms have.

    Platforms may share a key; each checks its values itself.
    """

    def foresee(
        self,
        spec: DutSpec[Any],
        cards: Sequence[str],
        programs: Sequence[str],
        findings: Findings,
    ) -> None:
        """Find out what `build` would miss on this machine, without making anything.

        `cards` are the network cards that are its ports, and its forwarder runs `programs`.
        """

    def machine(self, spec: DutSpec[Any]) -> Mapping[str, Any]:
        """What is asked of the whole machine, once for all nodes of the DuT: facts of it.

        Raises `MachineError` when it is not as the experiment says.
        """

    def resources(self, name: str, spec: DutSpec[Any], cards: Sequence[str]) -> Sequence[Resource]:
        """What a DuT called `name` needs before it has ports, in the order to make it.

        `cards` are the network cards that are its ports. Makes nothing, but may fetch what is kept
        for later runs. Raises `InputError`, `MachineError` when this machine cannot do it.
        """

    def memory(self, spec: DutSpec[Any]) -> int:
        """Bytes of this machine's memory that a node has for itself from its start on; 0 if it
        takes what it needs.
        """

    def start(self, lab: Lab, specs: Sequence[DutSpec[Any]]) -> Sequence[Dut]:
        """The nodes of `specs`, when their resources and links are made: start them, side by side
        where that takes its time, and read all back.

        What must end with the lab is entered by `Lab.keep`. Raises `MachineError` when one is not
        what was asked for.
        """


Devices = Sequence[tuple[Platform, DutSpec[Any]]]
"""What each node of a DuT is asked for, in the order in which packets pass them."""


def alike(platform: Platform, spec: DutSpec[Any], length: int = 1) -> Devices:
    """So many equal nodes: they share the CPUs out, or else all work on all of them."""
    shares = zip(dut_names(length), share_out(spec.cpus, length), strict=True)
    return [(platform, replace(spec, node=node, cpus=cpus)) for node, cpus in shares]


def graph_of(
    devices: Devices,
    *,
    frame_size: int = 0,
    cables: Sequence[Cables] = (),
    hops: bool = False,
    queues: bool = False,
    paths: Mapping[str, Sequence[str]] | None = None,
    clients: Sequence[int] = (),
) -> Graph:
    """The graph of a DuT for frames of up to `frame_size` bytes.

    With `hops` it has tap points between nodes, with `queues` more of them
    (`Flow.queues`). It is a line, unless there are `paths`: the nodes that each flow passes, or the
    CPUs of `clients`: then its one node answers them. Each flow has two of the `cables` for itself.
    """
    nodes = [
        Node(spec.node, "dut", platform.ports_in, spec.cpus, spec.placement, spec.routes)
        for platform, spec in devices
        if platform.ports_in is not None
    ]
    if clients:
        return served(nodes[0], clients, frame_size=frame_size)
    if paths is not None:
        there = {node.name for node in nodes}
        ways = {flow: [name for name in path if name in there] for flow, path in paths.items()}
        return network(nodes, ways, frame_size=frame_size, cables=cables, hops=hops, queues=queues)
    both_ways = any(spec.both_ways for _, spec in devices)
    return line(
        nodes,
        frame_size=frame_size,
        both_ways=both_ways,
        cables=next(iter(cables), None),
        hops=hops,
        queues=queues,
    )


def build(lab: Lab, devices: Devices) -> Sequence[Dut]:
    """Make the DuT of `lab`: its nodes, in the order of the graph, which may have none.

    Raises `InputError`, `MachineError` when this machine cannot do it.
    """
    asked: list[tuple[Platform, DutSpec[Any], Mapping[str, Any]]] = []
    for platform, spec in devices:
        known = (facts for other, same, facts in asked
                 if other is platform and same.options == spec.options)  # fmt: skip
        machine = next(known, None)
        asked.append((platform, spec, platform.machine(spec) if machine is None else machine))
    nodes = {node.name for node in lab.graph.nodes}
    asked = [row for row in asked if row[1].node in nodes]
    require_memory([(kind, spec) for kind, spec, _ in asked])
    lab.add(
        {
            spec.node: platform.resources(
                lab.name_of(spec.node), spec, list(lab.graph.cards_of(spec.node).values())
            )
            for platform, spec, _ in asked
        }
    )
    duts: dict[str, Dut] = {}
    for platform in {id(kind): kind for kind, _, _ in asked}.values():
        specs = [spec for kind, spec, _ in asked if kind is platform]
        duts |= {dut.node: dut for dut in platform.start(lab, specs)}
    return [
        replace(duts[spec.node], facts={**machine, **duts[spec.node].facts})
        for _, spec, machine in asked
    ]


def require_memory(devices: Devices) -> None:
    """Raises `MachineError` when nodes have more memory together than this machine has left."""
    sizes = {spec.node: kind.memory(spec) for kind, spec in devices}
    every = [node for node, size in sizes.items() if size]
    wanted, available = sum(sizes.values()), facts.memory("MemAvailable")
    if available is None or wanted <= available:
        return
    of_each = "" if len(every) == 1 else f" for {', '.join(every)} together"
    raise MachineError(
        f"dut.memory of {wanted >> 20} MiB{of_each} is more than the {available >> 20} MiB that "
        "this machine has left: ask for less"
    )


def _built_in() -> Mapping[str, Platform]:
    from tailtap.lab.platforms.bare_metal import BareMetal, Wire
    from tailtap.lab.platforms.contained import CRUN, LXC, PODMAN, RUNC
    from tailtap.lab.platforms.vm import Vm
    from tailtap.lab.platforms.vm.vhost import VmVhost

    return {
        "wire": Wire(),
        "bare-metal": BareMetal(),
        "container": LXC,
        "crun": CRUN,
        "runc": RUNC,
        "podman": PODMAN,
        "vm": Vm(),
        "vm-vhost": VmVhost(),
    }


PLATFORMS: Registry[Platform] = Registry("platform", "tailtap.platforms", Platform, _built_in)
"""Every platform by its name in the experiment file."""


def declaring() -> Mapping[str, Sequence[str]]:
    """The keys of `dut` that platforms declare, each with the names of those platforms."""
    found: dict[str, list[str]] = {}
    for name, kind in PLATFORMS.working():
        for key in kind.Options.model_fields:
            found.setdefault(key, []).append(name)
    return found
