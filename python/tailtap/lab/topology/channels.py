"""Links between nodes of a DuT over one cable: a virtual function at each end, and a VLAN each.

```
dut1:tt-out ── function 0 of A ══ VLAN 2 ══ function 0 of B ── dut2:tt-in
dut2:tt-out ── function 1 of B ══ VLAN 3 ══ function 1 of A ── dut3:tt-in
```

As in hardware-supported-containers, section III-C: two cards, since functions of one card are
joined within it and packets between them pass no cable, and every second link the other way round,
so that both directions of the cable are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tailtap.base.errors import InputError
from tailtap.host.net.virtual_functions import FIRST_VLAN, LAST_VLAN
from tailtap.lab.topology.graph import Function, Graph, Link, Port


def over_channels(graph: Graph, cards: tuple[str, str]) -> Graph:
    """The same graph with every link between two nodes of the DuT over the cable between `cards`.

    Raises `InputError` for more links than there are VLANs.
    """
    return replace(graph, links=tuple(_links(graph, cards)))


def by_functions(graph: Graph) -> Graph:
    """The same graph with a virtual function of each of the DuT's cards in the card's place."""

    def function(link: Link, port: Port) -> Function | None:
        whole = port.node in graph.devices and link.function(port) is None
        return Function(dict(link.carded)[port], 0) if whole else link.function(port)

    return replace(graph, links=tuple(
        replace(link, functions=(function(link, link.ends[0]), function(link, link.ends[1])))
        if link.cards is not None else link
        for link in graph.links
    ))  # fmt: skip


def over_ways(graph: Graph, way: str) -> Graph:
    """The same graph with every virtual link to a node of the DuT by a `way` of `Reached`."""
    return replace(graph, links=tuple(
        replace(link, way=way)
        if not link.carded and any(port.node in graph.devices for port in link.ends) else link
        for link in graph.links
    ))  # fmt: skip


def _links(graph: Graph, cards: tuple[str, str]) -> Iterator[Link]:
    inner = {node.name for node in graph.nodes if node.task == "dut"}
    number = 0
    for link in graph.links:
        if not inner.issuperset(port.node for port in link.ends):
            yield link
            continue
        vlan = FIRST_VLAN + number
        if vlan > LAST_VLAN:
            raise InputError(
                f"dut.over: one cable has {LAST_VLAN - FIRST_VLAN + 1} VLANs for links, and there "
                "are more: leave it out"
            )
        one, other = cards if number % 2 == 0 else cards[::-1]
        ends = Function(one, number), Function(other, number)
        yield replace(link, cards=(one, other), functions=ends, vlan=vlan)
        number += 1
