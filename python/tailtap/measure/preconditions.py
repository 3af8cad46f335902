"""What an experiment asks of this machine whatever its platforms and forwarders are, and what else
of tailtap is on it: measurements under way, and what killed ones left.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from tailtap.base.errors import Findings, MachineError, NotWritten
from tailtap.base.units import ranges
from tailtap.experiment.line import ENDS, HOPS, QUEUES
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.experiment.reading import CheckedExperiment
from tailtap.host.cpu.cpus import FOLDER, is_offline, usable
from tailtap.host.facts.timekeeping import require_kernel_clock
from tailtap.lab.instruments.events import UnknownEvent, encodings, events_of
from tailtap.lab.instruments.taps.inline import slot_of
from tailtap.lab.instruments.taps.kinds import EXTERNAL, HARDWARE, PASSIVE, STAMP_BYTES
from tailtap.lab.topology.graph import TASKS, Task

SIDES = 2


def require_cpus(experiment: Experiment, tasks: Collection[Task] = TASKS) -> None:
    """Raises `MachineError` for a CPU that is not there or off, and a DuT without its own.

    Those of the roles with these tasks are to be here.
    """
    have, wanted = usable(), list[tuple[str, int]]()
    if "generator" in tasks:
        traffic = experiment.traffic
        key = "traffic.cpu" if traffic.cpus is None else "traffic.cpus"
        wanted += [(key, cpu) for cpu in traffic.senders]
        wanted += [("traffic.reverse_cpu", cpu) for cpu in traffic.reversed().senders]
        wanted += [("dut.flows", cpu) for cpu in experiment.senders]
    if "dut" in tasks:
        wanted += [("dut.cpus", cpu) for cpu in experiment.dut.cpus]
        for one in experiment.neighbours:
            wanted += [(f"dut.neighbours.{one.name}", cpu) for cpu in one.options.cpus]
    for key, cpu in wanted:
        if cpu in have:
            continue
        choice = ", ".join(str(number) for number in sorted(have))
        if is_offline(cpu):
            raise MachineError(
                f"CPU {cpu} for {key} is offline: `echo 1 > {FOLDER}/cpu{cpu}/online`, or "
                f"choose from {choice}"
            )
        raise MachineError(f"there is no CPU {cpu} here for {key}: choose from {choice}")
    if {"dut", "generator"} <= set(tasks):
        require_apart(experiment, have)


def require_events(checked: CheckedExperiment) -> None:
    """Raises `InputError`, with the line, for an event that nothing here counts; `MachineError`
    where nobody can tell.
    """
    events = events_of(checked.combinations[0][1].counters)
    if events is None or not any(one.traits.has_dut for _, one in checked.combinations):
        return
    try:
        encodings(events.events)
    except UnknownEvent as error:
        raise checked.document.wrong(
            ("counters", "events", error.position), str(error.reason)
        ) from error


def shared_cpus(experiment: Experiment) -> tuple[set[int], set[int]]:
    """The CPUs that generators and the DuT share, and those that the DuT has for itself."""
    dut = experiment.dut
    if not experiment.traits.has_dut:
        return set(), set()
    working = {*dut.cpus, *(cpu for member in dut.members for cpu in member.cpus)}
    if not isinstance(dut.irq, str):
        working |= set(dut.irq)
    senders = set(experiment.senders)
    return working & senders, working - senders


def require_apart(experiment: Experiment, have: set[int]) -> None:
    """Raises `MachineError` when the DuT has no CPU of its own although there is one for it."""
    shared, own = shared_cpus(experiment)
    if shared and not own and have - set(experiment.senders):
        others = ranges(have - set(experiment.senders))
        raise MachineError(
            f"generator and DuT share CPU {ranges(shared)}, so the latency would be that of the "
            f"generator's own work: give dut.cpus another one ({others}), or change traffic.cpu"
        )


def note_sharing(experiment: Experiment, findings: Findings) -> None:
    """Say which CPUs the DuT shares with a generator, where it has others as well."""
    shared, own = shared_cpus(experiment)
    if shared and own:
        findings.notes.append(
            f"generator and DuT share CPU {ranges(shared)}: the latency includes the generator's "
            "work; give them different CPUs with traffic.cpu, dut.cpus and dut.irq"
        )


def require_here(plan: Sequence[PlannedRun]) -> None:
    """Raises `MachineError` for CPUs and stamps that this machine's lab cannot have."""
    for run in plan:
        require_cpus(run.experiment)
    require_kernel_clock()
    for run in plan:
        require_lab(run.experiment)


def require_lab(experiment: Experiment) -> None:
    """Raises `MachineError` when the experiment asks for stamps, or for functions and generators
    of cards, that the lab on this machine has not.
    """
    if experiment.dut.functions and experiment.traits.has_dut and not experiment.cables():
        raise MachineError(
            "dut.functions: links of the lab have no virtual functions: name network cards with "
            "dut.ports and tap.ports, measure on a testbed, --testbed, or leave it out "
            "(docs/howto/virtual-functions.md)"
        )
    if (driver := experiment.traffic.driver) is not None:
        raise MachineError(
            f"traffic.external.driver: {driver}: the lab's generator sends into a link, not a "
            "card: leave it out, or measure on a testbed with splitters, --testbed "
            "(docs/howto/testbed.md)"
        )
    if experiment.tap.kind in (PASSIVE, EXTERNAL):
        raise MachineError(
            f"tap.kind: {experiment.tap.kind}: this machine has no cables with splitters: "
            "leave it out, or say where they are with --testbed (docs/howto/testbed.md)"
        )
    if experiment.tap.clock == HARDWARE:
        raise MachineError(
            "tap.clock: hardware: the lab's tap before the DuT is on a veth pair, which stamps in "
            "software only: leave it out, or measure on a testbed with splitters "
            "(docs/howto/hardware.md)"
        )


def stamp_bytes(plan: Sequence[PlannedRun]) -> int:
    """About how many bytes the stamps of these runs take, those of all flows."""
    return sum(stamps_of(run.experiment) for run in plan)


def room_bytes(plan: Sequence[PlannedRun]) -> int:
    """How many of these bytes there are at once: of runs that keep no stamps those of one."""
    gone = [run for run in plan if not run.experiment.keeps_stamps]
    kept = [run for run in plan if run.experiment.keeps_stamps]
    return stamp_bytes(kept) + max((stamps_of(run.experiment) for run in gone), default=0)


def stamps_of(experiment: Experiment) -> int:
    """About how many bytes the stamps of one measurement take, those of all flows."""
    return STAMP_BYTES * sum(
        experiment.traffic_of(flow).packets * _taps(experiment, flow) * slot_of(experiment.snap)
        for flow in experiment.flows
    )


def _taps(experiment: Experiment, flow: str) -> int:
    """How often a packet of a flow is stamped."""
    dut = experiment.dut
    nodes = len(dut.paths[flow] if dut.is_network else dut.members)
    return SIDES + max(0, {ENDS: 0, HOPS: nodes - 1, QUEUES: 2 * nodes - 1}[dut.taps])


def free_bytes(out: Path) -> int:
    """How many bytes are free where `out` is or will be."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def require_room_of(out: Path, plan: Sequence[PlannedRun]) -> None:
    """Raises `NotWritten` when the stamps of these runs cannot fit on the disk."""
    require_room(out, room_bytes(plan), max((stamps_of(r.experiment) for r in plan), default=0))


def require_room(out: Path, needed: int, largest: int | None = None) -> None:
    """Raises `NotWritten` when so many bytes of stamps cannot fit on the disk.

    The largest run has `largest` of them, if that is known.
    """
    free = free_bytes(out)
    if needed > free:
        fits = largest is not None and largest <= free
        raise NotWritten(
            f"the stamps of all runs to come need {needed / 1e6:.1f} MB and the disk has "
            f"{free / 1e6:.1f} MB",
            place=str(out),
            remedy="make room" + ", set keep: [evaluation, worst]" * fits,
        )
