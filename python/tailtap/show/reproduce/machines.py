"""In what the machine that something was measured on differs from this one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_size
from tailtap.records.machine import Environment
from tailtap.records.site import Difference

OF_THE_DISK = ("root", "resume", "BOOT_IMAGE", "initrd", "ip", "rd.luks", "cryptdevice", "UUID")
"""Parameters of the kernel that say where its files are."""
_VERSIONS = "version of "


def differences(there: Sequence[Run], here: Sequence[Run]) -> list[Difference]:
    """What is not the same on both, in the order of `_facts`; what nobody says is left out."""
    ours = _together(here)
    found = []
    for what, values in _together(there).items():
        mine = ours.get(what, frozenset())
        if values and mine and values != mine:
            told = (" or ".join(sorted(one)) for one in (values, mine))
            machine = not what.startswith(_VERSIONS)
            found.append(Difference(what=what, there=next(told), here=next(told), machine=machine))
    return found


def _together(runs: Sequence[Run]) -> Mapping[str, frozenset[str]]:
    """What the runs say of each fact."""
    found: dict[str, frozenset[str]] = {}
    for run in runs:
        for what, value in _facts(run.environment):
            found[what] = found.get(what, frozenset()) | ({value} if value else set())
    return found


def _facts(machine: Environment) -> Iterator[tuple[str, str]]:
    """What of a machine decides how late packets are, and by which versions it was measured."""
    cpu, kernel = machine.cpu, machine.kernel
    governors = sorted({str(one) for one in (cpu.governors or {}).values()})
    yield "processor", cpu.model or ""
    yield "microcode", cpu.microcode or ""
    yield "CPUs online", cpu.online or ""
    yield "SMT", cpu.smt or ""
    yield "governor", ", ".join(governors)
    yield "hypervisor", "" if cpu.hypervisor is None else "yes" if cpu.hypervisor else "no"
    yield "isolated CPUs", _or_none(cpu.isolated)
    yield "CPUs without a timer", _or_none(cpu.nohz_full)
    yield "mitigations", ", ".join(f"{k}: {v}" for k, v in sorted((cpu.mitigations or {}).items()))
    yield "kernel", kernel.release or ""
    yield "preemption", kernel.preemption or ""
    yield "command line", _line(kernel.command_line)
    yield "clock", machine.clocksource or ""
    yield "memory", format_size(machine.memory) if machine.memory else ""
    yield "control groups", ", ".join(map(str, machine.cgroup_versions or ()))
    yield "cards", ", ".join(sorted({f"{one.driver} {one.firmware or ''}".strip()
                                     for one in machine.nics if one.driver}))  # fmt: skip
    for program, version in sorted(machine.versions.items()):
        yield f"{_VERSIONS}{program}", version or ""


def _or_none(cpus: str | None) -> str:
    """A set of CPUs, which may be empty."""
    return "" if cpus is None else cpus or "none"


def _line(line: str | None) -> str:
    """A kernel's command line without what says where its files are."""
    words = (line or "").split()
    return " ".join(sorted(word for word in words if word.partition("=")[0] not in OF_THE_DISK))
