"""What runs ask of the boot of the DuT's machine, and who boots it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from tailtap.experiment.model import Experiment
from tailtap.experiment.plan import PlannedRun
from tailtap.host.containers import cgroups
from tailtap.lab.platforms import boot
from tailtap.lab.platforms.boot import KernelOptions
from tailtap.lab.platforms.vm import HOST_BOOT, HOST_KERNEL, VmOptions
from tailtap.records.machine import Booted

HOST_OPTIONS = (HOST_KERNEL, HOST_BOOT)


@dataclass(frozen=True)
class Wanted:
    """What a run asks of the machine's boot."""

    kernel: str | None
    """As `dut.kernel`, or a guest's `dut.host_kernel`, names it; None where any will do."""
    words: str
    """The parameters of `dut.boot` or `dut.host_boot`, with the DuT's CPUs filled in, and those of
    `dut.cgroup`."""


class Boots(Protocol):
    """Boots the DuT's machine."""

    def foresee(self, wanted: Wanted) -> str:
        """Which kernel it would be booted with, as a sentence; nothing is booted.

        Raises `TailtapError` when it has none that is wanted, or cannot be asked.
        """
        ...

    def bring(self, wanted: Wanted | None, repeat: int) -> Booted | None:
        """Have the machine be booted so, anew in each `repeat`; None where nothing is asked.

        Returns what ``run.json`` says of it, and raises `MachineError` when it cannot be had. What
        failed is not tried again for a run that wants the same in the same repeat.
        """
        ...


def wanted_of(experiment: Experiment) -> Wanted | None:
    """What the experiment asks of the machine; None where its DuT runs no kernel of the machine's
    by name.
    """
    settings, cpus = experiment.dut.settings, experiment.dut.cpus
    if isinstance(settings, VmOptions):
        host = Wanted(settings.host_kernel, boot.filled_in(settings.host_boot, cpus).strip())
        varied = {*experiment.vary, *(experiment.cases[0] if experiment.cases else ())}
        asked = host != Wanted(None, "") or any(f"dut.{key}" in varied for key in HOST_OPTIONS)
        return host if asked else None
    if not isinstance(settings, KernelOptions) or experiment.traits.own_kernel:
        return None
    words = boot.filled_in(settings.boot, cpus)
    if (version := getattr(settings, "cgroup", None)) is not None:
        words += f" {cgroups.BOOT[version]}"
    return Wanted(settings.kernel, words.strip())


def asks(plan: Iterable[PlannedRun]) -> bool:
    """Whether any run asks for a kernel or for parameters of one."""
    wanted = [wanted_of(run.experiment) for run in plan]
    return any(one is not None and one != Wanted(None, "") for one in wanted)


def boots_of(plan: Collection[PlannedRun]) -> int:
    """How often the DuT's machine is booted for these runs by whoever boots it."""
    if not asks(plan):
        return 0
    wanted = {(run.repeat, wanted_of(run.experiment)) for run in plan}
    return sum(one is not None for _, one in wanted)


def grouped(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """The runs, repeat by repeat, with those of one boot together.

    Boots are in the order in which the plan has them first, and those that ask for nothing join the
    boot before them.
    """
    found: list[PlannedRun] = []
    by_repeat: dict[int, dict[Wanted | None, list[PlannedRun]]] = {}
    for run in runs:
        groups = by_repeat.setdefault(run.repeat, {})
        groups.setdefault(wanted_of(run.experiment), []).append(run)
    for groups in by_repeat.values():
        for group in groups.values():
            found += group
    return found
