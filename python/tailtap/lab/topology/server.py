"""The graph of a DuT that answers: a server, which clients ask over one link.

```
node gen                       node tap                        node dut
    tt-gen ═══════════════ tt-a0 ─tap ingress─▶ tt-a1 ══════════ tt-in
                                 ◀─tap egress──                     │ server
```

Requests are stamped on their way to the DuT as they leave `tt-a1`, and answers when the DuT hands
them over to it. Each goes on to the other side, with whatever else the two tell each other.

Both ends have an address in one subnet, and know each other's hardware address: no protocol
resolves anything. The client's packets are received on the client's CPUs: else the DuT's would do
that work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailtap.lab.generators.flows import CLIENT, SERVER, Version
from tailtap.lab.topology.graph import Flow, Graph, Link, Node, Port
from tailtap.lab.topology.line import (
    DEFAULT_MTU,
    DUT_INGRESS,
    ETHERNET_OVERHEAD,
    FORWARD,
    GENERATOR,
    TAPS,
    TO_DUT,
)
from tailtap.lab.topology.numbering import DESTINATION_MAC
from tailtap.lab.topology.placement import Placement
from tailtap.remote import Host

CLIENT_MAC = "02:74:74:00:00:01"
"""The hardware address of the client's port, which tailtap's own generator has as well."""
_PREFIX: Mapping[Version, int] = {4: 24, 6: 64}

# No neighbour discovery and nobody told of a router: the link carries requests and answers alone.
_ADDRESS = """port=$1; base=/proc/sys/net/ipv6/conf/$port
if [ "$7" = 6 ]; then
    echo 0 > $base/accept_dad; echo 1 > $base/addr_gen_mode
    echo 0 > $base/accept_ra; echo 0 > $base/disable_ipv6
fi
ip link set dev lo up; ip link set dev $port address $2
ip -$7 address replace $3/$4 dev $port
ip -$7 neigh replace $5 lladdr $6 dev $port nud permanent"""


def served(dut: Node, clients: Sequence[int], *, frame_size: int = 0) -> Graph:
    """The graph of one DuT that answers clients, which are on the CPUs `clients`.

    Links carry frames of 1500 bytes without their headers, or of `frame_size` bytes with them.
    """
    mtu = max(DEFAULT_MTU, frame_size - ETHERNET_OVERHEAD)
    client, first = Port(GENERATOR, "tt-gen"), Port(TAPS, "tt-a0")
    last, port = Port(TAPS, TO_DUT), Port(dut.name, DUT_INGRESS)
    sender = Node(GENERATOR, "generator", cpus=tuple(clients), placement=Placement(tuple(clients)))
    links = (Link((client, first), mtu), Link((last, port), mtu))
    way = (client, first, last, port, port, last, first, client)
    return Graph(
        (sender, Node(TAPS, "timestamper"), dut), links, (Flow(FORWARD, way, (first, last)),)
    )


def address_client(host: Host, port: str, version: Version) -> None:
    """Give the client's port its address. Raises `MachineError`."""
    _address(host, port, version, (CLIENT_MAC, CLIENT), (DESTINATION_MAC, SERVER))


def address_server(host: Host, port: str, version: Version) -> None:
    """Give the DuT's port its address. Raises `MachineError`."""
    _address(host, port, version, (DESTINATION_MAC, SERVER), (CLIENT_MAC, CLIENT))


def _address(
    host: Host,
    port: str,
    version: Version,
    own: tuple[str, Mapping[Version, str]],
    other: tuple[str, Mapping[Version, str]],
) -> None:
    words = [port, own[0], own[1][version], str(_PREFIX[version]), other[1][version], other[0]]
    host.run(["sh", "-ec", _ADDRESS, "address", *words, str(version)])
