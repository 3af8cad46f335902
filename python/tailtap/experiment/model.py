"""The experiment file: what is measured, on what, how often.

The model is strict: an unknown key, a wrong type and a missing unit are errors. It knows the
kinds of platforms and forwarders from their registries, and each forwarder checks its own
options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from tailtap import platform
from tailtap.document import Misfit
from tailtap.experiment.explaining import explain
from tailtap.experiment.line import (
    HOPS,
    Line,
    Member,
    NodeName,
    check_hops,
    check_line,
    check_nodes,
    members_of,
    own_keys,
)
from tailtap.experiment.placing import IrqOption, sorted_cpus
from tailtap.experiment.tuning import FULL, Tuning
from tailtap.forwarder import FORWARDERS
from tailtap.instruments.interrupts import Interrupts
from tailtap.instruments.taps.model import Taps
from tailtap.platform import PLATFORMS, Devices, DutSpec, Platform
from tailtap.platform.options import PortOptions
from tailtap.registry import one_of
from tailtap.schema import (
    AS_WRITTEN,
    Cpu,
    NoOptions,
    Ports,
    Strict,
    Time,
    Written,
    as_value_error,
)
from tailtap.suggest import did_you_mean
from tailtap.topology.graph import Graph
from tailtap.topology.smallest import Cables
from tailtap.traffic.model import Traffic
from tailtap.traits import Traits, together
from tailtap.units import format_time
from tailtap.verdict.requirement import parse_requirements


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
        "dut.nodes, in their order. Each has two ports of its own; veth pairs join them. "
        "docs/lines.md says what a line can show.",
        examples=[16, ["router", "firewall", "router"]],
    )
    nodes: Annotated[
        dict[NodeName, dict[str, Any]], Written("mapping from names to keys of dut")
    ] = Field(
        default_factory=dict,
        description="Nodes that dut.line names. Each has the keys of dut that differ from those of "
        "dut: platform, forwarder, options, cpus (some of dut.cpus), irq, napi, and those of its "
        "platform.",
        examples=[{"router": {"forwarder": "kernel-route"}, "firewall": {"platform": "container"}}],
    )
    taps: Literal["ends", "hops"] = Field(
        default="ends",
        description="Where packets of a line are stamped. ends is before the first node and behind "
        "the last. hops is also between two nodes, which tells how long each node took; the taps "
        "between are part of the latency. docs/lines.md says what they cost.",
        examples=["hops"],
    )
    cpus: Annotated[
        tuple[Cpu, ...], Field(strict=False, min_length=1), Written("list of CPU numbers")
    ] = Field(
        default=(1,),
        description="The CPUs that the DuT works on. The nodes of a line share them out if there "
        "are as many CPUs as nodes, and else all work on all of them.",
        examples=[[2, 3]],
    )
    irq: IrqOption = Field(
        default="core",
        description="Where packets that come in are received: the interrupts of network cards, and "
        "on the lab's links receive packet steering. none leaves that to the kernel. node is "
        "every CPU of the card's NUMA node, but CPU 0 (on the lab's links, of the node of "
        "dut.cpus). core is dut.cpus, each interrupt on one of them. A list has the CPUs. For a "
        "line with more nodes than dut.cpus the default is the list of dut.cpus.",
        examples=["none", [2, 3]],
    )
    napi: Literal["softirq", "threads"] = Field(
        default="softirq",
        description="What polls the ports that packets come in at: a softirq, or a kernel thread "
        "for each queue (threaded NAPI, Linux 5.12), on the CPUs of dut.irq.",
        examples=["threads"],
    )
    queues: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="How many queues each of dut.ports has, as the papers have one. By default as "
        "many as it has.",
        examples=[1],
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the forwarder, unless they are written with its name.",
        examples=[{"mode": "generic"}],
    )

    tuning: Tuning = Field(
        default="none",
        description="What is tuned on the DuT's machine for a run, and put back after it. runtime "
        "sets every knob that is recommended and can be set while the machine runs. full requires "
        "the kernel's command line as well: a virtual machine boots with it, on other platforms "
        "the run fails and names it. A list has knobs and groups. docs/host.md describes the "
        "knobs. As the values that vary, `ablation` stands for all of them, all but one each, and "
        "none.",
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

    @field_validator("cpus")
    @classmethod
    def _sorted_without_duplicates(cls, cpus: tuple[int, ...]) -> tuple[int, ...]:
        return sorted_cpus(cpus)


def _node(kind: type[Dut], whole: Mapping[str, Any], name: str, own: Mapping[str, Any]) -> Dut:
    """A node with its own keys and those of the whole. Raises `Misfit`."""
    try:
        return kind.model_validate(own_keys(whole, own))
    except Misfit as error:
        raise Misfit(("nodes", name, *error.at), str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        reason = explain(first, first["loc"], lambda _: [*kind.model_fields, *platform.declaring()])
        raise Misfit(("nodes", name, *first["loc"]), reason) from error


KEYS = ("auto", "moonsniff")
"""Keys that the lab's taps store: the packet's id and nothing else."""


class Evaluation(Strict):
    """How ingress and egress are matched; times in ns."""

    key: Annotated[str, Written("`auto` or `moonsniff`", schema={"enum": list(KEYS)})] = Field(
        default="auto",
        description="How packets are matched. The lab's taps store the packets' ids, which auto "
        "finds.",
        examples=["moonsniff"],
    )
    trim: Time = Field(
        default=0,
        description="How much time the evaluation leaves out at the beginning.",
        examples=["500 ms"],
    )
    window: Time = Field(
        default=5_000_000_000,
        description="A packet that is not seen behind the DuT within this time is lost.",
        examples=["1 s"],
    )

    @field_validator("key")
    @classmethod
    def _key_is_an_id(cls, key: str) -> str:
        if key not in KEYS:
            raise ValueError(
                f"there is no key {key!r} in a stamp file: {did_you_mean(key, KEYS)} (others are "
                "for captures of whole packets, see `tailtap evaluate --key`)"
            )
        return key

    @field_validator("window")
    @classmethod
    def _window_is_positive(cls, window: int) -> int:
        if window == 0:
            raise ValueError("the window must be longer than 0 s: no packet could match")
        return window


def _is_requirement(text: str) -> str:
    with as_value_error():
        parse_requirements([text])
    return text


class Experiment(Strict):
    """One experiment file after reading: quantities are integers in base units."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="What the experiment is called, in results and in the name of its folder.",
        examples=["container-vs-bare-metal"],
    )
    dut: Dut = Field(
        default_factory=Dut,
        description="The device under test.",
        examples=[{"platform": "container", "forwarder": "tc-mirred", "cpus": [1]}],
    )
    traffic: Traffic = Field(
        description="What is sent.", examples=[{"rate": "10 kpkt/s", "duration": "10 s"}]
    )
    tap: Taps = Field(
        default_factory=Taps,
        description="What stamps packets before and after the DuT.",
        examples=[{"ports": ["enp2s0f0", "enp2s0f1"]}],
    )
    evaluation: Evaluation = Field(
        default_factory=Evaluation,
        description="How packets before and after the DuT are matched.",
        examples=[{"trim": "500 ms"}],
    )
    vary: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]],
        Written("mapping from key paths to lists"),
    ] = Field(
        default_factory=dict,
        description="The values that vary. Each combination of them is a run.",
        examples=[
            {"dut.platform": ["wire", "bare-metal"], "traffic.rate": ["1 kpkt/s", "5 kpkt/s"]}
        ],
    )
    cases: Annotated[list[dict[str, Any]], Written("list of mappings from key paths")] = Field(
        default_factory=list,
        description="Values that change together. Each case is combined with all that varies, and "
        "all cases name the same key paths.",
        examples=[[{"dut.cpus": [1], "traffic.cpu": 0}, {"dut.cpus": [0], "traffic.cpu": 1}]],
    )
    exclude: Annotated[list[dict[str, Any]], Written("list of mappings from key paths")] = Field(
        default_factory=list,
        description="Combinations to leave out. Each mapping excludes the combinations that have "
        "all of its values; a list stands for any of its values.",
        examples=[[{"dut.platform": "vm", "traffic.rate": ["1 Mpkt/s", "2 Mpkt/s"]}]],
    )
    repeat: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1,
        description="How often each combination is measured.",
        examples=[3],
    )
    scales: Annotated[
        dict[str, dict[str, Any]], Written("mapping from names to mappings from key paths")
    ] = Field(
        default_factory=dict,
        description="Other sizes of the experiment: `--set scale=NAME` puts the values of that "
        "scale into the file.",
        examples=[
            {"paper": {"traffic.rate": "1 Mpkt/s", "traffic.duration": "160 s", "repeat": 10}}
        ],
    )
    counters: bool = Field(
        default=False,
        description="Whether instructions, TLB misses and migrations are counted in each run.",
        examples=[True],
    )
    trace: Literal["none", "thin", "full"] = Field(
        default="none",
        description="Whether it is recorded what the kernel does on the DuT's CPUs. thin records "
        "what names the context that had a CPU, full also single timers, page faults, reclaim, "
        "compaction, frequencies and every migration. docs/tracing.md says what each costs.",
        examples=["thin"],
    )
    interrupts: Interrupts = Field(
        default="none",
        description="Whether the kernel's counters of interrupts and softirqs are sampled, and how "
        "often; docs/interrupts.md says what that shows.",
        examples=["counters", {"counters": {"period": "10 ms"}}],
    )
    require: Annotated[
        list[Annotated[str, AfterValidator(_is_requirement)]], Written("list of requirements")
    ] = Field(
        default_factory=list,
        description="What all runs must meet. The verdict follows the last run, and `tailtap run` "
        "ends with status 1 unless everything holds. docs/verdict.md has the quantities.",
        examples=[["p99.9 < 1 ms", "loss == 0"]],
    )
    differs: Annotated[list[Annotated[str, Field(min_length=1)]], Written("list of sentences")] = (
        Field(
            default_factory=list,
            description="How this experiment differs from the one that it follows. `tailtap run` "
            "prints these sentences and stores them.",
            examples=[["The forwarder is DPDK's l2fwd; the paper's was libmoon's."]],
        )
    )

    @model_validator(mode="after")
    def _trim_leaves_something(self) -> Experiment:
        if self.evaluation.trim >= self.traffic.duration:
            raise Misfit(
                ("evaluation", "trim"),
                f"a trim of {format_time(self.evaluation.trim)} leaves nothing of "
                f"{format_time(self.traffic.duration)} of traffic",
                [("traffic",)],
            )
        return self

    @model_validator(mode="after")
    def _platform_uses_what_is_asked(self) -> Experiment:
        every = [one.dut.unused for one in self.dut.members]
        unused = next((key for key in self.dut.unused if all(key in one for one in every)), None)
        # Without a DuT no key of it has a meaning, so none of them is an error.
        if unused is not None and self.traits.has_dut:
            remedy = ""
            if self._varies("dut.platform") or self._varies(f"dut.{unused}"):
                remedy = " (separate them with cases, or leave the combination out with exclude)"
            raise Misfit(
                ("dut", unused),
                f"platform {self.dut.platform} does not have this key, which belongs to "
                f"{', '.join(platform.declaring()[unused])}{remedy}",
                [("dut", "platform")],
            )
        return self

    @model_validator(mode="after")
    def _both_ends_of_cables(self) -> Experiment:
        dut, tap = self.dut.given("ports"), self.tap.ports
        if (dut is None) != (tap is None):
            known, other = ("tap", "dut") if dut is None else ("dut", "tap")
            raise Misfit(
                (known, "ports"),
                f"these are one end of two cables: name the cards at the other with {other}.ports",
                [(other, "ports")],
            )
        if dut is not None and tap is not None and len({*dut, *tap}) < 4:
            raise Misfit(
                ("tap", "ports"),
                "dut.ports and tap.ports must be four different interfaces",
                [("dut", "ports")],
            )
        return self

    @model_validator(mode="after")
    def _queues_are_of_cards(self) -> Experiment:
        if self.dut.queues is not None and self._ports() is None and self.traits.has_dut:
            raise Misfit(
                ("dut", "queues"),
                "links of the lab have one queue: name network cards with dut.ports, or leave it "
                "out",
                [("dut", "ports")],
            )
        return self

    @model_validator(mode="after")
    def _line_can_be_formed(self) -> Experiment:
        if self.dut.nodes and isinstance(self.dut.line, int) and not self._varies("dut.line"):
            raise Misfit(
                ("dut", "nodes"),
                "dut.line names none of these nodes: name them in the order in which packets pass "
                f"them, such as [{', '.join(self.dut.nodes)}]",
                [("dut", "line")],
            )
        check_hops(self.dut)
        check_line(self.dut, self.traffic)
        return self

    @model_validator(mode="after")
    def _trace_knows_who_serves(self) -> Experiment:
        forwarders = sorted({one.dut.forwarder for one in self.dut.members})
        if self.trace != "none" and len(forwarders) > 1:
            raise Misfit(
                ("trace",),
                f"nodes with {' and '.join(forwarders)} are served by different things, which a "
                "trace does not tell apart: take one forwarder, or leave trace out",
                [("dut", "line"), ("dut", "nodes")],
            )
        return self

    @property
    def traits(self) -> Traits:
        """What is known of the platforms of its DuT."""
        return together(PLATFORMS[one.dut.platform].traits for one in self.dut.members)

    def devices(self) -> Devices:
        """What each node of the DuT is asked for, in the order in which packets pass them."""
        return [self._device(member) for member in self.dut.members]

    def _device(self, member: Member) -> tuple[Platform, DutSpec[Any]]:
        dut, settings = member.dut, member.dut.settings
        spec = DutSpec(
            member.cpus,
            settings,
            {name: self._values(f"dut.{name}") for name in type(settings).model_fields},
            self.traffic.bidirectional,
            self.dut.tuning == FULL,
            member.placement,
            member.name,
            FORWARDERS[dut.forwarder].routes,
        )
        return PLATFORMS[dut.platform], spec

    def cables(self) -> Cables | None:
        """The cables at the DuT's ports; None for links of the lab."""
        ports = self._ports()
        return None if ports is None or self.tap.ports is None else Cables(ports, self.tap.ports)

    def graph(self) -> Graph:
        """How generators, taps and DuT are wired together."""
        return platform.graph_of(
            self.devices(),
            frame_size=max(self.traffic.sizes),
            cables=self.cables(),
            hops=self.dut.taps == HOPS,
        )

    def _ports(self) -> Ports | None:
        """The network cards that are the DuT's ports."""
        settings = self.dut.settings
        return settings.ports if isinstance(settings, PortOptions) else None

    def _values(self, key: str) -> list[Any]:
        """All values, as written, that `vary` and `cases` give to `key`."""
        return [*self.vary.get(key, ()), *(case[key] for case in self.cases if key in case)]

    def _varies(self, key: str) -> bool:
        return key in self.vary or any(key in case for case in self.cases)

    def document(self) -> dict[str, Any]:
        """This experiment as a file has it, in JSON: reading it gives this experiment again."""
        how: dict[str, Any] = {"mode": "json", "exclude_unset": True, "context": dict(AS_WRITTEN)}
        content = self.model_dump(**how)
        if self.traffic.replay is not None and self.traffic.replay.pace == "own":
            content["traffic"].pop("rate", None)  # the recording's own
        dut = {**self.dut.settings.model_dump(**how), **self.dut.unused_as_written}
        content["dut"] = {**content.get("dut", {}), **dut}
        return content

    def parameters(self) -> dict[str, Any]:
        """What one run does, for `run.json`: without the keys that make several runs of a file."""
        about = {"name", "differs", "cases", "vary", "exclude", "repeat", "scales", "require"}
        content = self.model_dump(mode="json", exclude=about)
        dut = self.dut
        content["dut"] |= dict.fromkeys(platform.declaring())
        content["dut"] |= dut.settings.model_dump(mode="json")
        [irq, *others] = [one.placement.as_json()["irq"] for one in dut.members]
        if all(other == irq for other in others):
            content["dut"]["irq"] = irq
        if self._ports() is None:
            content["tap"]["ports"] = None
        if not self.traits.has_dut:
            content["dut"]["forwarder"] = None
            content["dut"]["options"] = {}
        return content
