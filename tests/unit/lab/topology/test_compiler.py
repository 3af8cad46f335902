"""What a graph is compiled to: complete, in an order in which it can be made, and unique."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtap.base.errors import InputError, TailtapError
from tailtap.host.changes import clean
from tailtap.host.changes.kernel_values import KernelValue
from tailtap.host.cpu.cpus import Numa
from tailtap.host.net.cards import Card
from tailtap.host.net.namespaces import Junction, Namespace, TapDevice
from tailtap.host.net.namespaces import Link as Veth
from tailtap.host.net.port_work import CardInterrupts, PortThreads
from tailtap.lab.topology.compiler import Step, compile_graph, in_order, name_of, tap_devices
from tailtap.lab.topology.graph import Flow, Graph, Link, Node, NodeKind, Port, Task
from tailtap.lab.topology.graphs import DUT, GENERATOR, TAPS, Cables, network, smallest
from tailtap.lab.topology.placement import Irq, Placement, cpus_of

IDENTITY = "0123ab"
CABLES = Cables(("in0", "out0"), ("before", "behind"))
NUMA = Numa((0, 1, 2, 3, 5, 6), {0: (0, 1, 2, 3), 1: (5, 6)}, {"in0": 1, "out0": 0})
"""Two nodes, on which one CPU is off."""


def compiled(graph: Graph) -> list[Step]:
    """Everything, in the order in which it is made."""
    parts = compile_graph(graph, IDENTITY, [5, 6], NUMA)
    assert list(parts) == [node.name for node in graph.nodes]
    return [step for steps in parts.values() for step in steps]


def kinds_of(steps: Sequence[Step]) -> list[str]:
    return [type(step.resource).__name__ for step in steps]


def test_a_container_has_its_own_namespace() -> None:
    step, *_ = compile_graph(smallest("container", [1]), IDENTITY, [5], NUMA)[DUT]
    assert step.resource == Namespace("tt-0123ab-dut", container="tt-0123ab-dut")


def test_a_virtual_machine_is_behind_tap_devices_and_steers_itself() -> None:
    parts = compile_graph(smallest("guest", [1]), IDENTITY, [5], NUMA)[DUT]
    assert [step.resource for step in parts] == [
        TapDevice("tt-a1", "tt-0123ab-tap", 1500),
        TapDevice("tt-b0", "tt-0123ab-tap", 1500),
    ]


@pytest.mark.parametrize("kind", ["namespace", "container"])
def test_cards_take_the_places_of_ports(kind: NodeKind) -> None:
    compiled = compile_graph(smallest(kind, [1], cables=CABLES), IDENTITY, [5, 6], NUMA)
    steps = [*compiled[TAPS], *compiled[DUT]]
    places = {
        step.resource.interface: (step.resource.namespace, step.resource.port, step.port)
        for step in steps
        if isinstance(step.resource, Card)
    }
    assert places == {
        "before": ("tt-0123ab-tap", "tt-a1", Port("tap", "tt-a1")),
        "in0": ("tt-0123ab-dut", "tt-in", Port("dut", "tt-in")),
        "out0": ("tt-0123ab-dut", "tt-out", Port("dut", "tt-out")),
        "behind": ("tt-0123ab-tap", "tt-b0", Port("tap", "tt-b0")),
    }
    interrupts = {
        step.resource.port: step.resource.cpus
        for step in steps
        if isinstance(step.resource, CardInterrupts)
    }
    assert interrupts == {"tt-a1": "5,6", "tt-b0": "5,6", "tt-in": "1", "tt-out": "1"}
    assert not any(isinstance(step.resource, Veth) for step in compiled[DUT])


def test_cards_of_other_machines_are_left_alone() -> None:
    graph = smallest("namespace", [1], cables=CABLES)
    tester = compile_graph(graph, IDENTITY, [5], NUMA, ("generator", "timestamper"))
    others: Sequence[Task] = ("dut",)
    device = compile_graph(graph, IDENTITY, [5], NUMA, others)
    assert list(tester) == [GENERATOR, TAPS]
    assert list(device) == [DUT]
    assert {**tester, **device} == compile_graph(graph, IDENTITY, [5], NUMA)
    with pytest.raises(InputError, match="gen:tt-gen and tap:tt-a0 are on two machines"):
        compile_graph(graph, IDENTITY, [5], NUMA, ("timestamper", "dut"))


def test_a_timestamper_behind_splitters_has_cards_only() -> None:
    cables = Cables(("in0", "out0"), ("copy0", "copy1"), ("sends", "absorbs"))
    graph = smallest("namespace", [1], cables=cables)
    [flow] = graph.flows
    assert [str(port) for port in flow.path] == [
        "gen:tt-gen", "tap:tt-a0", "dut:tt-in", "dut:tt-out", "tap:tt-b0", "gen:tt-back",
    ]  # fmt: skip
    assert (flow.ingress, flow.egress) == (Port(TAPS, "tt-a0"), Port(TAPS, "tt-b0"))
    assert flow.passed == [DUT]
    assert graph.entered(DUT) == [Port(DUT, "tt-in")]
    compiled = compile_graph(graph, IDENTITY, [5], NUMA)
    cards = {
        node: [step.resource.interface for step in steps if isinstance(step.resource, Card)]
        for node, steps in compiled.items()
    }
    assert cards == {
        GENERATOR: ["sends", "absorbs"],
        TAPS: ["copy0", "copy1"],
        DUT: ["in0", "out0"],
    }
    joined = smallest(cables=cables)
    [link] = joined.links
    assert link.ports == (*(Port(GENERATOR, one) for one in ("tt-gen", "tt-back")), *flow.stamped)
    assert joined.flows[0].path == (flow.path[0], *flow.stamped, flow.path[-1])
    with pytest.raises(InputError, match="a splitter copies one direction"):
        smallest("namespace", [1], cables=cables, both_ways=True)


def test_the_cards_of_a_virtual_machine_are_left_to_who_runs_it() -> None:
    compiled = compile_graph(smallest("guest", [1], cables=CABLES), IDENTITY, [5], NUMA)
    cards = {
        node: [step.resource.interface for step in steps if isinstance(step.resource, Card)]
        for node, steps in compiled.items()
    }
    assert cards == {GENERATOR: [], TAPS: ["before", "behind"], DUT: []}


def test_a_virtual_machine_of_several_flows_alone_needs_no_namespace() -> None:
    graph = network([Node("g", "dut", "guest", (1,))], {"one": ["g"], "two": ["g"]})
    assert not graph.has_namespace("g")
    assert tap_devices(graph, "g") == {
        Port("g", "tt-in1"): "tt-a1-1",
        Port("g", "tt-out1"): "tt-b0-1",
        Port("g", "tt-in2"): "tt-a1-2",
        Port("g", "tt-out2"): "tt-b0-2",
    }
    steps = compile_graph(graph, IDENTITY, [0], NUMA)["g"]
    assert {step.resource.namespace for step in steps if isinstance(step.resource, TapDevice)} == {
        "tt-0123ab-tap"
    }


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any connected graph of up to 40 nodes, with a flow along some walk through it."""
    count = draw(st.integers(2, 40))
    kinds: list[NodeKind] = ["namespace"]
    links: list[tuple[int, int]] = []
    for number in range(1, count):
        other = draw(st.integers(0, number - 1))
        links.append((other, number))
        choice: list[NodeKind] = ["namespace", "container", "guest"]
        kinds.append(draw(st.sampled_from(choice)))
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    links += draw(st.lists(ends.filter(lambda pair: pair[0] != pair[1]), max_size=20))
    used = [0] * count

    def port(node: int) -> Port:
        used[node] += 1
        return Port(f"n{node}", f"p{used[node]}")

    made = tuple(Link((port(one), port(other)), 1500) for one, other in links)
    # Nodes may share CPUs where these are not theirs alone, and virtual machines place nothing.
    irqs: st.SearchStrategy[Irq] = st.sampled_from(["none", "node", (1,), (3, 5)])
    placements = st.builds(Placement, irqs, st.booleans())
    nodes = tuple(
        Node(f"n{number}", "dut", kind, draw(st.sampled_from([(), (1,), (2, 3)])),
             Placement() if kind == "guest" else draw(placements))
        for number, kind in enumerate(kinds)
    )  # fmt: skip
    path: list[Port] = []
    place = "n0"
    for _ in range(draw(st.integers(1, 10))):
        away = [end for link in made for end in link.ends if end.node == place and end not in path]
        if not away:
            break
        out = draw(st.sampled_from(away))
        [into] = [link.ends[1 - link.ends.index(out)] for link in made if out in link.ends]
        if into in path:
            break
        path += [out, into]
        place = into.node
    flows = (Flow("f", tuple(path), (path[0], path[-1])),) if path else ()
    return Graph(nodes, made, flows)


@given(graphs())
def test_every_node_and_link_is_made_once_after_what_it_needs(graph: Graph) -> None:
    standing: set[str] = set()
    indexes: list[int] = []
    ports: list[tuple[str | None, str]] = []
    taps: list[tuple[str, str]] = []
    joined: list[tuple[str, str]] = []
    for step in compiled(graph):
        resource = step.resource
        if isinstance(resource, Namespace):
            assert resource.name not in standing
            standing.add(resource.name)
        elif isinstance(resource, Veth):
            assert {resource.namespace, resource.peer_namespace} <= standing
            indexes += [resource.index, resource.peer_index]
            ports += [
                (resource.namespace, resource.port),
                (resource.peer_namespace, resource.peer_port),
            ]
        elif isinstance(resource, TapDevice):
            assert resource.namespace in standing
            taps.append((resource.namespace, resource.port))
        elif isinstance(resource, Junction):
            assert (resource.namespace, resource.port) in ports
            joined.append((resource.namespace, resource.tap))
        elif isinstance(resource, KernelValue):
            # Only ports that are there are steered.
            port = resource.paths[0].split("/")[4]
            assert (resource.namespace, port) in ports
    assert standing == {name_of(IDENTITY, node.name) for node in graph.nodes}
    assert sorted(ports) == sorted(
        (name_of(IDENTITY, port.node), port.name) for port in graph.ports
    )
    guests = [node.name for node in graph.nodes if node.kind == "guest"]
    assert joined == taps
    assert sorted(joined) == sorted(
        (name_of(IDENTITY, name), tap)
        for name in guests
        for tap in tap_devices(graph, name).values()
    )
    assert len(set(indexes)) == len(indexes)


@given(graphs())
def test_the_ports_at_which_packets_come_in_are_steered(graph: Graph) -> None:
    """Each by what its own node asks for, and no other port."""
    steered: dict[tuple[str | None, str], tuple[str, set[int]]] = {}
    for step in compiled(graph):
        resource = step.resource
        if isinstance(resource, KernelValue):
            mask = int(resource.value.replace(",", ""), 16)
            cpus = {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}
            steered[resource.namespace, resource.paths[0].split("/")[4]] = "rps", cpus
        elif isinstance(resource, PortThreads):
            cpus = set(map(int, filter(None, resource.cpus.split(","))))
            steered[resource.namespace, resource.port] = "threads", cpus
    expected: dict[tuple[str | None, str], tuple[str, set[int]]] = {}
    for port in (port for flow in graph.flows for port in flow.path[1::2]):
        node = graph.node(port.node)
        irq = node.placement.irq
        # CPU 0 does the housekeeping of node 0, to which CPUs 1 to 3 belong.
        cpus = {1, 2, 3} if irq == "node" else set() if isinstance(irq, str) else set(irq)
        if node.kind == "guest":
            cpus = set(node.cpus)
        if node.cpus and (cpus or node.placement.threads):
            by = "threads" if node.placement.threads else "rps"
            expected[name_of(IDENTITY, port.node), port.name] = by, cpus
    assert steered == expected


@given(
    st.lists(st.sampled_from([(1,), (2,), (1, 2), (3, 5), ()]), min_size=1, max_size=5),
    st.sampled_from(["none", "node", "core", (1,)]),
)
def test_core_gives_each_node_cores_of_its_own(cores: list[tuple[int, ...]], irq: Irq) -> None:
    """As many nodes as there are cores, as in the paper; other placements share them."""
    nodes = [
        Node(f"n{n}", "dut", "namespace", cpus, Placement(irq)) for n, cpus in enumerate(cores)
    ]
    graph = Graph(tuple(nodes), (), ())
    every = [cpu for cpus in cores for cpu in cpus]
    if irq == "core" and len(set(every)) < len(every):
        with pytest.raises(InputError, match=r"core has too few cores: n\d and n\d share CPU"):
            compiled(graph)
    else:
        assert kinds_of(compiled(graph)) == ["Namespace"] * len(nodes)


def of_cards(placement: Placement, cpus: tuple[int, ...]) -> list[Step]:
    """What steers the cards of a DuT: `in0` is on NUMA node 1, `out0` on 0."""
    graph = smallest("namespace", cpus, cables=CABLES, placement=placement)
    kinds = ("CardQueues", "CardInterrupts", "KernelValue", "PortThreads")
    steps = compile_graph(graph, IDENTITY, [0], NUMA)[DUT]
    return [step for step in steps if type(step.resource).__name__ in kinds
            and getattr(step.resource, "namespace", "").endswith("-dut")]  # fmt: skip


@pytest.mark.parametrize(
    ("irq", "expected"),
    [
        ("none", {}),
        ("node", {"tt-in": ("5,6", False), "tt-out": ("1,2,3", False)}),
        ("core", {"tt-in": ("2,3", True), "tt-out": ("2,3", True)}),
        ((1, 5), {"tt-in": ("1,5", False), "tt-out": ("1,5", False)}),
    ],
)
def test_the_interrupts_of_both_cards_are_placed(
    irq: Irq, expected: dict[str, tuple[str, bool]]
) -> None:
    steps = of_cards(Placement(irq), (2, 3))
    found = {
        step.resource.port: (step.resource.cpus, step.resource.apart)
        for step in steps
        if isinstance(step.resource, CardInterrupts)
    }
    assert found == expected
    assert len(steps) == len(expected) + (1 if expected else 0)  # and what comes in is steered


def test_queues_are_made_before_what_they_have_is_placed() -> None:
    steps = of_cards(Placement("core", napi="threads", queues=2), (2, 3))
    assert kinds_of(steps) == [
        "CardQueues", "CardInterrupts", "KernelValue", "KernelValue", "PortThreads",
        "CardQueues", "CardInterrupts", "KernelValue", "KernelValue",
    ]  # fmt: skip
    sending = [
        (step.resource.paths[0].split("/")[4:7:2], int(step.resource.value, 16))
        for step in steps
        if isinstance(step.resource, KernelValue)
    ]
    # The threads of a card have its own name, as they are made before it moves.
    cards = {step.resource.port: step.resource.threads
             for step in compile_graph(
                 smallest("namespace", (2, 3), cables=CABLES, placement=Placement(napi="threads")),
                 IDENTITY, [0], NUMA)[DUT]
             if isinstance(step.resource, Card)}  # fmt: skip
    assert cards == {"tt-in": True, "tt-out": False}
    for napi in ("threads", "busy-poll"):
        asleep = [step.resource.busy for step in of_cards(Placement(napi=napi), (2, 3))
                  if isinstance(step.resource, PortThreads)]  # fmt: skip
        assert asleep == [napi == "busy-poll"]
    assert [step.resource.card for step in steps if isinstance(step.resource, PortThreads)] == [
        CABLES.dut[0]
    ]
    assert sending == [
        (["tt-in", "tx-0"], 1 << 2),
        (["tt-in", "tx-1"], 1 << 3),
        (["tt-out", "tx-0"], 1 << 2),
        (["tt-out", "tx-1"], 1 << 3),
    ]
    # Each is undone when its card is given away.
    assert {step.port for step in steps} == {Port(DUT, "tt-in"), Port(DUT, "tt-out")}
    assert kinds_of(of_cards(Placement("none", queues=2), (2,))) == ["CardQueues"] * 2
    with pytest.raises(InputError, match="3 queues have an interrupt each, and dut has 2"):
        of_cards(Placement("core", queues=3), (2, 3))


@pytest.mark.parametrize(
    ("irq", "cpus", "card", "numa", "message"),
    [
        ((1, 4), (1,), None, NUMA, "CPU 4 is not there or is off: choose from 0-3,5-6"),
        ("node", (3, 5), None, NUMA, "CPUs 3,5 are of nodes 0-1"),
        ("node", (1,), "virtual", NUMA, "virtual does not say to which of the NUMA nodes 0-1"),
        ("node", (1,), None, Numa((0, 1)), "this kernel knows no NUMA nodes"),
        ("node", (1,), "in0", Numa((0, 1), {0: (0,)}, {"in0": 0}), "node 0 has no CPU that is on"),
        ("node", (1,), "far", Numa((0, 1), {0: (0, 1), 1: ()}, {"far": 1}), "node 1 has no CPU"),
    ],
)
def test_placements_that_cannot_be(
    irq: Irq, cpus: tuple[int, ...], card: str | None, numa: Numa, message: str
) -> None:
    with pytest.raises(TailtapError) as caught:
        cpus_of(Placement(irq), cpus, card, numa)
    text = str(caught.value)
    assert text.startswith("dut.irq: ")
    assert message in text
    assert "choose " in text
    assert "\n" not in text


def test_a_card_of_a_machine_with_one_node_belongs_to_it() -> None:
    """Firmware of such machines often says -1."""
    one = Numa((0, 1, 2), {0: (0, 1, 2)})
    assert cpus_of(Placement("node"), (1,), "virtual", one) == (1, 2)
    # Who works on CPU 0 keeps no CPU for the housekeeping.
    assert cpus_of(Placement("node"), (0,), "virtual", one) == (0, 1, 2)


@pytest.mark.parametrize("placement", [Placement("none"), Placement(napi="threads")])
def test_a_virtual_machine_places_nothing(placement: Placement) -> None:
    graph = smallest("guest", [1], placement=placement)
    with pytest.raises(InputError, match="a virtual machine numbers its own CPUs"):
        compiled(graph)


@given(graphs())
def test_it_is_the_same_each_time_and_the_journal_can_hold_it(graph: Graph) -> None:
    steps = compiled(graph)
    assert compiled(graph) == steps
    for step in steps:
        stored = json.loads(json.dumps(step.resource.as_json()))
        kind = clean.KINDS[step.resource.kind]
        assert kind.parse(stored) == step.resource


@given(graphs())
def test_what_is_made_together_can_be_made_and_removed_in_that_order(graph: Graph) -> None:
    """Removing is making backwards: nothing goes before what stands on it."""
    steps = in_order(compiled(graph))
    assert sorted(map(repr, steps)) == sorted(map(repr, compiled(graph)))
    standing: list[Step] = []
    for step in steps:
        assert needs(step) <= {name for one in standing for name in makes(one)}
        standing.append(step)
    while standing:
        gone = makes(standing.pop())
        assert not any(needs(one) & gone for one in standing)


def makes(step: Step) -> set[str]:
    """The names of namespaces and ports that a step makes."""
    resource = step.resource
    match resource:
        case Namespace():
            return {resource.name}
        case Veth():
            ends = (
                (resource.namespace, resource.port),
                (resource.peer_namespace, resource.peer_port),
            )
            return {f"{namespace} {port}" for namespace, port in ends}
        case TapDevice():
            return {f"{resource.namespace} {resource.port}"}
    return set()


def needs(step: Step) -> set[str]:
    """The names of namespaces and ports that must be there before."""
    resource = step.resource
    match resource:
        case Veth():
            return {str(resource.namespace), resource.peer_namespace}
        case TapDevice():
            return {resource.namespace}
        case Junction():
            return {f"{resource.namespace} {port}" for port in (resource.port, resource.tap)}
        case KernelValue():
            return {f"{resource.namespace} {resource.paths[0].split('/')[4]}"}
        case PortThreads():
            return {f"{resource.namespace} {resource.port}"}
    return set()
