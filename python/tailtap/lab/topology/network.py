"""The graph of a network: nodes that are joined as flows pass them, and ends for each flow.

```
node gen            node tap                    nodes of the DuT
    tt-gen1 ═══ tt-a0-1 ─▶ tt-a1-1 ═══ tt-in1 r1 to-r2 ═══ to-r1 r2 tt-out1 ═══ tt-b0-1 node tap
    tt-gen2 ═══ tt-a0-2 ─▶ tt-a1-2 ═══ tt-in2 r1 to-r3 ═══ to-r1 r3 tt-out2 ═══ tt-b0-2
```

Each flow has a generator's port, a pair of taps, a port of its own on its first node and one on its
last. So packets are told apart by where they are stamped, and what a flow's taps cost is the same
however many flows there are. Two nodes are joined by one link, whose ends are called after the node
on the other side.

Network cards can be the ends of the links beside the DuT: each flow has two cables then. Behind
splitters its packets come back to a port `tt-backN` of the generator, as in a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tailtap.lab.topology.graph import Flow, Graph, Link, Node, Port
from tailtap.lab.topology.line import (
    DEFAULT_MTU,
    ETHERNET_OVERHEAD,
    GENERATOR,
    TAPS,
    Cables,
    beside,
    require_splittable,
    split,
)

LONGEST_NODE = 12
"""Characters of a node's name, which names of ports have in them."""


def network(
    duts: Sequence[Node],
    paths: Mapping[str, Sequence[str]],
    *,
    frame_size: int = 0,
    cables: Sequence[Cables] = (),
    hops: bool = False,
    queues: bool = False,
) -> Graph:
    """The graph of `duts` in which flows pass the nodes of their `paths`, first to last.

    A flow that passes no node goes from tap to tap. Links carry frames of `frame_size` bytes, check
    sequence included. With `cables`, two for each flow, cards are the ports of its first and last
    node. With `hops` packets are also stamped where they enter each node but the first
    of their path, with `queues` as well as nodes receive them (`Flow.queues`). Raises `InputError`
    for a graph that cannot be.
    """
    mtu = max(DEFAULT_MTU, frame_size - ETHERNET_OVERHEAD)
    sending: list[Link] = []
    ends: list[Link] = []
    flows: list[Flow] = []
    inner: dict[frozenset[str], tuple[Port, Port]] = {}
    for pair in (pair for path in paths.values() for pair in pairwise(path)):
        inner.setdefault(frozenset(pair), _ends(*pair))
    for number, (name, path) in enumerate(paths.items(), 1):
        start, first_tap = Port(GENERATOR, f"tt-gen{number}"), Port(TAPS, f"tt-a0-{number}")
        onward, last_tap = Port(TAPS, f"tt-a1-{number}"), Port(TAPS, f"tt-b0-{number}")
        within: list[Port] = []
        if path:
            entry, leaving = Port(path[0], f"tt-in{number}"), Port(path[-1], f"tt-out{number}")
            steps = (port for pair in pairwise(path) for port in _ends(*pair))
            within = [entry, *steps, leaving]
        stamped = (first_tap, *(within[2::2] if hops else ()), last_tap)
        own = cables[number - 1] if cables else None
        if own is not None and own.generator is not None:
            require_splittable(duts=bool(path))
            back = Port(GENERATOR, f"tt-back{number}")
            way = (start, first_tap, *within, last_tap, back)
            ends += split(way, mtu, own, own.generator)
        else:
            way = (start, first_tap, onward, *within, last_tap)
            sending.append(Link((start, first_tap), mtu))
            if path:
                ends += beside((onward, entry), (leaving, last_tap), mtu, own)
            else:
                ends.append(Link((onward, last_tap), mtu))
        flows.append(Flow(name, way, stamped, queues))
    between = [Link(joined, mtu) for joined in inner.values()]
    nodes = (Node(GENERATOR, "generator"), Node(TAPS, "timestamper"), *duts)
    return Graph(nodes, (*sending, *ends, *between), tuple(flows))


def _ends(one: str, other: str) -> tuple[Port, Port]:
    """The ends of the link between two nodes."""
    return Port(one, f"to-{other}"), Port(other, f"to-{one}")
