"""A run and its plan: ``run.json`` and ``plan.json``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailtap.records.datapath import Generator, Tap
from tailtap.records.live import Observed
from tailtap.records.machine import Booted, Environment, Station, Timekeeping, Traits, Tuning
from tailtap.records.record import (
    Anything,
    Count,
    Cpu,
    CpuText,
    InnerFile,
    Notice,
    Number,
    Open,
    Record,
    Sequenced,
    Texts,
    Whole,
    Width,
)
from tailtap.records.trace import Taken

Status = Literal["running", "done", "failed", "interrupted", "imported"]
Small = Annotated[int, Meta(ge=0, lt=1 << 31)]
Repeat = Annotated[int, Meta(ge=1, le=10**6)]
"""Nobody repeats a run more often; a list of all repeats has room."""


class AskedPlacement(Record, kw_only=True, omit_defaults=True):
    """How the packets of a node were to be received."""

    irq: str | list[Cpu]
    napi: str
    queues: Count | None = None


class Node(Record, kw_only=True, omit_defaults=True):
    """A node of a topology."""

    name: str
    task: str
    kind: str
    cpus: list[Cpu]
    placement: AskedPlacement | None = None


class Function(Record, kw_only=True):
    """A virtual function of a network card."""

    card: str
    function: Count


class Splitter(Record, kw_only=True):
    """Who sees the packets of a cable as well."""

    port: str
    card: str


class Link(Record, kw_only=True, omit_defaults=True):
    """A link of a topology."""

    ends: Texts
    mtu: Count | None = None
    cards: list[str] | None = None
    functions: list[Function] | None = None
    vlan: Count | None = None
    splitter: Splitter | None = None
    splitter_behind: Splitter | None = None
    """Where no DuT is between both splitters, the second one of the cable."""
    way: str | None = None
    """By what its end at a node of the DuT is reached; None where that is the end itself."""


class Flow(Record, kw_only=True):
    """A flow of a topology."""

    name: str
    path: Texts
    stamped: Texts


class Load(Record, kw_only=True):
    """What a neighbour did on a CPU."""

    reached: Number
    done: Count
    cpu_ns: Count
    elapsed_ns: Count


class Neighbour(Record, kw_only=True):
    """What loaded CPUs meanwhile."""

    kind: str
    unit: str
    asked: Number
    cpus: dict[CpuText, Load]


class Port(Record, kw_only=True, omit_defaults=True):
    """Where the packets of a port were received."""

    card: str | None = None
    numa_node: Whole | None = None
    cpus: list[Cpu] | None = None
    """Empty: where the kernel put it; None: not at this port."""


class Placement(Record, kw_only=True):
    """Where packets were received."""

    ports: dict[str, Port] = {}
    numa_nodes: dict[CpuText, str] = {}
    crossings: Texts = []


class Handled(Record, kw_only=True):
    """Which CPUs handled an interrupt, and how often."""

    port: str
    cpus: list[Cpu]
    affinity: str | None = None
    effective: str | None = None
    handled: dict[CpuText, Count]


class PlatformKernel(Record, kw_only=True):
    """The kernel that the DuT runs on."""

    kind: str | None = None
    release: str | None = None


class Card(Record, kw_only=True):
    """A network card of the DuT."""

    driver: str | None = None


class Image(Record, kw_only=True, omit_defaults=True):
    """A container's image, as it says of itself."""

    reference: str
    """As the experiment names it."""
    id: str
    """The digest of its configuration, which names all of its layers."""
    digest: str
    """The digest of its manifest; archives of Docker have none of their own."""
    architecture: str
    entrypoint: Texts = []
    arguments: Texts = []
    environment: Texts = []
    folder: str = "/"
    user: str = ""


class PlatformFacts(Record, kw_only=True):
    """What any platform may tell of itself."""

    memory_used: Count | None = None
    kernel: PlatformKernel | None = None
    tuning: Tuning | None = None
    cards: dict[str, Card | None] = {}
    image: Image | None = None


class StampedPoint(Record, kw_only=True):
    """A tap point of a line."""

    name: str
    port: str
    file: InnerFile
    before: str | None = None
    """The node of the DuT that packets enter next; None behind the last one."""
    received: bool = False


class Instrument(Record, kw_only=True, omit_defaults=True):
    """What an instrument left: keys of the run's record, and files."""

    facts: Texts
    files: list[InnerFile]
    cpus: str | None = None
    """Those that the taps might run on."""
    points: list[StampedPoint] | None = None
    """Those of the taps, in the order in which packets pass them."""


class Window(Record, kw_only=True):
    """What was counted in a window of time."""

    scope: Literal["dut.cpus", "group", "machine"]
    cpus: list[Cpu]
    elapsed_ns: Count
    events: dict[str, Whole | None]
    estimated: Texts
    by_cpu: dict[CpuText, dict[str, Whole | None]]
    groups: Texts = []
    """The control groups that `scope` is about, as folders."""
    kinds: dict[str, Whole] = {}
    """Interrupts and softirqs of `cpus` by kind, those that occurred; of a group nobody tells."""
    kinds_by_cpu: dict[CpuText, dict[str, Whole]] = {}


class Watts(Record, kw_only=True):
    """The power of a whole machine."""

    before: Count | None
    after: Count | None


class Energy(Record, kw_only=True, omit_defaults=True):
    """The energy of a run, by domain in microjoules."""

    elapsed_ns: Count
    energy_uj: dict[str, Whole]
    platform_watts: Watts | None = None
    """Of the whole machine before and after, by its management controller."""

    @property
    def watts_by_domain(self) -> dict[str, float]:
        """The mean power of each domain (``package-0``, ``package-0/dram``)."""
        if not (elapsed := self.elapsed_ns):
            return {}
        return {name: uj / 1e6 * 1e9 / elapsed for name, uj in self.energy_uj.items()}

    @property
    def watts(self) -> float | None:
        """The mean power of processors and memory together; None where no counter is theirs.

        Packages, and the memory beside them. ``core`` and ``uncore`` are parts of their package,
        and ``psys`` is the whole platform (Documentation/power/powercap/powercap.rst).
        """
        parts = ((name.partition("/"), power) for name, power in self.watts_by_domain.items())
        found = [
            power
            for (package, _, part), power in parts
            if package.startswith("package") and part in ("", "dram")
        ]
        return sum(found) if found else None


class SampleTimes(Record, kw_only=True):
    """How long samples took, in ns."""

    median: Count
    max: Count
    sum: Count


class Sampling(Record, kw_only=True):
    """How interrupts were sampled."""

    period_ns: Count
    cpu: Cpu
    shares_cpu: bool
    samples: Count
    late: Count
    missed: Count
    took_ns: SampleTimes


class HostClock(Record, kw_only=True, omit_defaults=True):
    """The clock of a machine, and how it stood to that of the stamps at two moments of that."""

    timekeeping: Timekeeping | None = None
    at_ns: tuple[Whole, Whole] | None = None
    ahead_ns: tuple[tuple[Whole, Whole], tuple[Whole, Whole]] | None = None
    """By how much it was ahead, the least and the most; None where no line fits."""
    drifts: tuple[Number, Number] | None = None
    widest_ns: Count | None = None
    exchanges: Count | None = None
    bend_ns: Count = 0


class HostClocks(Record, kw_only=True, omit_defaults=True):
    """The clocks of the hosts of a run, by the roles that these have."""

    against: str
    dut: HostClock | None = None
    generator: HostClock | None = None
    timestamper: HostClock | None = None


class Quantile(Sequenced, kw_only=True):
    """A percentile of a part of a run's packets."""

    above: Count
    supported: bool
    """Whether ten packets or more are above it."""


class Passed(Record, kw_only=True):
    """The packets that went in within a part of a run's time; latencies in ns."""

    time_ns: Count
    packets: Count
    lost: Count
    percentiles: list[Quantile] = []
    max_ns: Whole | None = None


class Blocked(Record, kw_only=True):
    """The longest time in which nothing came out although packets had gone in."""

    begin_ns: Whole
    """When the first of them went in."""
    ns: Count | None
    """From then on until something came out; None where nothing did any more."""
    least_ns: Count
    """From then on until the last of them went in that found it so: it lasted so long at least."""
    most_ns: Count | None
    """Between the packets that came out before and after; None where nothing did any more."""


class Event(Record, kw_only=True):
    """A command that ran while packets were measured, and what they met with around it.

    Times are those of the stamps' clock.
    """

    name: str
    where: str
    command: Texts
    at_ns: Count
    """When it was asked for, from the first packet on."""
    window_ns: Count
    begin_ns: Whole
    end_ns: Whole | None = None
    """When it had ended; None where that was not waited for."""
    status: Whole | None = None
    """Its exit status, below 0 for a signal."""
    output: str = ""
    """The last that it said."""
    within_ns: Count = 0
    """How far begin and end may be off, where another machine than that of the stamps told them."""
    after_ns: Whole | None = None
    """When it began, from the first packet on."""
    blocked: Blocked | None = None
    """None where nothing was."""
    around: Passed | None = None


class EvaluationSettings(Record, kw_only=True):
    """How a run is to be evaluated."""

    key: str = "auto"
    trim: Count = 0
    window: Count = 5_000_000_000
    match: str = "packets"
    transaction: str | None = None
    bucket: Width | None = None


class TrafficSettings(Record, kw_only=True):
    """Of the traffic that was asked for."""

    rate: Count | None = None
    size: Count | str | list[Count] | None = None
    cpu: Cpu | None = None
    cpus: list[Cpu] | None = None
    reverse_cpu: Cpu | None = None
    bidirectional: bool = False
    warm_up: Count = 0
    warm_up_packets: Count = 0
    pattern: str | Anything = "constant"

    @property
    def is_constant(self) -> bool:
        """Whether packets were to leave at a constant pace."""
        kind = self.pattern if isinstance(self.pattern, str) else self.pattern.get("kind")
        return kind == "constant"


class DutSettings(Record, kw_only=True):
    """Of the device that was asked for."""

    platform: str | None = None
    forwarder: str | Anything | None = None
    cpus: list[Cpu] | None = None
    memory: Count | None = None
    kernel: str | None = None
    boot: str | None = None
    irq: str | list[Cpu] = "core"
    line: Count | list[str | Anything] | None = None


class Parameters(Record, kw_only=True):
    """Of what was asked for, that which is read; the experiment's model defines all of it."""

    dut: Open[DutSettings] | None = None
    traffic: Open[TrafficSettings] | None = None
    evaluation: EvaluationSettings | None = None
    trace: str = "none"


CASE = "case"
"""The variable that says which of an experiment's cases a run is of: its name."""
#: What loops of the testbed service pos call the packet rate in pkt/s, and the repeat's number.
RATES = ("pkt_rate", "packetrate", "packet_rate")
REPEATS = ("repeat", "repetition")
#: MoonGen's size of a packet: without the frame's check sequence, which tailtap counts.
MOONGEN_SIZE = "pkt_sz"
FCS = 4


class Row(Record, kw_only=True):
    """Which run of its experiment a run is."""

    number: Small
    slug: InnerFile
    repeat: Repeat
    variables: Anything
    """The varied values as written, and the flow's name where it has one of its own."""


class PlanRow(Row, kw_only=True):
    """A run as a plan has it."""

    parameters: Open[Parameters]


class Facts(Record, kw_only=True):
    """Fields of a run that instruments find out."""

    counters: dict[str, Window] | None = None
    """What processors counted, by the window of time; None where nobody asked."""
    interrupts: Sampling | None = None
    softnet: dict[CpuText, dict[str, Whole]] = {}
    steal_ns: dict[CpuText, Whole] = {}
    cpu_ns: dict[CpuText, dict[str, Whole]] = {}
    forwarder_memory: Count | None = None
    forwarder_memory_nodes: dict[CpuText, Count] | None = None
    elapsed_ns: Count | None = None
    neighbours: dict[str, Neighbour] = {}
    card_interrupts: dict[str, Handled] = {}
    energy: Energy | None = None
    trace: Taken | None = None
    trace_guest: Anything | None = None
    events: list[Event] = []


class Found(Facts, kw_only=True):
    """Fields of a run that its measurement finds out; a run is given all of them at once."""

    forwarder: Anything | None = None
    platform: Open[PlatformFacts] | None = None
    placement: Placement | None = None
    tuning: Tuning | None = None
    stations: dict[str, Station] = {}
    clocks: HostClocks | None = None


class RunRecord(Found, kw_only=True, tag_field="schema", tag="tailtap.run/1"):
    """``run.json``."""

    number: Small
    slug: InnerFile
    repeat: Repeat
    variables: Anything
    parameters: Open[Parameters]
    name: str
    """The experiment's."""
    status: Status
    error: str | None = None
    started: str | None = None
    finished: str | None = None
    valid: bool | None = None
    """False when the generator did not send what was asked of it."""
    warnings: list[Notice]
    traits: Traits | None = None
    nodes: list[Node] = []
    links: list[Link] = []
    flows: list[Flow] = []
    generator: Open[Generator] | None = None
    taps: dict[str, Open[Tap]] | None = None
    boot: Booted | None = None
    beside_events: Passed | None = None
    """What passed in the run's other time."""
    instruments: dict[str, Instrument] = {}
    environment: Environment | None = None
    observed: Observed | None = None
    """Of a device that was there before: how it was observed."""


class Plan(Record, kw_only=True, tag_field="schema", tag="tailtap.plan/1"):
    """``plan.json``."""

    name: str
    runs: list[PlanRow]
