"""What the kernel is told to route: packets are walked through the rules of every node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from itertools import pairwise, product
from pathlib import Path
from typing import cast

import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from networks import Made, networks

from tailtap.base.errors import MachineError
from tailtap.experiment.model import Experiment
from tailtap.experiment.network import serving
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.namespaces import Link as Veth
from tailtap.lab.forwarders import Setting
from tailtap.lab.forwarders.routing import KernelRoute
from tailtap.lab.forwarders.setting import RouteBy
from tailtap.lab.generators.flows import Address
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import Dut
from tailtap.lab.topology.compiler import compile_graph, name_of
from tailtap.lab.topology.graph import Flow, Node, Port
from tailtap.lab.topology.graphs import FORWARD, REVERSE, TAPS, dut_names, network, smallest
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.numbering import DESTINATION_MAC, NEXT_HOP_MAC
from tailtap.lab.topology.placement import Placement
from tailtap.remote import Completed, Host

IDENTITY, MAIN = "0123ab", "main"


@dataclass
class Kernel:
    """A host that obeys ip(8) as far as `kernel-route` asks it to."""

    own_kernel = True
    refuses: str = ""
    """The first words of what it does not know."""
    macs: dict[str, str] = field(default_factory=dict)
    rules: dict[tuple[str, int], str] = field(default_factory=dict)
    """The table by the port that packets come in at, and their UDP destination port."""
    neighbours: dict[tuple[str, str], str] = field(default_factory=dict)
    routes: dict[tuple[str, IPv4Network | IPv6Network], tuple[str, str]] = field(
        default_factory=dict
    )
    """Next hop and port by table and destination."""

    def run(self, command: Sequence[str], *, stdin: str = "", check: bool = True) -> Completed:
        answers = ""
        for number, line in enumerate(stdin.splitlines(), 1):
            words = line.split()
            if self.refuses and line.startswith(self.refuses):
                return Completed(answers, f"not known\nCommand failed -:{number}\n", 1)
            told = dict(pairwise(words))
            match words[:2]:
                case ["link", "set"] if "address" in told:
                    self.macs[told["dev"]] = told["address"]
                case ["rule", "add"]:
                    low, _, high = told["dport"].partition("-")
                    for port in range(int(low), int(high) + 1):
                        self.rules[told["iif"], port] = told["table"]
                case ["neigh", "replace"]:
                    assert told["nud"] == "permanent"
                    self.neighbours[told["dev"], words[2]] = told["lladdr"]
                case ["route", "replace"]:
                    any_one = "0.0.0.0/0" if "." in told["via"] else "::/0"
                    to = ip_network(any_one if words[2] == "default" else words[2])
                    self.routes[told.get("table", MAIN), to] = told["via"], told["dev"]
                case ["route", "get"]:
                    hop, out = self.way(told["iif"], ip_address(words[2]), int(told["dport"]))
                    answers += f"{words[2]} via {hop} dev {out} table 1 \n    cache iif\n"
        return Completed(f"{answers}6.1.0\n", "", 0)

    def way(self, entered: str, destination: Address, port: int) -> tuple[str, str]:
        """The next hop and the port of the longest prefix in the table that rules choose."""
        table = self.rules.get((entered, port), MAIN)
        fitting = [to for where, to in self.routes if where == table and destination in to]
        return self.routes[table, max(fitting, key=lambda to: to.prefixlen)]

    def sent(self, entered: str, mac: str, destination: Address, port: int) -> tuple[str, str]:
        """Where a packet leaves that came in so, and to which hardware address."""
        assert self.macs[entered] == mac, "it is for somebody else"
        hop, out = self.way(entered, destination, port)
        return out, self.neighbours[out, hop]


def routed(
    lab: Lab,
    traffic: Mapping[str, Traffic],
    nodes: Iterable[str],
    refuses: str = "",
    route_by: RouteBy = "port",
) -> dict[str, Kernel]:
    """The kernel of each node, told what to do."""
    kernels: dict[str, Kernel] = {}
    ends = {}
    for steps in compile_graph(lab.graph, IDENTITY, [0], Numa((0, 1))).values():
        for one in (step.resource for step in steps):
            if isinstance(one, Veth):
                ends[one.namespace, one.port] = one.address
                ends[one.peer_namespace, one.peer_port] = one.peer_address
    for node in nodes:
        kernel = kernels[node] = Kernel(refuses)
        kernel.macs = {
            port: mac for (where, port), mac in ends.items() if where == name_of(IDENTITY, node)
        }
        dut = Dut(cast("Host", kernel), lab.passes(node), (1,), node=node)
        KernelRoute().start(dut, KernelRoute.Options(), Setting(lab, Path(), traffic, route_by))
    return kernels


@cases(20)  # up to 64 nodes each
@given(st.integers(1, 64), st.booleans(), st.sampled_from([4, 6]), st.integers(1, 20))
def test_packets_find_their_way_through_a_line_of_any_length(
    length: int, both_ways: bool, version: int, ports: int
) -> None:
    last = 52 + ports
    traffic = Traffic.model_validate(
        {
            "ip": version,
            "bidirectional": both_ways,
            "flows": {"dport": f"53-{last}"},
            "size": "128 B",
        }
    )
    graph = smallest(
        "namespace", (1,), both_ways=both_ways, length=length, placement=Placement((1,))
    )
    lab = Lab(graph)
    sent = {FORWARD: traffic, REVERSE: traffic.reversed()}
    kernels = routed(lab, sent, dut_names(length))
    for flow in graph.flows:
        for destination, port in extremes(sent[flow.name]):
            assert walked(lab, kernels, flow, destination, port) == flow.path


def extremes(traffic: Traffic) -> Iterator[tuple[Address, int]]:
    """The first and the last of the destinations, each with the first and the last UDP port."""
    ranges = traffic.ranges()
    (address, addresses), (port, ports) = ranges.destination, ranges.destination_ports
    yield from product((address, address + (addresses - 1)), (port, port + ports - 1))


def walked(
    lab: Lab, kernels: Mapping[str, Kernel], flow: Flow, destination: Address, port: int
) -> tuple[Port, ...]:
    """The ports that a packet passes, as the kernels say; other nodes pass it as it is."""
    path = list(flow.path[:3])
    mac = DESTINATION_MAC
    while (entered := lab.graph.peer(path[-1])).node != TAPS:
        if entered.node in kernels:
            out, mac = kernels[entered.node].sent(entered.name, mac, destination, port)
        else:
            [out] = {left for come, left in lab.passes(entered.node) if come == entered.name}
        path += [entered, Port(entered.node, out)]
    routers = [node for node in flow.passed if node in kernels]
    assert mac == (NEXT_HOP_MAC if routers else DESTINATION_MAC)
    return (*path, entered)


@pytest.mark.parametrize(
    ("refuses", "message"),
    [
        ("rule", "cannot route by port (by port it needs CONFIG_IP_MULTIPLE_TABLES"),
        ("route get", "does not route 10.1.0.1 from tt-in to tt-out: it says not known"),
    ],
)
def test_a_kernel_that_cannot_is_quoted(refuses: str, message: str) -> None:
    lab = Lab(smallest("namespace", (1,)))
    with pytest.raises(MachineError) as caught:
        routed(lab, {FORWARD: Traffic()}, ["dut"], refuses)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@cases(25)  # up to 100 nodes and 40 flows each
@given(networks(), st.sampled_from(["address", "port"]), st.sampled_from([4, 6]), st.data())
def test_every_flow_is_walked_through_any_network(
    made: Made, route_by: RouteBy, version: int, data: st.DataObject
) -> None:
    """Some nodes do not route where their ways leave no choice."""
    plain = network([Node(name, "dut") for name in made.nodes], made.paths)
    free = [name for name in made.nodes if serving(plain.passes(name)) != "flows"]
    bridges = set(data.draw(st.lists(st.sampled_from(free)))) if free else set()
    nodes = [Node(name, "dut", routes=name not in bridges) for name in made.nodes]
    lab = Lab(network(nodes, made.paths))
    passed = {name for path in made.paths.values() for name in path}
    content = {
        "name": "walked",
        "dut": {
            "route_by": route_by,
            "forwarder": "kernel-route",
            "nodes": {name: {"forwarder": "tc-mirred"} if name in bridges else {}
                      for name in made.nodes},
            "links": [f"{one} - {other}" for one, other in made.links]
            + [chain for path in made.paths.values()
               for chain in (f"in - {path[0]}", f"{path[-1]} - out")],
            "flows": {name: {"path": ["in", *path, "out"]} for name, path in made.paths.items()},
        },
        "traffic": {"ip": version, "size": "128 B", "ttl": 255},
    }  # fmt: skip
    experiment = Experiment.model_validate(content)
    sent = {flow: experiment.traffic_of(flow) for flow in experiment.flows}
    kernels = routed(lab, sent, [name for name in passed if name not in bridges], "", route_by)
    for flow in lab.graph.flows:
        assert flow.path == experiment.graph().flow(flow.name).path
        for destination, port in extremes(sent[flow.name]):
            assert walked(lab, kernels, flow, destination, port) == flow.path
