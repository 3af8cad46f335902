"""`dut.over`: what the links between the nodes of a DuT are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from tailtap.base.check import Findings
from tailtap.base.document import Misfit
from tailtap.base.schema import Ports, Strict, Written
from tailtap.experiment.line import ENDS, Member
from tailtap.host.net import pci
from tailtap.host.net.cards import CardState
from tailtap.host.net.namespaces import require_way
from tailtap.host.net.virtual_functions import Ability
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.topology.graph import Graph
from tailtap.lab.topology.numbering import by_functions, over_channels, over_ways

VETH: Final = "veth"


class Sriov(Strict):
    """Virtual functions of two network cards that a cable joins."""

    sriov: Ports = Field(
        description="Two network cards of the DuT's machine that a cable joins. Each link between "
        "nodes has a virtual function of both, and a VLAN of its own.",
        examples=[["enp1s0f0", "enp2s0f0"]],
    )


def _form(value: object) -> str:
    return "mapping" if isinstance(value, dict | Sriov) else "word"


Over: TypeAlias = Annotated[
    Annotated[Literal["veth", "macvlan", "bridge", "netkit"], Tag("word")]
    | Annotated[Sriov, Tag("mapping")],
    Discriminator(_form),
    Written("`veth`, `macvlan`, `bridge`, `netkit`, or `{sriov: [card, card]}`"),
]


def check_over(over: Sriov | str, taps: str, graph: Graph) -> None:
    """Raises `Misfit` unless packets can come through virtual functions, where these are asked."""
    if isinstance(over, str):
        _check_way(over, taps, graph)
        return
    if over.sriov[0] == over.sriov[1]:
        raise Misfit(
            ("dut", "over", "sriov"),
            "packets between functions of one card pass no cable: name two cards that one joins",
        )
    if graph.channels and taps != ENDS:
        raise Misfit(
            ("dut", "taps"),
            "a packet that comes from a cable is received long after it was handed over, and "
            "nothing tells when that was: choose taps: ends, or leave dut.over out",
            [("dut", "over")],
        )
    for port in (port for link in graph.channels for port in link.ends):
        node = graph.node(port.node)
        if not node.routes:
            able = " or ".join(name for name, row in FORWARDERS.working() if row.routes)
            raise Misfit(
                ("dut", "over"),
                "a network card gives a virtual function only what is addressed to it, and "
                f"{node.name} is no router: make {able} its forwarder, or leave dut.over out",
                [("dut", "forwarder"), ("dut", "nodes")],
            )


def _check_way(way: str, taps: str, graph: Graph) -> None:
    nodes = [node for node in graph.nodes if node.task == "dut"]
    if taps != ENDS:
        raise Misfit(("dut", "taps"), f"taps between nodes see what is handed to {way}, not to the "
                     "node: choose taps: ends", [("dut", "over")])  # fmt: skip
    if any(node.kind == "guest" for node in nodes):
        raise Misfit(("dut", "over"), f"a virtual machine has tap devices, which no {way} is: "
                     "leave it out, or take another platform", [("dut", "platform")])  # fmt: skip
    if any(node.placement.threads for node in nodes):
        raise Misfit(("dut", "napi"), f"{way} is not polled: take napi: softirq", [("dut", "over")])
    if any(link.carded for link in graph.links):
        raise Misfit(("dut", "over"), f"network cards are the ports, and no {way} lies on them: "
                     "leave it out", [("dut", "ports")])  # fmt: skip


def check_functions(members: Sequence[Member], *, cards: bool, both_ways: bool) -> None:
    """Raises `Misfit` unless packets can come in by functions of the DuT's cards, and leave."""
    at = ("dut", "functions")
    if not cards:
        raise Misfit(
            at,
            "links of the lab have no virtual functions: name network cards with dut.ports, "
            "measure on a testbed, or leave it out",
            [("dut", "ports")],
        )
    ends = (members[0], members[-1])
    if both_ways and not all(FORWARDERS[one.dut.forwarder].routes for one in ends):
        raise Misfit(
            at,
            "a card keeps what goes to the address of one of its functions, as packets both ways "
            "do that no router has addressed anew: take one direction, or a forwarder that routes",
            [("traffic", "bidirectional")],
        )


def with_links_over(graph: Graph, over: Sriov | str, *, functions: bool) -> Graph:
    """The same graph, with the links of its DuT made of what `over` says, and with virtual
    functions of its outer cards in place of these.
    """
    graph = by_functions(graph) if functions else graph
    if over == VETH:
        return graph
    return over_ways(graph, over) if isinstance(over, str) else over_channels(graph, over.sriov)


def foresee_over(graph: Graph, findings: Findings) -> None:
    """Find out whether the cards of a graph have the virtual functions that it needs."""
    for way in {link.way for link in graph.links if link.way is not None}:
        findings.ask(require_way, way)
    wanted = Counter(dict(link.carded)[port] for port, link in graph.functions)
    for card, count in wanted.items():
        if findings.ask(CardState.of, card) is None:
            continue
        able = Ability.of(card)
        findings.ask(able.require, count)
        findings.ask(able.require_driver)
    if any(graph.node(port.node).kind == "guest" for port, _ in graph.functions):
        findings.ask(pci.require_iommu)
        findings.ask(pci.require_vfio)
