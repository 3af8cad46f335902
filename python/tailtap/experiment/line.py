"""`dut.line`, `dut.nodes`, `dut.taps`: the nodes that packets pass, or a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import Discriminator, Field, Tag

from tailtap.base.document import KeyPath, Misfit, dotted, require_fit
from tailtap.base.errors import did_you_mean
from tailtap.base.registry import Registry, Row
from tailtap.base.schema import Matching, Written, name_words
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.platforms import PLATFORMS, Platform
from tailtap.lab.platforms.contained import ContainedOptions
from tailtap.lab.platforms.vm import VmOptions
from tailtap.lab.topology.graph import EGRESS, INGRESS
from tailtap.lab.topology.graphs import GENERATOR, TAPS, dut_names, share_out
from tailtap.lab.topology.placement import BUSY_POLL, CORE, Placement

if TYPE_CHECKING:
    from tailtap.experiment.dut import Dut
    from tailtap.experiment.model import Experiment
    from tailtap.lab.generators.model import Traffic


LONGEST_LINE = 64
"""Nodes, as in hardware-supported-containers."""
OTHERS: Final = (GENERATOR, TAPS, INGRESS, EGRESS, "in", "out")
"""Names of other nodes, of captures, which within a line are called after nodes, and of both ends
of `dut.links`."""
OF_THE_WHOLE: Final = (
    "line", "nodes", "links", "flows", "route_by", "over", "tuning", "queues", "ports",
    "neighbours", "silent", "functions",
)  # fmt: skip
"""Keys of `dut` that a node has not: what they say holds for all nodes, or for none of a line."""
VETH: Final = "veth"
"""What joins nodes unless `dut.over` says otherwise."""
COUNT: Final = "count"
"""The key of a node that says how many there are of it."""

NodeName: TypeAlias = Annotated[
    str, Matching(r"^[a-z][a-z0-9-]{0,11}$", name_words(12, "fw1")), Written("name")
]
"""What a node may be called, as a part of names of the kernel."""


def _form(value: object) -> str:
    return "list" if isinstance(value, list | tuple) else "number"


Line: TypeAlias = Annotated[
    Annotated[int, Field(ge=1, le=LONGEST_LINE), Tag("number")]
    | Annotated[list[NodeName], Field(min_length=1, max_length=LONGEST_LINE), Tag("list")],
    Discriminator(_form),
    Written("number, or list of names in dut.nodes"),
]


@dataclass(frozen=True)
class Member:
    """One node of a DuT."""

    name: str
    dut: Dut
    """Its keys: its own ones, and for the rest those of the whole."""
    cpus: tuple[int, ...]
    """The CPUs that it works on."""
    placement: Placement
    """Where packets that come in are received."""


def own_keys(whole: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a node, as they are written: what it leaves out is as in `dut`.

    Raises `Misfit` for a key that no node has.
    """
    for key in own:
        if key in OF_THE_WHOLE:
            raise Misfit((key,), "a node does not have this key: write it in dut")
    inherited = {key: value for key, value in whole.items() if key not in OF_THE_WHOLE}
    if "forwarder" in own:
        inherited.pop("options", None)
    return {**inherited, **{key: value for key, value in own.items() if key != COUNT}}


def count_of(dut: Dut, kind: str) -> int:
    """How many nodes there are of a kind. Raises `Misfit`."""
    count = dut.nodes[kind].get(COUNT, 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= LONGEST_LINE:
        raise Misfit(("nodes", kind, COUNT), f"this is a number from 1 to {LONGEST_LINE}")
    return count


def members_of(dut: Dut) -> Sequence[Member]:
    """The nodes of a DuT in the order in which packets pass them, or in that of `dut.links`.

    Those that do not say on which CPUs they work share out those of `dut`.
    """
    if isinstance(dut.line, int) and not dut.links:
        named = dict.fromkeys(dut_names(dut.line), dut)
        sharing = list(named)
    else:
        kinds = kinds_of(dut)
        if dut.links:
            kinds = {name: kinds[name] for name in dut.passed}
        named = {name: dut.named[kind] for name, kind in kinds.items()}
        sharing = [name for name, kind in kinds.items() if "cpus" not in dut.nodes[kind]]
    shares = dict(zip(sharing, share_out(dut.cpus, len(sharing)), strict=True))
    cpus = {name: shares.get(name, node.cpus) for name, node in named.items()}
    nodes_on = Counter(cpu for theirs in cpus.values() for cpu in theirs)
    return [
        Member(name, node, cpus[name], _placement(node, cpus[name], nodes_on))
        for name, node in named.items()
    ]


def kinds_of(dut: Dut) -> dict[str, str]:
    """The names of the nodes, with what each is: numbered where it is there several times.

    Those of `dut.line`, or all that `dut.links` may name. Raises `Misfit`.
    """
    line = dut.line if isinstance(dut.line, list) and not dut.links else list(dut.nodes)
    kinds = [kind for kind in line for _ in range(count_of(dut, kind))]
    times = Counter(kinds)
    found: dict[str, str] = {}
    for place, kind in enumerate(kinds):
        name = kind if times[kind] == 1 else f"{kind}{kinds[: place + 1].count(kind)}"
        if name in found or name in OTHERS:
            at = ("nodes",) if dut.links else ("line",)
            raise Misfit(at, f"something else is called {name}: choose another name")
        found[name] = kind
    return found


def _placement(dut: Dut, cpus: tuple[int, ...], nodes_on: Mapping[int, int]) -> Placement:
    """Unless `dut.irq` is given, a node that shares its CPUs receives on all of them."""
    # A virtual machine numbers its own CPUs, and always receives on all of them.
    shares = any(nodes_on[cpu] > 1 for cpu in cpus) and not _is_guest(dut)
    irq = cpus if shares and "irq" not in dut.model_fields_set else dut.irq
    return Placement(irq, dut.napi, dut.queues)


def check_nodes(dut: Dut) -> None:
    """Raises `Misfit` unless `dut.line` names nodes that there are, with CPUs of `dut`."""
    for kind in dut.line if isinstance(dut.line, list) else ():
        if kind not in dut.nodes:
            known = did_you_mean(kind, list(dut.nodes)) if dut.nodes else "describe it there"
            raise Misfit(("line",), f"dut.nodes has no {kind}: {known}")
    for kind, node in dut.named.items():
        foreign = sorted(set(node.cpus) - set(dut.cpus))
        if foreign:
            raise Misfit(
                ("nodes", kind, "cpus"),
                f"CPU {foreign[0]} is none of dut.cpus, which has those of all nodes",
                [("dut", "cpus")],
            )
        unknown = next((key for key in node.unused if key in dut.nodes[kind]), None)
        if unknown is not None:
            raise Misfit(
                ("nodes", kind, unknown),
                f"platform {node.platform} does not have this key",
                [("dut", "platform")],
            )


ENDS, HOPS, QUEUES = "ends", "hops", "queues"
"""The values of `dut.taps`: packets are stamped at both ends, between the nodes as well, or besides
as nodes receive them."""


def check_hops(dut: Dut) -> None:
    """Raises `Misfit` unless packets can be stamped between nodes, if that is asked for."""
    if dut.taps == ENDS:
        return
    leave = "leave dut.taps out, or the combination with exclude"
    if not dut.named_nodes and not PLATFORMS[dut.platform].traits.has_dut:
        reason = f"platform {dut.platform} has no nodes, so there are no hops: {leave}"
        beside = "platform"
    elif len(dut.members) == 1:
        reason = f"a single device is one hop: make dut.line 2 or more; else {leave}"
        beside = "line"
    elif dut.taps == QUEUES and dut.given("ports") is not None:
        reason = (
            "a packet that comes from a cable is received long after it was handed over, and "
            f"nothing tells when that was: choose taps: hops; else {leave}"
        )
        beside = "ports"
    elif any(one.placement.threads for one in dut.members):
        reason = (
            "a thread that polls a port receives packets long after they were handed over, and "
            f"nothing tells when that was: choose napi: softirq; else {leave}"
        )
        beside = "napi"
    else:
        return
    raise Misfit(("dut", "taps"), reason, [("dut", beside)])


def check_polling(dut: Dut) -> None:
    """Raises `Misfit` where threads that never sleep would have the CPUs of a forwarder."""
    for one in dut.members:
        irq = one.placement.irq
        receiving = one.cpus if irq == CORE else irq if isinstance(irq, tuple) else ()
        if one.dut.napi != BUSY_POLL or FORWARDERS[one.dut.forwarder].in_kernel:
            continue
        if not set(one.cpus).isdisjoint(receiving):
            raise Misfit(
                ("dut", "napi"),
                f"a thread that polls without a pause leaves nothing of its CPU to {one.name}'s "
                f"{one.dut.forwarder}: name other CPUs in dut.irq, or take threads",
                [("dut", "forwarder"), ("dut", "irq")],
            )


def check_line(dut: Dut, traffic: Traffic) -> None:
    """Raises `Misfit` unless packets can pass all nodes of the line."""
    members = members_of(dut)
    if not dut.named_nodes and not PLATFORMS[dut.platform].traits.has_dut:
        return
    check_routers(traffic, sum(FORWARDERS[one.dut.forwarder].routes for one in members))
    if dut.line != 1:
        check_members(dut, members, ("dut", "line"))


def check_routers(traffic: Traffic, routers: int, at: KeyPath | None = None) -> None:
    """Raises `Misfit` unless packets live long enough to pass so many routers.

    `at` is the key that has the time to live, unless it is that of `traffic`.
    """
    if traffic.replay is None and traffic.external is None and traffic.ttl <= routers:
        raise Misfit(
            at or ("traffic", "ttl"),
            f"packets with a time to live of {traffic.ttl} end before the end of a line of "
            f"{routers} routers: it must be {routers + 1} or more",
            [("dut", "line"), ("dut", "links"), ("dut", "forwarder")],
        )


def check_members(dut: Dut, members: Sequence[Member], key: KeyPath) -> None:
    """Raises `Misfit` unless nodes can be joined, and can share the CPUs that they share.

    `key` says which nodes there are.
    """
    for platform in dict.fromkeys(one.dut.platform for one in members):
        if not _joins(PLATFORMS[platform]):
            raise Misfit(
                key,
                f"platform {platform} cannot form a line: take {able(PLATFORMS, _joins)}, or "
                f"leave {dotted(key)} out",
                [("dut", "platform"), ("dut", "nodes")],
            )
    reserving = [one.name for one in members if one.dut.given("huge_pages")]
    if len(reserving) > 1:
        raise Misfit(
            ("dut", "huge_pages"),
            f"huge pages are reserved for one virtual machine, not for {' and '.join(reserving)}: "
            "leave it out, or give it to one node",
            [key, ("dut", "nodes")],
        )
    for one, other, cpu in _sharing(members):
        _check_sharing(one, other, cpu, key)


def _check_sharing(one: Member, other: Member, cpu: int, key: KeyPath) -> None:
    """Raises `Misfit` unless two nodes can share a CPU."""
    for forwarder in (one.dut.forwarder, other.dut.forwarder):
        if not FORWARDERS[forwarder].shares_cpus:
            raise Misfit(
                key,
                f"{one.name} and {other.name} share CPU {cpu}, and forwarder {forwarder} needs "
                "CPUs of its own: give each node its own in dut.cpus, or take "
                f"{able(FORWARDERS, lambda row: row.shares_cpus)}",
                [("dut", "forwarder"), ("dut", "cpus")],
            )
    if CORE in (node.placement.irq for node in (one, other) if not _is_guest(node.dut)):
        raise Misfit(
            ("dut", "irq"),
            f"core gives each node a core of its own, and {one.name} and {other.name} share CPU "
            f"{cpu}: name more in dut.cpus, choose node, none or a list of CPUs, or leave the "
            "combination out with exclude",
            [key, ("dut", "cpus")],
        )


def _sharing(members: Sequence[Member]) -> Iterator[tuple[Member, Member, int]]:
    """The pairs of nodes that share CPUs, with one of these."""
    for one, other in combinations(members, 2):
        common = set(one.cpus) & set(other.cpus)
        if common:
            yield one, other, min(common)


def _is_guest(dut: Dut) -> bool:
    return PLATFORMS[dut.platform].ports_in == "guest"


def _joins(platform: Platform) -> bool:
    """Whether links can join two nodes of a platform."""
    return platform.ports_in is not None


def able(kinds: Registry[Row], is_able: Callable[[Row], bool]) -> str:
    """The names of those kinds that are able to do something, in words."""
    return " or ".join(name for name, row in kinds.working() if is_able(row))


TRANSACTIONS = "transactions"


def check_server(experiment: Experiment) -> None:
    """Raises `Misfit` unless clients ask a DuT that answers, and only such a one."""
    dut, traffic, asked = experiment.dut, experiment.traffic, experiment.evaluation
    forwarder, match = ("dut", "forwarder"), ("evaluation", "match")
    name, by_requests = dut.forwarder, asked.match == TRANSACTIONS
    if not experiment.answers:
        names = (one.dut.forwarder for one in dut.members)
        answering = next((one for one in names if FORWARDERS[one].serves == "clients"), None)
        require_fit(
            (
                answering,
                ("dut", "nodes"),
                (
                    f"{answering} is no node of a line: it answers, and hands nothing on: measure "
                    "it alone"
                ),
                (),
            ),
            (
                by_requests,
                match,
                (
                    "the DuT hands packets on and answers none: take dut.forwarder: server, or "
                    "leave it out"
                ),
                [forwarder],
            ),
            (
                asked.transaction is not None,
                ("evaluation", "transaction"),
                "this is for evaluation.match: transactions: leave it out",
                [match],
            ),
        )
        return
    require_fit(
        (
            not experiment.traits.has_dut,
            forwarder,
            f"platform {dut.platform} has no DuT that could answer: take another dut.platform",
            [("dut", "platform")],
        ),
        (
            dut.line != 1 or dut.is_network,
            ("dut", "line" if dut.line != 1 else "links" if dut.links else "flows"),
            f"{name} has one port and is no node of a line: leave it out",
            [forwarder],
        ),
        (
            dut.given("ports") is not None or dut.over != VETH,
            ("dut", "over" if dut.over != VETH else "ports"),
            f"the port of {name} is on the lab's links: leave it out",
            [forwarder],
        ),
        (
            traffic.external is None,
            ("traffic", "generator"),
            (
                f"tailtap's own packets ask {name} nothing: take external, and its command in "
                "traffic.external"
            ),
            [forwarder],
        ),
        (
            traffic.bidirectional,
            ("traffic", "bidirectional"),
            f"{name} answers, and asks nobody: leave it out",
            [forwarder],
        ),
        (not by_requests, match, f"no packet passes {name}: take transactions", [forwarder]),
        (
            experiment.snap is None,
            ("tap", "format"),
            "stamps do not tell requests from answers: leave it out",
            [match],
        ),
        (
            experiment.tap.kind != "inline",
            ("tap", "kind"),
            "only inline taps stamp both ways of a link: leave it out",
            [forwarder],
        ),
    )


COMMANDS = ("external", "server")
"""The forwarders that are a command of whoever measures."""


def has_own_files(dut: Dut) -> bool:
    """Whether a node has none of this machine's files, and so none of its programs."""
    settings = dut.settings
    if isinstance(settings, VmOptions):
        return settings.image is not None
    return isinstance(settings, ContainedOptions) and settings.has_own_files


def check_own_files(experiment: Experiment) -> None:
    """Raises `Misfit` for a forwarder that needs what a node does not have, or has no command."""
    for member in experiment.dut.members if experiment.traits.has_dut else ():
        dut, own = member.dut, has_own_files(member.dut)
        if dut.forwarder in COMMANDS:
            names_command = isinstance(dut.settings, ContainedOptions) and dut.given("image")
            _check_command(dut, own=own, image=own and bool(names_command))
        elif own and not FORWARDERS[dut.forwarder].in_kernel:
            raise Misfit(
                ("dut", "forwarder"),
                f"{dut.forwarder} is a program of this machine, which the image does not have: "
                f"take {' or '.join(COMMANDS)}, or a forwarder in the kernel",
                [("dut", "image"), ("dut", "root")],
            )


def _check_command(dut: Dut, *, own: bool, image: bool) -> None:
    command, arguments = (dut.options.get(key) for key in ("command", "arguments"))
    at = ("dut", "options")
    require_fit(
        (
            command is None and not image,
            at,
            "command is missing: only an image of a container (dut.image) has one of its own",
            (),
        ),
        (
            "arguments" in dut.options and (command is not None or not image),
            at,
            "arguments are for the command of an image: write all of it as command",
            (),
        ),
        (
            own and "{folder}" in str(command or arguments),
            at,
            (
                "{folder} is a folder of this machine, which the image does not see: name one of "
                "the image's"
            ),
            (),
        ),
    )
