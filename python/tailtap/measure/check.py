"""`tailtap run --check`: what of an experiment this machine cannot do, before anything is made.

Everything is asked by what the real run asks first. What only trying it would tell, such as whether
a kernel has a certain classifier, is not found out: `tailtap doctor` tries that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailtap.experiment.line import Member
from tailtap.experiment.model import Experiment
from tailtap.experiment.over import foresee_over
from tailtap.experiment.own_files import has_own_files
from tailtap.experiment.plan import PlannedRun, make_plan
from tailtap.experiment.reading import CheckedExperiment
from tailtap.experiment.tuning import NONE
from tailtap.host.changes.privileges import missing_capabilities, require_root
from tailtap.host.cpu.numa import Numa
from tailtap.host.knobs.tree import Tree
from tailtap.host.net.cards import CardState
from tailtap.kinds.findings import Findings
from tailtap.lab import forwarders as forwarder
from tailtap.lab.forwarders import Asked
from tailtap.lab.generators import GENERATORS
from tailtap.lab.instruments.events import events_of
from tailtap.lab.instruments.perf import foresee as foresee_counting
from tailtap.lab.instruments.tracer import foresee as foresee_tracer
from tailtap.lab.instruments.tracer.room import room_of
from tailtap.lab.platforms import PLATFORMS, require_memory
from tailtap.lab.topology.compiler import compile_graph, placed
from tailtap.lab.topology.placement import crossings
from tailtap.measure.beside import Beside
from tailtap.measure.preconditions import (
    note_sharing,
    require_clock,
    require_cpus,
    require_events,
    require_room,
    stamp_bytes,
)
from tailtap.measure.roles.tracing import is_steered, packets_of, spare_of
from tailtap.measure.roles.tuning import planned, purpose_for, require_boot
from tailtap.records.printed import CheckedRun, Message, RunCheckRecord
from tailtap.remote.local import LocalHost, require_program

PROGRAMS = ("ip", "setpriv")
"""What every run calls on this machine, whatever is measured."""
_Forwarder = tuple[str, str, Asked]
"""Its name, its options as JSON, and what it is asked for."""


@dataclass(frozen=True)
class Outlook:
    """A planned experiment, and what was found out about it."""

    name: str
    differs: Sequence[str]
    runs: Sequence[tuple[PlannedRun, Findings]]
    whole: Findings
    """What concerns all runs."""
    seconds: float
    """How long packets are sent, all runs together."""
    stamp_bytes: int
    as_root: bool
    """Whether root asked, who can ask everything."""

    @property
    def can_run(self) -> bool:
        """Whether nothing is known that prevents any of the runs."""
        return not self.whole.problems and not self.impossible

    @property
    def impossible(self) -> Sequence[tuple[PlannedRun, Findings]]:
        """The runs with problems of their own."""
        return [row for row in self.runs if row[1].problems]

    @property
    def record(self) -> RunCheckRecord:
        """What ``tailtap run --check --json`` prints."""
        return RunCheckRecord(
            name=self.name,
            differs=list(self.differs),
            can_run=self.can_run,
            as_root=self.as_root,
            runs=[
                CheckedRun(
                    number=run.number,
                    slug=run.slug,
                    variables=dict(run.variables),
                    problems=_messages(findings.problems),
                    notes=_messages(findings.notes),
                )
                for run, findings in self.runs
            ],
            problems=_messages(self.whole.problems),
            notes=_messages(self.whole.notes),
            traffic_seconds=self.seconds,
            stamp_bytes=self.stamp_bytes,
        )


def check_experiment(checked: CheckedExperiment, out: Path) -> Outlook:
    """Plan the experiment and find out what keeps this machine from it; makes nothing.

    `out` is where its results would go. Takes about 10 ms for each combination of variables.
    """
    plan = make_plan(checked)
    whole = Findings()
    if os.geteuid() == 0:
        whole.ask(require_root)
    else:
        whole.notes.append(
            "a run needs root, and only root can ask whether this kernel takes eBPF programs, "
            "sockets and counters, and boots guests: check again with sudo"
        )
    whole.notes += Beside.look().sentences
    for program in PROGRAMS:
        whole.ask(require_program, program)
    whole.ask(require_room, out, plan)
    if not missing_capabilities() and any(run.experiment.traits.has_dut for run in plan):
        _foresee_counting(checked, whole)
    # Repeats are the same experiment, and many combinations have the same forwarder.
    known: dict[int, Findings] = {}
    forwarders: dict[_Forwarder, Findings] = {}
    for run in plan:
        if id(run.experiment) not in known:
            known[id(run.experiment)] = _foresee(run, forwarders)
    return Outlook(
        checked.name,
        checked.differs,
        [(run, known[id(run.experiment)]) for run in plan],
        whole,
        sum(run.experiment.seconds for run in plan),
        stamp_bytes(plan),
        os.geteuid() == 0,
    )


def _foresee(run: PlannedRun, forwarders: dict[_Forwarder, Findings]) -> Findings:
    experiment, findings = run.experiment, Findings()
    traffic = experiment.traffic
    findings.ask(require_cpus, [run])
    note_sharing(experiment, findings)
    findings.ask(require_clock, [run])
    GENERATORS[traffic.generator].foresee(traffic, findings)
    cables = experiment.cables()
    for card in () if cables is None else (*cables.dut, *cables.tap):
        findings.ask(CardState.of, card)
    _foresee_placement(experiment, findings)
    _foresee_tuning(experiment, findings)
    members, graph = experiment.dut.members, experiment.graph()
    every = {
        (id(member.dut), len(member.cpus), len(graph.cards_of(member.name))): (device, member)
        for device, member in zip(experiment.devices(), members, strict=True)
    }
    for (kind, spec), member in every.values():
        programs = [need.program for need in forwarder.FORWARDERS[member.dut.forwarder].needs]
        cards = tuple(graph.cards_of(member.name).values())
        kind.foresee(spec, cables if cards else None, programs, findings)
        if kind.traits.has_dut:
            findings.add(_foresee_forwarder(member, cards, experiment, forwarders))
    events = events_of(experiment.counters)
    if events is not None and events.by == "group" and experiment.traits.has_dut:
        names = {member.dut.forwarder for _, member in every.values()}
        findings.notes += [
            f"counters.by: group: {name} works in the kernel, whose work on packets is no group's: "
            "nothing of it is counted; choose cpu"
            for name in sorted(names)
            if forwarder.FORWARDERS[name].in_kernel
        ]
    findings.ask(require_memory, experiment.devices())
    findings.notes += experiment.unobserved
    if experiment.traits.has_dut and experiment.trace != "none":
        _foresee_trace(experiment, findings)
    return findings


def _foresee_counting(checked: CheckedExperiment, findings: Findings) -> None:
    """Whether there are such events, and which of them this machine does not count."""
    before = len(findings.problems)
    findings.ask(require_events, checked)
    events = events_of(checked.combinations[0][1].counters)
    if events is not None and len(findings.problems) == before:
        foresee_counting(events, findings)


def _foresee_trace(experiment: Experiment, findings: Findings) -> None:
    """What a trace would lack, and where it is kept."""
    graph = experiment.graph()
    numa = Numa.of(graph.cards)
    steered = findings.ask(is_steered, experiment, graph, numa)
    found = room_of(
        packets_of(experiment),
        experiment.trace,
        steered=bool(steered),
        cpus=len(experiment.dut.cpus),
        spare=spare_of(experiment),
    )
    foresee_tracer(experiment.trace, found, len(experiment.dut.cpus), findings)


def _foresee_placement(experiment: Experiment, findings: Findings) -> None:
    """Whether the graph can be made here, and which packets cross from one NUMA node to another."""
    graph = experiment.graph()
    foresee_over(graph, findings)
    numa = Numa.of(graph.cards)
    if findings.ask(compile_graph, graph, "000000", numa.online, numa) is None:
        return
    for node in graph.nodes:
        if node.task == "dut":
            sentences = crossings(node.name, placed(graph, node.name, numa), numa)
            findings.notes += [f"dut.irq: {sentence}" for sentence in sentences]


def _foresee_tuning(experiment: Experiment, findings: Findings) -> None:
    """What `dut.tuning` would set, and what keeps it from that."""
    if experiment.dut.tuning == NONE:
        return
    tree = Tree()
    purpose = findings.ask(purpose_for, experiment, tree)
    if purpose is None:
        return
    findings.ask(require_boot, experiment, tree, purpose)
    wanted = findings.ask(planned, experiment, tree, purpose)
    if wanted is None:
        return
    names = [change.knob.name for change in wanted.changes]
    findings.notes.append(f"dut.tuning: sets {', '.join(names) or 'nothing: all is as wanted'}")
    findings.notes += [f"dut.tuning: {name} stays as it is: {why}" for name, why in wanted.left]


def _foresee_forwarder(
    member: Member,
    cards: tuple[str, ...],
    experiment: Experiment,
    known: dict[_Forwarder, Findings],
) -> Findings:
    """What keeps a forwarder from its work; the machine is asked once for all that are alike."""
    dut = member.dut
    kind = forwarder.FORWARDERS[dut.forwarder]
    on = PLATFORMS[dut.platform]
    largest = max(size for flow in experiment.flows for size in experiment.traffic_of(flow).sizes)
    own_files = has_own_files(dut)
    iommu = bool(getattr(dut.settings, "iommu", False))
    asked = Asked(largest, len(member.cpus), cards, on.traits.own_kernel, own_files, iommu)
    options = kind.Options.model_validate(dut.options)
    one = dut.forwarder, options.model_dump_json(), asked
    if one not in known:
        known[one] = Findings()
        for need in kind.needs:
            known[one].ask(need.find, LocalHost())
        kind.foresee(options, asked, known[one])
    return known[one]


def _messages(texts: Iterable[str]) -> list[Message]:
    return [Message(message=text) for text in texts]
