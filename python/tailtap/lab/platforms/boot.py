"""Kernels by their names in experiments, and whether this machine runs the named one.

- ``rt`` preempts nearly everywhere (CONFIG_PREEMPT_RT).
- ``vanilla`` does not.

Anything else is a version, as ``uname -r`` prints it or the beginning of it, or the path of a
kernel image. Boot parameters are separate: see `boot.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from tailtap.base.errors import MachineError
from tailtap.base.schema import Ports, Strict, check_fields
from tailtap.base.units import list_cpus, mask_cpus, parse_cpus
from tailtap.host.cpu.cpus import FOLDER
from tailtap.host.facts import machine as facts
from tailtap.host.facts.machine import ROOT
from tailtap.host.knobs.line import ISOLATION, listed, offloaded, unknown_to_kernel
from tailtap.host.knobs.tree import Absent, Tree, Unreadable, name_of, words_of
from tailtap.lab.platforms.dut import DutSpec

VANILLA, RT = "vanilla", "rt"
NAMES = (VANILLA, RT)
# The header of an x86 kernel image: a magic number, and where the version string stands;
# Documentation/arch/x86/boot.rst.
_MAGIC_AT, _MAGIC = 0x202, b"HdrS"
_VERSION_AT, _VERSION_BASE, _VERSION_BYTES = 0x20E, 0x200, 128


@dataclass(frozen=True)
class Kernel:
    """The properties of a running kernel that matter for latency."""

    release: str
    version: str
    realtime: bool

    @property
    def kind(self) -> str:
        return RT if self.realtime else VANILLA

    def facts(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


def check_kernel(name: str) -> str:
    """Return `name`. Raises `ValueError` for a name that is no kernel any more."""
    if name == "nohz":
        raise ValueError(
            "nohz is no kernel, but boot parameters: write dut.boot: "
            "'nohz_full={cpus} rcu_nocbs={cpus} isolcpus={cpus}' and leave dut.kernel out"
        )
    return name


def running_kernel(root: Path = ROOT) -> Kernel:
    """The kernel of this machine. `root` stands in for ``/`` in tests."""
    release, version = facts.kernel_release(root), facts.kernel_version(root)
    return Kernel(release, version, facts.is_realtime(root))


def check_host_kernel(wanted: str | None, root: Path = ROOT, key: str = "kernel") -> dict[str, Any]:
    """The facts of this machine's kernel, which is the one `wanted` by a `key` of the DuT.

    Raises `MachineError` that says which runs and how to boot the other when it is not.
    """
    kernel = running_kernel(root)
    told = kernel.facts()
    runs = f"dut.{key}: this machine runs {kernel.release} ({kernel.kind})"
    guest = ", or take dut.platform: vm, which brings its own" if key == "kernel" else ""
    if wanted is None or wanted == kernel.kind:
        return told
    if wanted == RT:
        raise MachineError(
            f"{runs}, not a real-time kernel: boot one, such as that of the Debian package "
            f"linux-image-rt-amd64{guest}"
        )
    if wanted == VANILLA:
        raise MachineError(f"{runs}, not a vanilla one: boot one without PREEMPT_RT")
    version = version_of(wanted, root) if "/" in wanted else wanted
    if not is_release(version, kernel.release):
        raise MachineError(f"{runs}, not {version}: boot that one{guest}")
    return told


def is_release(version: str, release: str) -> bool:
    """Whether `version` is `release` or the beginning of it, up to a dot or a dash."""
    return release == version or release.startswith((f"{version}.", f"{version}-"))


def version_of(image: str, root: Path = ROOT) -> str:
    """The release that the kernel image at this path says it is."""
    try:
        with (root / image.removeprefix("/")).open("rb") as file:
            header = file.read(_VERSION_AT + 2)
            if header[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] != _MAGIC:
                raise MachineError(f"dut.kernel: {image} is no kernel image")
            file.seek(_VERSION_BASE + int.from_bytes(header[_VERSION_AT:], "little"))
            words = file.read(_VERSION_BYTES).split(b"\0")[0].split()
    except OSError as error:
        raise MachineError(f"dut.kernel: cannot read {image}: {error.strerror}") from error
    if not words:
        raise MachineError(f"dut.kernel: {image} does not say which version it is")
    return words[0].decode("ascii", errors="replace")


CPUS = "cpus"
"""The word in braces for the DuT's CPUs, as the kernel that boots numbers them."""
SET_APART = ("isolcpus", "nohz_full", "rcu_nocbs")
"""Parameters that keep work off CPUs: the DuT's are free of it whether or not others are too."""


class Parameter(NamedTuple):
    """One parameter: its name with underscores, as the kernel compares them, and its value."""

    name: str
    value: str | None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        return f'{self.name}="{self.value}"' if " " in self.value else f"{self.name}={self.value}"


@dataclass(frozen=True)
class Boot:
    """A kernel's boot parameters, and what it does because of them."""

    command_line: str
    nohz_full: tuple[int, ...]
    """The CPUs without its timer ticks."""
    isolated: tuple[int, ...]
    """The CPUs without its scheduler."""
    rcu_nocbs: tuple[int, ...] | None = None
    """The CPUs whose RCU callbacks run elsewhere; None where nothing tells."""
    irqaffinity: tuple[int, ...] | None = None
    """The CPUs that new interrupts may go to; None where nothing tells."""
    unknown: tuple[str, ...] = ()
    """The parameters that its log says it does not know."""


def check_boot(text: str) -> str:
    """Return `text`. Raises `ValueError` when it cannot be part of a command line."""
    if text.count('"') % 2:
        raise ValueError(f"a quotation mark is missing in {text!r}")
    check_fields(text, [CPUS])
    return text


def filled_in(text: str, cpus: Sequence[int]) -> str:
    """The parameters of a kernel in which `cpus` are the DuT's."""
    return text.format(**{CPUS: list_cpus(cpus)})


def parameters(text: str) -> list[Parameter]:
    """The parameters of a command line, without the words after ``--``."""
    return [
        Parameter(name_of(word), word.partition("=")[2] if "=" in word else None)
        for word in words_of(text)
    ]


def parameters_of_others(own: str, texts: Iterable[object]) -> frozenset[str]:
    """The names of the parameters in `texts`, those of all runs, that `own`, of one run, lacks."""
    written = [text for text in texts if isinstance(text, str)]
    return frozenset(one.name for text in written for one in parameters(text)) - {
        one.name for one in parameters(own)
    }


def lacking(wanted: str, command_line: str) -> list[Parameter]:
    """The parameters in `wanted` that the command line lacks.

    Lists of CPUs are compared as sets. Of a parameter that is given several times, the last counts.
    """
    asked, said = parameters(wanted), parameters(command_line)
    found = []
    for name in dict.fromkeys(one.name for one in asked):
        ours = [one for one in asked if one.name == name]
        theirs = [one for one in said if one.name == name][-len(ours) :]
        for one, other in itertools.zip_longest(ours, theirs):
            if other is None or not _holds(one, other):
                found.append(one)
    return found


def ineffective(wanted: str, boot: Boot) -> Iterator[tuple[Parameter, str]]:
    """What of `wanted` the kernel says that it does not do, and where it says so, a clause."""
    told = {
        "isolcpus": (boot.isolated, f"its {FOLDER / 'isolated'} says"),
        "nohz_full": (boot.nohz_full, f"its {FOLDER / 'nohz_full'} says"),
        "rcu_nocbs": (boot.rcu_nocbs, "it offloads the RCU callbacks of"),
    }
    for one in parameters(wanted):
        if one.name in boot.unknown:
            yield one, "its kernel does not know that parameter"
            continue
        done, where = told.get(one.name, (None, ""))
        asked = None if done is None or one.value is None else listed(one.value)
        if asked is not None and ISOLATION in asked.flags and asked.cpus - {*(done or ())}:
            yield one, f"{where} {list_cpus(done or ()) or 'no CPU'}"


def require(wanted: str, boot: Boot, who: str, remedy: str, key: str = "boot") -> None:
    """Raises `MachineError` when `who` was not booted with what a `key` of the DuT wants."""
    missing = lacking(wanted, boot.command_line)
    if missing:
        words = " ".join(map(str, missing))
        raise MachineError(f"dut.{key}: {who} was not booted with {words}: {remedy}")
    for one, why in ineffective(wanted, boot):
        raise MachineError(
            f"dut.{key}: {who} was booted with {one}, but {why}: take a kernel that can do it, or "
            + ("spell it as kernels do" if one.name in boot.unknown else "other CPUs")
        )


def require_of_host(
    wanted: str,
    without: Collection[str],
    cpus: Sequence[int],
    root: Path = ROOT,
    key: str = "boot",
) -> dict[str, Any]:
    """The facts of what this machine was booted with, which includes `wanted` for a DuT on `cpus`.

    Parameters called as in `without` are refused: runs of the same experiment have them, and this
    one has not. Raises `MachineError` that says what to change.
    """
    boot = host_boot(root)
    resume = "reboot, and resume the experiment with --resume"
    require(
        filled_in(wanted, cpus),
        boot,
        "this machine",
        f"put that on its kernel's command line (in /etc/default/grub, say), {resume}",
        key,
    )
    others = [one for one in parameters(boot.command_line) if one.name in without]
    if others:
        raise MachineError(
            f"dut.{key}: this machine was booted with {' '.join(map(str, others))}, which other "
            "runs of the experiment ask for and this one does not: take that off its kernel's "
            f"command line, {resume}"
        )
    return asdict(boot)


def host_boot(root: Path = ROOT) -> Boot:
    """What a machine was booted with. `root` stands in for ``/`` in tests."""
    tree = Tree(root)
    interrupts = facts.read(root / "proc/irq/default_smp_affinity")
    return Boot(
        facts.command_line(root) or "",
        cpus_or_none(facts.cpu_set("nohz_full", root) or ""),
        cpus_or_none(facts.cpu_set("isolated", root) or ""),
        _offloaded(tree),
        None if interrupts is None else mask_cpus(interrupts),
        tuple(name.replace("-", "_") for name in unknown_to_kernel(tree)),
    )


def _offloaded(tree: Tree) -> tuple[int, ...] | None:
    try:
        return offloaded(tree)
    except (Absent, Unreadable):
        return None


def cpus_or_none(text: str) -> tuple[int, ...]:
    """The CPUs in the content of a file such as ``nohz_full``, which may name none."""
    # A kernel with CONFIG_NO_HZ_FULL but without nohz_full= prints "(null)".
    return parse_cpus(text) if text[:1].isdigit() else ()


def _holds(one: Parameter, other: Parameter) -> bool:
    """Whether `other`, on a command line, is what `one` asks for."""
    if one.value is None or other.value is None or one == other:
        return one == other
    asked, said = listed(one.value), listed(other.value)
    if asked is None or said is None or asked.flags != said.flags:
        return False
    return asked.cpus <= said.cpus if one.name in SET_APART else asked.cpus == said.cpus


class PortOptions(Strict):
    """Options of a platform whose ports can be network cards."""

    ports: Ports | None = Field(
        default=None,
        description="Two network cards of this machine that are the DuT's ports: before it and "
        "behind it. By default the ports are virtual links.",
        examples=[["enp1s0f0", "enp1s0f1"]],
    )


class KernelOptions(PortOptions):
    """Options of a platform that depends on the kernel and on what it was booted with."""

    kernel: Annotated[str, AfterValidator(check_kernel)] | None = Field(
        default=None,
        description="The kernel that the DuT runs: vanilla, rt (real-time), a version as "
        "`uname -r` prints it or the beginning of it, or the absolute path of a "
        "kernel image. A virtual machine and a testbed's host "
        "(docs/howto/testbed.md) boot it; elsewhere a run on another kernel "
        "fails. By default any will do.",
        examples=["rt", "6.1", "/boot/vmlinuz-6.1.0-37-rt-amd64"],
    )
    boot: Annotated[str, AfterValidator(check_boot)] = Field(
        default="",
        description="Parameters of that kernel's command line; {cpus} stands for the DuT's CPUs. A "
        "virtual machine and a testbed's host boot with them; elsewhere the run fails if "
        "this machine was booted without them, or with those of other runs of the "
        "experiment.",
        examples=["nohz_full={cpus} isolcpus={cpus}"],
    )


def require_boot_of_host(spec: DutSpec[KernelOptions], key: str = "boot") -> dict[str, Any]:
    """The facts of what this machine was booted with, as the option `key` asks.

    Raises `MachineError` when it will not do.
    """
    own = getattr(spec.options, key)
    without = parameters_of_others(own, spec.varied.get(key, ()))
    return require_of_host(own, without, spec.cpus, key=key)
