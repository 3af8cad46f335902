"""What of an experiment a machine cannot do, before anything is made.

Everything is asked by what the real run asks first. What only trying it would tell, such as whether
a kernel has a certain classifier, is not found out: `tailtap doctor` tries that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from tailtap.base.errors import Findings, InputError, MachineError, TailtapError
from tailtap.base.schema import fill_in
from tailtap.experiment.line import Member, has_own_files
from tailtap.experiment.model import Experiment
from tailtap.experiment.network import foresee_over
from tailtap.experiment.sections import FULL, NONE, knobs_of, purpose_of
from tailtap.host.cpu.cpus import Numa
from tailtap.host.facts.needs import require_programs, require_root
from tailtap.host.facts.timekeeping import require_kernel_clock
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.tree import INTERFACE, Purpose, Tree
from tailtap.host.net.cards import KEYS, CardState
from tailtap.host.net.nic import timestamping
from tailtap.host.net.pci import PciDriver, address_of, interface_of
from tailtap.host.net.port_work import require_busy_poll
from tailtap.host.net.silent_link import SilentLink
from tailtap.host.tuning.apply import Plan, audit, plan, tuned, tuning
from tailtap.lab import forwarders as forwarder
from tailtap.lab.forwarders import Asked
from tailtap.lab.generators import GENERATORS
from tailtap.lab.instruments.events import encodings, events_of
from tailtap.lab.instruments.perf import foresee as foresee_events
from tailtap.lab.instruments.taps import recorder as recorders
from tailtap.lab.instruments.taps.inline import require_clocks
from tailtap.lab.instruments.taps.kinds import HARDWARE
from tailtap.lab.instruments.tracer import foresee as foresee_tracer
from tailtap.lab.instruments.tracer import room_of, spare_cpu
from tailtap.lab.platforms import PLATFORMS, require_memory
from tailtap.lab.topology.compiler import compile_graph, placed
from tailtap.lab.topology.graph import TASKS, Graph, Task
from tailtap.lab.topology.graphs import Cables
from tailtap.lab.topology.lab import CABLES, Lab
from tailtap.lab.topology.placement import BUSY_POLL, crossings
from tailtap.measure.beside import Beside
from tailtap.measure.preconditions import (
    note_sharing,
    require_cpus,
    require_lab,
    require_room,
    stamps_of,
)
from tailtap.measure.roles import PLACE
from tailtap.records.machine import Tuning
from tailtap.records.printed import AuditRecord
from tailtap.remote.local import LocalHost, require_program

JOINED = (
    "dut.platform: wire: no device is between the splitters: join the two plugs that are in the "
    "DuT's cards otherwise"
)


def named_here(cables: Cables, tasks: Collection[Task]) -> Cables:
    """The cables with the kernel's names for cards of this machine, which has these tasks, where
    the testbed file has their PCI addresses. Raises `InputError`, `MachineError`.
    """

    def named(task: Task, pair: tuple[str, str]) -> tuple[str, str]:
        one, other = pair
        return (interface_of(one), interface_of(other)) if task in tasks else pair

    sending = cables.generator
    return Cables(
        named("dut", cables.dut),
        named("timestamper", cables.tap),
        None if sending is None else named("generator", sending),
    )


def purpose_for(experiment: Experiment, tree: Tree) -> Purpose:
    """What the machine is to be ready for. Raises `InputError` where no other CPU is left."""
    cards = [card for pair in experiment.cables() for card in pair.dut]
    try:
        return purpose_of(experiment.traits.virtualization, experiment.dut.cpus, cards, tree)
    except InputError as error:
        if error.place != INTERFACE:
            raise
        raise error.but(place=CABLES if experiment.testbed_cables else "dut.ports") from error


def by_testbed(error: TailtapError) -> TailtapError:
    """An error about a card, for whoever named it in the testbed file."""
    return error.but(remedy=error.remedy.replace(KEYS, CABLES))


def planned(experiment: Experiment, tree: Tree, purpose: Purpose) -> Plan:
    """What a run sets. Its cards are the lab's own, so that their links may go down."""
    names = knobs_of(experiment.dut.tuning)
    if not names:
        return Plan(tree, (), (), ())
    return plan(tree, purpose, names, disruptive=bool(purpose.interfaces), measuring=True)


def require_boot(experiment: Experiment, tree: Tree, purpose: Purpose) -> None:
    """Raises `MachineError` where the run needs a kernel that was booted otherwise."""
    if experiment.dut.tuning != FULL or experiment.traits.own_kernel:
        return
    boot = [knob.name for knob in KNOBS if knob.settable == "boot"]
    lacking = [row.name for row in audit(tree, purpose, boot).rows if row.answer == "not-met"]
    words = [one.word(purpose, tree) for one in KNOBS if one.name in lacking and one.word]
    if words:
        raise MachineError(
            f"dut.tuning: full needs a kernel that was booted with {' '.join(words)}: "
            "`tailtap host bootline` prints the whole line; or take dut.tuning: runtime"
        )


def tune(experiment: Experiment, lab: Lab) -> Tuning | None:
    """Set what the run asks for until the lab is removed; what the machine is like then.

    None where nothing can be kept apart from the DuT, as on a machine with a single CPU. Raises
    `InputError`, and `MachineError` when the kernel refuses a value or was booted otherwise.
    """
    tree = Tree()
    try:
        purpose = purpose_for(experiment, tree)
    except TailtapError:
        if experiment.dut.tuning == NONE:
            return None
        raise
    require_boot(experiment, tree, purpose)
    wanted = planned(experiment, tree, purpose)
    before = {change.knob.name: change.before.value for change in wanted.changes}
    lab.keep(tuned(wanted, lab.journal))
    return record(audit(tree, purpose), before, dict(wanted.left))


def judged_as_generator(experiment: Experiment, tree: Tree | None = None) -> Tuning | None:
    """What the machine of the generators is like, of which nothing is tuned.

    None where nothing can be kept apart from them, as on a machine with a single CPU.
    """
    tree = tree or Tree()
    try:
        purpose = Purpose.of(tree, "generator", list(experiment.senders), interfaces=[])
    except InputError:
        return None
    return record(audit(tree, purpose), {}, {})


def record(found: AuditRecord, before: dict[str, str | None], left: dict[str, str]) -> Tuning:
    """`tuning` of ``run.json``: the audit during the run, and what was set for it."""
    there = [row for row in found.rows if row.answer != "not-applicable"]
    return tuning(found, there, before=before, left=left)


OTHER_TAPS = (
    "on a testbed with splitters have cards stamp (tap.clock: hardware), or another program "
    "(tap.kind: external)"
)
"""What stamps without eBPF."""
PROGRAMS = ("ip", "setpriv")
"""What every run calls on each machine, whatever is measured."""


Forwarders = dict[tuple[str, str, Asked], Findings]
"""What forwarders said, by their names, their options as JSON, and what they are asked for."""


def foresee_machine() -> Findings:
    """What concerns all runs on this machine."""
    found = Findings()
    if os.geteuid() == 0:
        found.ask(require_root)
    else:
        found.notes.append(
            "a run needs root, and only root can ask whether this kernel takes eBPF programs, "
            "sockets and counters, and boots guests: check again with sudo"
        )
    found.notes += Beside.look().sentences
    for program in PROGRAMS:
        found.ask(require_program, program)
    return found


def foresee(
    experiment: Experiment,
    tasks: Collection[Task] = TASKS,
    forwarders: Forwarders | None = None,
) -> Findings:
    """What keeps this machine from having the roles with these tasks in the experiment.

    `forwarders` are those that were asked before, and is added to.
    """
    findings, on_testbed = Findings(), bool(experiment.testbed_cables)
    findings.ask(require_cpus, experiment, tasks)
    if {"dut", "generator"} <= set(tasks):
        note_sharing(experiment, findings)
    findings.ask(require_kernel_clock)
    if not on_testbed:
        findings.ask(require_lab, experiment)
    graph = experiment.graph()
    if "generator" in tasks:
        traffic = experiment.traffic
        GENERATORS[traffic.generator].foresee(traffic, findings)
        if traffic.driver is not None and on_testbed:
            _foresee_handing(graph, traffic.driver, findings)
    for node in reversed(graph.nodes):  # the DuT's first
        for card in graph.cards_of(node.name).values() if node.task in tasks else ():
            try:
                CardState.of(card)
            except TailtapError as error:
                named = by_testbed(error) if experiment.testbed_cables else error
                findings.problems.append(str(named))
    tap = experiment.tap
    if "timestamper" in tasks and tap.external is None and tap.clock != HARDWARE:
        findings.ask(require_programs, "tap", OTHER_TAPS)
    if on_testbed and "timestamper" in tasks:
        _foresee_stamps(experiment, graph, findings)
    _foresee_placement(experiment, graph, tasks, findings)
    if "dut" in tasks:
        _foresee_device(experiment, graph, {} if forwarders is None else forwarders, findings)
    # Nodes that are alike but for their cards lack the same.
    for said in (findings.problems, findings.notes):
        said[:] = dict.fromkeys(said)
    return findings


def _foresee_handing(graph: Graph, driver: PciDriver, findings: Findings) -> None:
    """Whether the cards of generators can be handed over to `driver`."""
    for flow in graph.flows:
        cards = graph.cards_of(flow.generator.node)
        for port in (flow.path[0], flow.path[-1]):
            findings.ask(address_of, cards[port.name], driver=driver)


def _foresee_stamps(experiment: Experiment, graph: Graph, findings: Findings) -> None:
    """Whether there is room for the stamps of a far station, and whether its cards take them."""
    findings.ask(require_room, PLACE, stamps_of(experiment))
    [node] = {flow.ingress.node for flow in graph.flows}
    cards = graph.cards_of(node).values()
    if (recorder := experiment.tap.external) is not None:
        driver = recorder.driver
        if driver is not None:
            for card in cards:
                findings.ask(address_of, card, driver=driver)
        words = fill_in(recorder.command, dict.fromkeys(recorders.PLACEHOLDERS, "tt"))
        findings.ask(require_program, words[0], f"check {recorders.KEYS}.command")
    elif experiment.tap.clock == HARDWARE:
        findings.ask(lambda: require_clocks({card: timestamping(card) for card in cards}))


def _foresee_device(
    experiment: Experiment, graph: Graph, known: Forwarders, findings: Findings
) -> None:
    _foresee_tuning(experiment, findings)
    if experiment.dut.silent is not None:
        findings.ask(SilentLink(experiment.dut.silent, 1).read)
    members = experiment.dut.members
    every = {
        (id(member.dut), len(member.cpus), *graph.cards_of(member.name).values()): (device, member)
        for device, member in zip(experiment.devices(), members, strict=True)
    }
    for (kind, spec), member in every.values():
        programs = [need.program for need in forwarder.FORWARDERS[member.dut.forwarder].needs]
        cards = tuple(graph.cards_of(member.name).values())
        kind.foresee(spec, cards, programs, findings)
        if kind.traits.has_dut:
            findings.add(_foresee_forwarder(member, cards, experiment, known))
    if experiment.traits.has_dut:
        _foresee_counting(
            experiment, {member.dut.forwarder for _, member in every.values()}, findings
        )
    findings.ask(require_memory, experiment.devices())
    findings.notes += experiment.unobserved
    if needs_joined_plugs(experiment):
        findings.notes.append(JOINED)
    if experiment.traits.has_dut and experiment.trace != "none":
        _foresee_trace(experiment, graph, findings)


def needs_joined_plugs(experiment: Experiment) -> bool:
    """Whether nothing is measured but the way between the splitters of a testbed."""
    return not experiment.traits.has_dut and any(
        pair.generator is not None for pair in experiment.testbed_cables
    )


def _foresee_counting(experiment: Experiment, forwarders: set[str], findings: Findings) -> None:
    events = events_of(experiment.counters)
    if events is None:
        return
    if events.by == "group":
        findings.notes += [
            f"counters.by: group: {name} works in the kernel, whose work on packets is no group's: "
            "nothing of it is counted; choose cpu"
            for name in sorted(forwarders)
            if forwarder.FORWARDERS[name].in_kernel
        ]
    known = findings.ask(encodings, events.events) if experiment.testbed_cables else None
    if known is not None:
        foresee_events(events, findings)


def _foresee_trace(experiment: Experiment, graph: Graph, findings: Findings) -> None:
    """What a trace would lack, and where it is kept."""
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


def _foresee_placement(
    experiment: Experiment, graph: Graph, tasks: Collection[Task], findings: Findings
) -> None:
    """Whether the graph can be made here, and which packets cross from one NUMA node to another."""
    if "dut" in tasks:
        foresee_over(graph, findings)
        if any(node.placement.napi == BUSY_POLL for node in graph.nodes):
            findings.ask(require_busy_poll)
    numa = Numa.of(graph.cards)
    if findings.ask(compile_graph, graph, "000000", numa.online, numa, tasks) is None:
        return
    for node in graph.nodes:
        if node.task == "dut" and "dut" in tasks:
            sentences = crossings(node.name, placed(graph, node.name, numa), numa)
            findings.notes += [f"dut.irq: {sentence}" for sentence in sentences]


def _foresee_tuning(experiment: Experiment, findings: Findings) -> None:
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
    known: Forwarders,
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


_BY_DRIVERS = ("xdp",)
"""Forwarders of the kernel whose packets are not received, as drivers pass them on."""


def packets_of(experiment: Experiment) -> int:
    """How many packets are sent, those of all flows."""
    return sum(experiment.traffic_of(flow).packets for flow in experiment.flows)


def is_steered(experiment: Experiment, graph: Graph, numa: Numa) -> bool:
    """Whether packets come to the device's CPUs by function calls of other CPUs alone.

    That is receive packet steering: the kernel forwards on one node without cards, whose softirqs
    are not threads, and nobody sends from its CPUs.
    """
    nodes = [node for node in graph.nodes if node.task == "dut"]
    members = experiment.dut.members
    if len(nodes) != 1 or len(members) != 1 or experiment.traits.own_kernel:
        return False
    [node], kind = nodes, members[0].dut.forwarder
    if kind in _BY_DRIVERS or not forwarder.FORWARDERS[kind].in_kernel or node.placement.threads:
        return False
    where = placed(graph, node.name, numa)
    steered = bool(where.receiving) and all(where.receiving.values())
    return steered and not where.cards and not set(experiment.senders) & set(where.cpus)


def spare_of(experiment: Experiment, available: Sequence[int] | None = None) -> int | None:
    """A CPU on which nobody sends, serves, or loads what is measured."""
    on = os.sched_getaffinity(0) if available is None else available
    neighbours = {cpu for one in experiment.neighbours for cpu in one.options.cpus}
    return spare_cpu(on, {*experiment.senders, *experiment.dut.cpus, *neighbours})
