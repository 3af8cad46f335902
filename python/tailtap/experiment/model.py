"""The experiment file: what is measured, on what, how often.

The model is strict: an unknown key, a wrong type and a missing unit are errors. It knows the
kinds of platforms and forwarders from their registries, and each forwarder checks its own
options.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn

from pydantic import (
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from tailtap import _core
from tailtap.analysis.claims.model import Claim
from tailtap.analysis.figures.model import MOST as MOST_FIGURES
from tailtap.analysis.figures.model import Figure, check_figures
from tailtap.analysis.runs.text import as_words
from tailtap.analysis.verdict.requirement import parse_requirements
from tailtap.base.document import Misfit
from tailtap.base.errors import InputError, did_you_mean
from tailtap.base.schema import AS_WRITTEN, Ports, Strict, Written, read_by
from tailtap.base.units import format_time
from tailtap.experiment.dut import Dut
from tailtap.experiment.line import (
    ENDS,
    QUEUES,
    TRANSACTIONS,
    VETH,
    Member,
    check_hops,
    check_line,
    check_own_files,
    check_polling,
    check_server,
)
from tailtap.experiment.network import (
    Sriov,
    cabled_twice,
    check_functions,
    check_network,
    check_over,
    sent_as,
    with_links_over,
)
from tailtap.experiment.sections import FULL, GENERATOR, Event, Matching, check_events
from tailtap.lab import platforms as platform
from tailtap.lab.forwarders import FORWARDERS
from tailtap.lab.generators.external import MOONSNIFF
from tailtap.lab.generators.model import Traffic
from tailtap.lab.instruments.events import Counters, Events
from tailtap.lab.instruments.interrupts import Interrupts
from tailtap.lab.instruments.taps.kinds import EXTERNAL, HARDWARE, PASSIVE, PCAP, STAMPS, Taps
from tailtap.lab.neighbours import Asked
from tailtap.lab.platforms import PLATFORMS, Devices, DutSpec, Platform
from tailtap.lab.platforms.boot import PortOptions
from tailtap.lab.topology.graph import Graph
from tailtap.lab.topology.graphs import FORWARD, REVERSE, Cables, with_queues
from tailtap.records.machine import Traits, together

DIRECTION = "direction"
"""The variable that differs between the two runs of bidirectional traffic."""
FLOW = "flow"
"""The variable that differs between the runs of `dut.flows`."""
ON_TESTBED = "on_testbed"
"""The key of the context of validation that says whether `Experiment.wired` follows."""
KEYS = ("auto", "moonsniff")
"""Keys that stamps have: the packet's id and nothing else."""


class Experiment(Strict):
    """One experiment file after reading: quantities are integers in base units."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="What the experiment and its folder are called.",
        examples=["container-vs-bare-metal"],
    )
    question: Annotated[str, Field(max_length=300)] = Field(
        default="",
        description="What it is to answer: the report begins with it.",
        examples=["Is a container later than bare metal?"],
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
    evaluation: Matching = Field(
        default_factory=Matching,
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
    loop: Annotated[str, Written("name of a file")] | None = Field(
        default=None,
        description="A file with loop variables of pos, as `--as-loop` names it, beside the "
        "experiment file: its lists join `vary` and replace those of the same paths "
        "(docs/howto/pos.md).",
        examples=["loop-variables.yml"],
    )
    cases: Annotated[list[dict[str, Any]], Written("list of mappings from key paths")] = Field(
        default_factory=list,
        description="Values that change together; all cases name the same key paths. Each is "
        "combined with all that varies. `case` is its name in runs and figures.",
        examples=[[{"dut.cpus": [1], "traffic.cpu": 0}, {"dut.cpus": [0], "traffic.cpu": 1}]],
    )
    exclude: Annotated[list[dict[str, Any]], Written("list of mappings from key paths")] = Field(
        default_factory=list,
        description="Combinations to leave out: those with all values of a mapping; a list "
        "stands for any of its values.",
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
        description="Other sizes of the experiment: `--set scale=NAME` takes the values of that "
        "scale.",
        examples=[
            {"paper": {"traffic.rate": "1 Mpkt/s", "traffic.duration": "160 s", "repeat": 10}}
        ],
    )
    counters: Counters = Field(
        default=False,
        description="Whether instructions, TLB misses and migrations are counted, or which other "
        "events; with interrupts and softirqs by kind.",
        examples=[True, {"events": ["instructions", "page-faults"], "by": "machine"}],
    )
    trace: Literal["none", "thin", "full"] = Field(
        default="none",
        description="What is recorded of the kernel on the DuT's CPUs, as of `tailtap trace "
        "--mode` (docs/explanation/tracing.md).",
        examples=["thin"],
    )
    interrupts: Interrupts = Field(
        default="none",
        description="Whether counters of interrupts and softirqs are sampled "
        "(docs/explanation/interrupts.md).",
        examples=["counters", {"counters": {"period": "10 ms"}}],
    )
    events: Annotated[list[Event], Written("list of mappings")] = Field(
        default_factory=list,
        description="Commands that run while packets are measured: a reload of rules, a link that "
        "goes down (docs/howto/events.md).",
        examples=[[{"at": "3 s", "run": ["nft", "-f", "/srv/new.nft"]}]],
    )
    keep: Annotated[
        tuple[Literal["stamps", "evaluation", "worst"], ...],
        Field(strict=False),
        Written("list of stamps, evaluation and worst"),
    ] = Field(
        default=("stamps", "evaluation", "worst"),
        description="What of each run stays when it is evaluated. Without stamps the captures of "
        "the taps are removed then, so that no more than one run's need room; causes, and "
        "evaluating anew, need them.",
        examples=[["evaluation", "worst"]],
    )
    require: Annotated[
        list[Annotated[str, read_by(lambda text: parse_requirements([text]))]],
        Written("list of requirements"),
    ] = Field(
        default_factory=list,
        description="What all runs must meet (docs/reference/verdict.md): `tailtap run` ends with "
        "status 1 unless everything holds.",
        examples=[["p99.9 < 1 ms", "loss == 0"]],
    )
    claims: Annotated[list[Claim], Written("list of mappings")] = Field(
        default_factory=list,
        description="What the experiment is to show: sentences, each with its test: held, "
        "contradicted, or not shown.",
        examples=[[{"says": "No packet is lost.", "require": ["loss == 0"]}]],
    )
    figures: Annotated[
        list[Figure], Field(max_length=MOST_FIGURES), Written("list of mappings")
    ] = Field(
        default_factory=list,
        description="Figures and tables that the report has besides its own "
        "(docs/howto/figures.md).",
        examples=[[{"kind": "hdr", "panels": "dut.kernel", "series": "dut.platform"}]],
    )
    differs: Annotated[list[Annotated[str, Field(min_length=1)]], Written("list of sentences")] = (
        Field(
            default_factory=list,
            description="How this experiment differs from the one that it follows; `tailtap run` "
            "prints and stores it.",
            examples=[["The forwarder is DPDK's l2fwd; the paper's was libmoon's."]],
        )
    )
    differs_in_lab: Annotated[
        list[Annotated[str, Field(min_length=1)]], Written("list of sentences")
    ] = Field(
        default_factory=list,
        description="The same of the lab, left out with `--testbed`.",
        examples=[["One machine sends the load, is the device and stamps packets."]],
    )

    _wired: tuple[Cables, ...] = PrivateAttr(default=())
    _sent: tuple[Dut, Traffic, dict[str, Traffic]] | None = PrivateAttr(default=None)

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
    def _its_parts_fit(self) -> Experiment:
        check_server(self)
        check_own_files(self)
        check_events(self)
        return self

    @model_validator(mode="after")
    def _key_is_in_the_captures(self) -> Experiment:
        key, at = self.evaluation.key, ("evaluation", "key")
        if not self.keeps_packets and key not in KEYS:
            raise Misfit(
                at,
                f"there is no key {key!r} in a stamp file: {did_you_mean(key, KEYS)} (others are "
                "for whole packets: tap: {format: pcap})",
                [("tap", "format")],
            )
        if self.keeps_packets and key != "auto":
            try:
                _core.check_key(key)
            except InputError as error:
                raise Misfit(at, str(error)) from error
        if self.keeps_packets and self.traffic.external is None and self.traffic.warm_up_ns:
            raise Misfit(
                ("traffic", "warm_up"),
                "a pcap has the packets of the warm-up as well: write warm_up: 0 s, and leave them "
                "out by evaluation.trim",
                [("tap", "format")],
            )
        if self.snap is not None and self.tap.clock == HARDWARE:
            raise Misfit(("tap", "format"), "cards stamp packets with ids, and keep none: leave it "
                         "out, or take tap.clock: monotonic", [("tap", "clock")])  # fmt: skip
        if self.snap is not None and self.trace != "none":
            raise Misfit(("trace",), "a trace is joined with stamps, and these taps keep packets: "
                         "leave it out", [("tap", "format")])  # fmt: skip
        return self

    @model_validator(mode="after")
    def _keeps_what_is_read(self) -> Experiment:
        if not {"evaluation", "worst"} <= {*self.keep}:
            raise Misfit(
                ("keep",),
                "every result is read from the evaluation, and the worst latencies are in it: "
                "write [evaluation, worst], or leave it out",
            )
        if not self.keeps_stamps and self.trace != "none":
            raise Misfit(
                ("keep",),
                "causes are found by the stamps of late packets: keep stamps, or leave trace out",
                [("trace",)],
            )
        return self

    @model_validator(mode="after")
    def _both_ends_of_cables(self, info: ValidationInfo) -> Experiment:
        dut, tap = self.dut.given("ports"), self.tap.ports
        testbed = info.context is not None and info.context[ON_TESTBED]
        if (dut is None) != (tap is None) and not testbed:
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
        if why := cabled_twice(self.dut.over, (*(dut or ()), *(tap or ()))):
            raise Misfit(("dut", "over", "sriov"), why, [("dut", "ports"), ("tap", "ports")])
        return self

    @model_validator(mode="after")
    def _there_are_cards(self, info: ValidationInfo) -> Experiment:
        testbed = info.context is not None and info.context[ON_TESTBED]
        cards = testbed or self._ports() is not None or isinstance(self.dut.over, Sriov)
        if self.dut.functions and self.traits.has_dut:
            check_functions(self.dut.members, both_ways=self.traffic.bidirectional)
        if self.dut.queues is not None and not cards and self.traits.has_dut:
            raise Misfit(
                ("dut", "queues"),
                "links of the lab have one queue: name network cards with dut.ports or dut.over, "
                "measure on a testbed, or leave it out",
                [("dut", "ports"), ("dut", "over")],
            )
        return self

    @model_validator(mode="after")
    def _line_can_be_formed(self) -> Experiment:
        if self.dut.nodes and not self.dut.named_nodes and not self._varies("dut.line"):
            raise Misfit(
                ("dut", "nodes"),
                "dut.line names none of these nodes: name them in the order in which packets pass "
                f"them, such as [{', '.join(self.dut.nodes)}], or join them with dut.links",
                [("dut", "line")],
            )
        check_hops(self.dut)
        check_polling(self.dut)
        if self.dut.is_network:
            check_network(self)
        else:
            check_line(self.dut, self.traffic)
        if self.dut.over != VETH:
            check_over(self.dut.over, self.dut.taps, self.graph())
        return self

    @model_validator(mode="after")
    def _groups_can_be_counted(self) -> Experiment:
        by_group = isinstance(self.counters, Events) and self.counters.by == "group"
        if by_group and self.traits.has_dut and self.traits.virtualization != "container":
            raise Misfit(
                ("counters", "by"),
                "only containers have a control group of their own: choose cpu or machine",
                [("dut", "platform")],
            )
        return self

    @model_validator(mode="after")
    def _figures_are_of_what_varies(self) -> Experiment:
        if self.figures:
            keys = [*self.vary, *(self.cases[0] if self.cases else ())]
            values = {key: [as_words(value) for value in self._values(key)] for key in keys}
            if len(self.flows) > 1 or self.dut.flows:
                values[self.flow_variable] = []  # which flows there are may vary
            check_figures(self.figures, values)
            if self.interrupts == "none" and not self.counters and "interrupts" not in keys:
                for place, figure in enumerate(self.figures):
                    if figure.made.counts:
                        raise Misfit(
                            ("figures", place, "kind"),
                            "nothing is counted: write counters: true or interrupts: counters",
                        )
        return self

    @property
    def answers(self) -> bool:
        """Whether its DuT answers clients: a server."""
        return FORWARDERS[self.dut.forwarder].serves == "clients"

    @property
    def snap(self) -> int | None:
        """How many bytes of each packet the taps keep; None where they write stamps."""
        asked = self.tap.format or (PCAP if self.evaluation.match == TRANSACTIONS else STAMPS)
        return self.tap.snap_length if asked == PCAP else None

    @property
    def keeps_stamps(self) -> bool:
        """Whether what the taps wrote stays when a run is evaluated."""
        return "stamps" in self.keep

    @property
    def keeps_packets(self) -> bool:
        """Whether captures have packets, and not stamps and ids alone."""
        recorder = self.tap.external
        return self.snap is not None if recorder is None else recorder.whole

    @property
    def neighbours(self) -> Sequence[Asked]:
        """What loads CPUs of the DuT's machine meanwhile."""
        return [Asked(name, one.kind, one.settings) for name, one in self.dut.neighbours.items()]

    @property
    def traits(self) -> Traits:
        """What is known of the platforms of its DuT."""
        return together(PLATFORMS[one.dut.platform].traits for one in self.dut.members)

    @property
    def flows(self) -> tuple[str, ...]:
        """The names of the flows that are measured at the same time, each as a run."""
        if self.dut.flows:
            return tuple(self.dut.flows)
        return (FORWARD, REVERSE) if self.traffic.bidirectional else (FORWARD,)

    @property
    def flow_variable(self) -> str:
        """The variable of the plan by which the runs of several flows differ."""
        return FLOW if self.dut.flows else DIRECTION

    def traffic_of(self, flow: str) -> Traffic:
        """What is sent as one of `flows`."""
        if self.dut.flows:
            # A copy with other traffic brings what was found for the first.
            if self._sent is None or self._sent[:2] != (self.dut, self.traffic):
                self._sent = (self.dut, self.traffic, sent_as(self.dut, self.traffic))
            return self._sent[2][flow]
        return self.traffic.reversed() if flow == REVERSE else self.traffic

    @property
    def seconds(self) -> float:
        """About how long packets are sent, warm-up and pause included."""
        return max(self.traffic_of(flow).seconds for flow in self.flows)

    @property
    def senders(self) -> tuple[int, ...]:
        """The CPUs of the generators, ascending."""
        return tuple(sorted({cpu for flow in self.flows for cpu in self.traffic_of(flow).senders}))

    @property
    def unobserved(self) -> Sequence[str]:
        """What it asks to be observed though there is no device, as sentences."""
        if self.traits.has_dut:
            return ()
        asked = {"trace": self.trace != "none", "counters": self.counters is not False,
                 "events": bool(self.events)}  # fmt: skip
        return [
            f"{key}: platform {self.dut.platform} has no device: this run is made without it"
            for key, is_asked in asked.items()
            if is_asked
        ]

    def devices(self) -> Devices:
        """What each node of the DuT is asked for, in the order in which packets pass them."""
        members = self.dut.members
        users = Counter(cpu for member in members for cpu in member.cpus)
        users.update(cpu for one in self.neighbours for cpu in one.options.cpus)
        return [
            self._device(member, alone=all(users[cpu] == 1 for cpu in member.cpus))
            for member in members
        ]

    def _device(self, member: Member, *, alone: bool) -> tuple[Platform, DutSpec[Any]]:
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
            alone=alone,
        )
        return PLATFORMS[dut.platform], spec

    def wired(self, cables: Sequence[Cables]) -> Experiment:
        """This experiment between the cards of a testbed, two cables for each flow of a network:
        the first ones, or those at the cards in `dut.ports`. Without any it stays as it is.

        Raises `InputError` where it names cards that have none, or cannot be measured there.
        """
        if not cables:
            return self
        if (ports := self._ports()) is not None:
            cables = [pair for pair in cables if pair.dut == ports] or _refuse(ports, cables)
        tap_kind = cables[0].tap_kind
        kind = self.tap.kind if "kind" in self.tap.model_fields_set else tap_kind
        used = cables[: self.entries]
        twice = cabled_twice(self.dut.over, (card for pair in used for card in pair.dut))
        for is_wrong, why in (
            (twice, f"dut.over.sriov: {twice}"),
            (
                self.tap.ports not in (None, cables[0].tap),
                "tap.ports: the testbed file says what is at other ends of cables: leave it out",
            ),
            (
                self.dut.taps != ENDS,
                (
                    f"dut.taps: {self.dut.taps}: the timestamper of a testbed does not see what is "
                    "between the nodes of a DuT: leave it out"
                ),
            ),
            (
                self.answers,
                (
                    "dut.forwarder: server: its one port has the lab's links: measure it without "
                    "--testbed"
                ),
            ),
            (
                any(event.where == GENERATOR for event in self.events),
                (
                    "events.where: generator: on a testbed commands run on the device's host: take "
                    "dut or host, or measure without --testbed"
                ),
            ),
            (
                self.events and self.dut.silent is not None,
                (
                    "events, dut.silent: the device's host is told when packets begin, and would "
                    "not be reached then: leave one of them out"
                ),
            ),
            (
                kind != tap_kind and (kind, tap_kind) != (EXTERNAL, PASSIVE),
                (
                    f"tap.kind: {kind} does not fit to the cables of the testbed, which are for "
                    f"{tap_kind}: leave it out"
                ),
            ),
            (
                self.traffic.driver is not None and tap_kind != PASSIVE,
                (
                    f"traffic.external.driver: {self.traffic.driver}: the generator has no cards "
                    "of its own: give both cables of the DuT a splitter (cables[].splitter), or "
                    "leave it out"
                ),
            ),
            (
                kind == EXTERNAL and len(self.flows) > 1,
                (
                    "tap.kind: external: its program records one flow: leave the others out, or "
                    "take another kind"
                ),
            ),
            (
                kind == EXTERNAL and self.traffic.key != MOONSNIFF and not self.keeps_packets,
                (
                    "tap.external: an mscap has MoonSniff's ids, and this generator's packets have "
                    f"{self.traffic.key}: have it write pcap"
                ),
            ),
            (
                self.tap.clock == HARDWARE and tap_kind != PASSIVE,
                (
                    "tap.clock: hardware: without splitters a packet is stamped before it is sent, "
                    "which no card does: give both cables of the DuT one, or take tap.clock: "
                    "monotonic"
                ),
            ),
        ):
            if is_wrong:
                raise InputError(why)
        found = self.model_copy(update={"tap": self.tap.model_copy(update={"kind": kind})})
        found._wired = tuple(used)
        found.graph()  # raises what does not fit
        return found

    @property
    def entries(self) -> int:
        """How many ports of the DuT packets come in at: each flow of a network has its own."""
        return len(self.dut.paths) if self.dut.is_network else 1

    @property
    def testbed_cables(self) -> Sequence[Cables]:
        """What it has of those that `wired` was given."""
        return self._wired

    def cables(self) -> Sequence[Cables]:
        """The cables at the DuT's ports; none for links of the lab."""
        ports = self._ports()
        if self._wired or ports is None or self.tap.ports is None:
            return self._wired
        return (Cables(ports, self.tap.ports),)

    def graph(self) -> Graph:
        """How generators, taps and DuT are wired together."""
        largest = max(size for flow in self.flows for size in self.traffic_of(flow).sizes)
        graph = platform.graph_of(
            self.devices(),
            frame_size=largest,
            cables=self.cables(),
            hops=self.dut.taps != ENDS,
            queues=self.dut.taps == QUEUES,
            paths=self.dut.paths if self.dut.is_network else None,
            clients=self.senders if self.answers else (),
        )
        graph = with_queues(graph, {one: len(self.traffic_of(one).senders) for one in self.flows})
        return with_links_over(graph, self.dut.over, functions=self.dut.functions)

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

    def parameters(self, flow: str | None = None) -> dict[str, Any]:
        """What one run does, for `run.json`: without the keys that make several runs of a file.

        `traffic` is that of the `flow` that the run is of.
        """
        about = {"name", "differs", "differs_in_lab", "cases", "vary", "exclude", "repeat"}
        about |= {"question", "scales", "loop", "require", "claims", "figures", "keep"}
        content = self.model_dump(mode="json", exclude=about)
        if flow is not None and self.dut.flows:
            content["traffic"] = self.traffic_of(flow).model_dump(mode="json")
        dut = self.dut
        content["dut"] |= dict.fromkeys(platform.declaring())
        content["dut"] |= dut.settings.model_dump(mode="json")
        [irq, *others] = [one.placement.record().irq for one in dut.members]
        if all(other == irq for other in others):
            content["dut"]["irq"] = irq
        if self._ports() is None:
            content["tap"]["ports"] = None
        if self.answers and "rate" not in self.traffic.model_fields_set:
            content["traffic"]["rate"] = None  # as fast as clients are answered
        if self.tap.external is None:
            content["tap"]["format"] = STAMPS if self.snap is None else PCAP
        if not self.traits.has_dut:
            content["dut"]["forwarder"] = None
            content["dut"]["options"] = {}
        return content


def _refuse(ports: Ports, cables: Sequence[Cables]) -> NoReturn:
    """Raises `InputError` for ports of a DuT that no two cables of a testbed are at."""
    there = "; ".join(" and ".join(pair.dut) for pair in cables)
    raise InputError(
        f"dut.ports: no two cables of the testbed, one after the other, are at {ports[0]} and "
        f"{ports[1]}: they are at {there}"
    )
