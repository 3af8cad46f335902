"""What an experiment asks of this machine whatever its platforms and forwarders are."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.experiment.line import ENDS, HOPS, QUEUES
from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.instruments.taps import STAMP_BYTES
from tailtap.instruments.taps.model import HARDWARE, PASSIVE
from tailtap.machine.cpus import FOLDER, is_offline, usable

SIDES = 2


def require_cpus(plan: Sequence[PlannedRun]) -> None:
    """Raises `MachineError` when the experiment asks for a CPU that is not there or is off."""
    have = usable()
    for run in plan:
        traffic = run.experiment.traffic
        wanted = [("traffic.cpu", traffic.cpu), ("traffic.reverse_cpu", traffic.reversed().cpu)]
        wanted += [("dut.flows", cpu) for cpu in run.experiment.senders]
        wanted += [("dut.cpus", cpu) for cpu in run.experiment.dut.cpus]
        for one in run.experiment.neighbours:
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


def require_clock(plan: Sequence[PlannedRun]) -> None:
    """Raises `MachineError` when the experiment asks for stamps that the lab cannot take."""
    if any(run.experiment.tap.kind == PASSIVE for run in plan):
        raise MachineError(
            "tap.kind: passive: this machine has no cables with splitters: leave it out, or say "
            "where they are with --testbed (docs/testbed.md)"
        )
    if any(run.experiment.tap.clock == HARDWARE for run in plan):
        raise MachineError(
            "tap.clock: hardware: the lab's tap before the DuT is on a veth pair, which stamps in "
            "software only: leave it out, or measure on a testbed with splitters (docs/hardware.md)"
        )


def stamp_bytes(plan: Sequence[PlannedRun]) -> int:
    """About how many bytes the stamps of these runs take, those of all flows."""
    return STAMP_BYTES * sum(
        one.experiment.traffic_of(one.flow).packets * _taps(one.experiment, one.flow)
        for run in plan
        for one in run.group
    )


def _taps(experiment: Experiment, flow: str) -> int:
    """How often a packet of a flow is stamped."""
    dut = experiment.dut
    nodes = len(dut.paths[flow] if dut.is_network else dut.members)
    return SIDES + max(0, {ENDS: 0, HOPS: nodes - 1, QUEUES: 2 * nodes - 1}[dut.taps])


def require_room(out: Path, pending: Sequence[PlannedRun]) -> None:
    """Raises `MachineError` when the stamps of the runs to come cannot fit on the disk."""
    needed = stamp_bytes(pending)
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise MachineError(
            f"{out}: the stamps of all runs to come need {needed / 1e6:.1f} MB and the disk "
            f"has {free / 1e6:.1f} MB: make room or choose another --out"
        )
