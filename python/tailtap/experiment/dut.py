"""The `dut` part of an experiment file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    create_model,
    model_validator,
)

from tailtap.base.document import Misfit
from tailtap.base.registry import one_of
from tailtap.base.schema import Cpus, NoOptions, Port, Strict, Written
from tailtap.experiment.fields import as_misfit
from tailtap.experiment.line import (
    COUNT,
    VETH,
    Line,
    Member,
    NodeName,
    check_nodes,
    members_of,
    own_keys,
)
from tailtap.experiment.network import FlowName, Links, Over, check_links, joined, paths_of
from tailtap.experiment.sections import Neighbours, Tuning
from tailtap.lab import platforms as platform
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.platforms import PLATFORMS
from tailtap.lab.topology.placement import Napi


def _form(value: object) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    return "list" if number or isinstance(value, list | tuple) else "word"


IrqOption: TypeAlias = Annotated[
    Annotated[Literal["none", "node", "core"], Tag("word")] | Annotated[Cpus, Tag("list")],
    Discriminator(_form),
    Written("`none`, `node`, `core`, CPU number, or list of them"),
]


class Dut(Strict):
    """The device under test: a platform with two ports, and what forwards between them.

    The platform declares further keys, such as `memory`.
    """

    platform: Annotated[str, one_of(lambda: PLATFORMS), Written("name")] = Field(
        default="bare-metal",
        description="What the DuT runs on.",
        examples=["container"],
    )
    forwarder: Annotated[str, one_of(lambda: FORWARDERS), Written("name, or mapping")] = Field(
        default="tc-mirred",
        description="What moves packets between the DuT's ports: its name, or a mapping from its "
        "name to its options.",
        examples=["xdp", {"suricata": {"rules": "many"}}],
    )
    line: Line = Field(
        default=1,
        description="How many such devices packets pass one after the other, or which of "
        "dut.nodes, in their order (docs/howto/lines.md).",
        examples=[16, ["router", "firewall", "router"]],
    )
    nodes: Annotated[
        dict[NodeName, dict[str, Any]], Written("mapping from names to keys of dut")
    ] = Field(
        default_factory=dict,
        description="Nodes of dut.line or dut.links, each with what differs from dut: "
        "platform, its keys, forwarder, options, cpus (some of dut.cpus), irq, "
        "napi. With count: 3 node r is r1, r2 and r3.",
        examples=[{"router": {"forwarder": "kernel-route"}, "firewall": {"platform": "container"}}],
    )
    links: Links = Field(
        default_factory=list,
        description="What joins dut.nodes, instead of dut.line (docs/howto/graphs.md). in and "
        "out are before and behind the DuT. What no flow passes is not made.",
        examples=[["in - fw - r1 - r2 - out", "fw - r3 - out"]],
    )
    flows: Annotated[
        dict[FlowName, dict[str, Any]], Written("mapping from names to a path and keys of traffic")
    ] = Field(
        default_factory=dict,
        description="Flows that are measured at the same time, each as a run. path has its "
        "nodes, and may be left out where there is one way only. rate, pattern, "
        "size, flows, ttl and cpu may be its own.",
        examples=[
            {
                "a": {"path": ["in", "fw", "r1", "r2", "out"], "rate": "10 kpkt/s"},
                "b": {"path": ["in", "fw", "r3", "out"], "rate": "1 kpkt/s", "pattern": "poisson"},
            }
        ],
    )
    route_by: Literal["address", "port"] | None = Field(
        default=None,
        description="By what kernel-route tells flows apart: a route for each destination "
        "(address), or a rule and a table for each UDP destination port (port). "
        "By default address where there are dut.flows, else port.",
        examples=["port"],
    )
    functions: bool = Field(
        default=False,
        description=(
            "Whether a virtual function (SR-IOV) of each card is the DuT's port in its place."
        ),
        examples=[True],
    )
    over: Over = Field(
        default=VETH,
        description="What the nodes are reached by: veth pairs, a macvlan on the end of each "
        "link, a bridge, a netkit; or virtual functions of two cards that a cable "
        "joins (docs/howto/virtual-functions.md).",
        examples=[{"sriov": ["enp1s0f0", "enp2s0f0"]}],
    )
    taps: Literal["ends", "hops", "queues"] = Field(
        default="ends",
        description="Where packets of a line are stamped. ends: before and behind the line. hops: "
        "also between nodes. queues: also where a node receives them, which tells how "
        "long they waited. These taps are part of the latency (docs/howto/lines.md).",
        examples=["hops"],
    )
    cpus: Cpus = Field(
        default=(1,),
        description="The CPUs that the DuT works on. The nodes of a line share them out where "
        "there are as many CPUs as nodes.",
        examples=[[2, 3]],
    )
    irq: IrqOption = Field(
        default="core",
        description="Where packets are received: none leaves that to the kernel, node is "
        "every CPU of the card's NUMA node but CPU 0, core is dut.cpus (for a "
        "line with more nodes by default their list). docs/reference/platforms.md "
        "says more.",
        examples=["none", [2, 3]],
    )
    napi: Napi = Field(
        default="softirq",
        description="What polls the ports: a softirq, a kernel thread for each queue "
        "(threaded NAPI, Linux 5.12), or such threads that never sleep (Linux "
        "6.19).",
        examples=["threads", "busy-poll"],
    )
    queues: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="How many queues each card or virtual function of the DuT has. By default "
        "as many as it has.",
        examples=[1],
    )
    neighbours: Neighbours = Field(
        default_factory=dict,
        description="What else works on the DuT's machine while packets are measured "
        "(docs/howto/neighbours.md).",
        examples=[{"batch": {"cpu": {"cpus": [1], "busy": 20}}}],
    )
    silent: Port | None = Field(
        default=None,
        description="An interface of the DuT's machine, such as that of its management, that is "
        "down while packets are measured (docs/howto/testbed.md).",
        examples=["eno1"],
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the forwarder, unless they are written with its name.",
        examples=[{"mode": "generic"}],
    )

    tuning: Tuning = Field(
        default="none",
        description="What is tuned on the DuT's machine for a run, and put back. runtime: every "
        "recommended knob that can be set then. full: the kernel's command line as well. "
        "A list has knobs and groups (docs/reference/host.md). In vary, `ablation` stands "
        "for all, all but one each, and none.",
        examples=["runtime", ["timers", "memory"], {"without": "transparent-huge-pages"}],
    )

    _settings: BaseModel = PrivateAttr(default_factory=NoOptions)
    _named: dict[str, Dut] = PrivateAttr(default_factory=dict)
    _unused: dict[str, Any] = PrivateAttr(default_factory=dict)
    _unused_as_written: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def named(self) -> Mapping[str, Dut]:
        """Each of `nodes` as a device of its own, with all of its keys."""
        return self._named

    @property
    def members(self) -> Sequence[Member]:
        """Its nodes in the order in which packets pass them."""
        return members_of(self)

    @property
    def named_nodes(self) -> bool:
        """Whether its nodes are those of `nodes`, not so many as `line` says."""
        return bool(self.links) or not isinstance(self.line, int)

    @property
    def is_network(self) -> bool:
        """Whether flows have paths and ends of their own."""
        return bool(self.links or self.flows)

    @property
    def paths(self) -> Mapping[str, Sequence[str]]:
        """The nodes that each flow passes, in their order."""
        return paths_of(self)

    @property
    def passed(self) -> Sequence[str]:
        """The nodes of `links` that flows pass, in the order of `links`."""
        used = {name for path in self.paths.values() for name in path}
        return [name for name in joined(self.links) if name in used]

    @property
    def routing(self) -> Literal["address", "port"]:
        """`route_by`, or what it is by default."""
        return self.route_by or ("address" if self.flows else "port")

    @property
    def settings(self) -> BaseModel:
        """The keys that the platform declares, as an instance of its `Options`."""
        return self._settings

    @property
    def unused(self) -> Mapping[str, Any]:
        """Values of keys that this platform does not know and others do, defaults left out."""
        return self._unused

    @property
    def unused_as_written(self) -> Mapping[str, Any]:
        """The same as they are written in the file."""
        return self._unused_as_written

    def given(self, key: str) -> Any:
        """The value of a key that platforms declare; None where it is left out."""
        return self._unused.get(key, getattr(self._settings, key, None))

    @model_validator(mode="wrap")
    @classmethod
    def _keys_of_platforms(cls, data: Any, handler: ModelWrapValidatorHandler[Dut]) -> Dut:
        if not isinstance(data, Mapping):
            return handler(data)
        declared = platform.declaring()
        dut = handler({key: value for key, value in data.items() if key not in declared})
        options = PLATFORMS[dut.platform].Options
        own = {key: value for key, value in data.items() if key in options.model_fields}
        dut._settings = options.model_validate(own)
        for key in declared:
            if key in data and key not in own:
                field = PLATFORMS[declared[key][0]].Options.model_fields[key]
                fields: dict[str, Any] = {key: (field.annotation, field)}
                one = create_model("Key", __base__=Strict, **fields)
                value = getattr(one.model_validate({key: data[key]}), key)
                if value != field.get_default(call_default_factory=True):
                    dut._unused[key] = value
                    dut._unused_as_written[key] = data[key]
        for name, content in dut.nodes.items():
            dut._named[name] = _node(cls, data, name, content)
        check_nodes(dut)
        check_links(dut)
        return dut

    @model_validator(mode="before")
    @classmethod
    def _forwarder_with_options(cls, data: Any) -> Any:
        """``forwarder: {suricata: {rules: none}}`` is the forwarder's name and its options."""
        named = data.get("forwarder") if isinstance(data, Mapping) else None
        if not isinstance(named, Mapping):
            return data
        if data.get("options"):
            raise ValueError(
                "the forwarder's options are given twice: write them with its name, or in options"
            )
        if len(named) != 1:
            raise ValueError(
                "forwarder is one name, or one name with its options, such as "
                "{suricata: {rules: none}}"
            )
        [(name, options)] = named.items()
        if not isinstance(options, Mapping):
            raise ValueError(f"the options of forwarder {name} are a mapping, not {options!r}")
        return {**data, "forwarder": name, "options": dict(options)}


def _node(kind: type[Dut], whole: Mapping[str, Any], name: str, own: Mapping[str, Any]) -> Dut:
    """A node with its own keys and those of the whole. Raises `Misfit`."""
    try:
        with as_misfit((), kind, [*kind.model_fields, *platform.declaring(), COUNT]):
            return kind.model_validate(own_keys(whole, own))
    except Misfit as error:
        raise Misfit(("nodes", name, *error.at), str(error)) from error
