"""Boot parameters: what `dut.boot` asks of a kernel's command line, and what a command line says.

They are no part of the kernel (`kernel.py`): any kernel can be booted with them. A virtual machine
boots with what it is asked for; this machine was booted before, so that it can only be checked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tailtap.errors import MachineError
from tailtap.host.cpus import FOLDER, list_cpus, parse_cpus
from tailtap.template import check_fields

CPUS = "cpus"
"""What stands in braces for the DuT's CPUs, as the kernel that boots numbers them."""
SET_APART = ("isolcpus", "nohz_full", "rcu_nocbs")
"""Parameters that keep work off CPUs: the DuT's are free of it whether or not others are too."""
ISOLATION = "domain"
"""What `isolcpus` does with CPUs when it does not say: the scheduler keeps off them."""
ROOT = Path("/")


class Parameter(NamedTuple):
    """One parameter: its name with underscores, as the kernel compares them, and its value."""

    name: str
    value: str | None

    def __str__(self) -> str:
        """The parameter as a command line has it."""
        if self.value is None:
            return self.name
        return f'{self.name}="{self.value}"' if " " in self.value else f"{self.name}={self.value}"


class _Cpus(NamedTuple):
    flags: frozenset[str]
    cpus: frozenset[int]


@dataclass(frozen=True)
class Boot:
    """What a kernel was booted with, and which CPUs it then spares its timer and its scheduler."""

    command_line: str
    nohz_full: tuple[int, ...]
    isolated: tuple[int, ...]

    def facts(self) -> dict[str, Any]:
        """The boot parameters in ``run.json``."""
        return asdict(self)


def check_boot(text: str) -> str:
    """`text` as it is. Raises `ValueError` when it is no part of a command line."""
    if text.count('"') % 2:
        raise ValueError(f"a quotation mark is missing in {text!r}")
    check_fields(text, [CPUS])
    return text


def filled_in(text: str, cpus: Sequence[int]) -> str:
    """The parameters of a kernel in which `cpus` are the DuT's."""
    return text.format(**{CPUS: list_cpus(cpus)})


def parameters(text: str) -> list[Parameter]:
    """The parameters of a command line; what stands behind ``--`` is none."""
    # Documentation/admin-guide/kernel-parameters.rst: quotation marks keep spaces together, and
    # dashes in names are underscores.
    words = (word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*")+', text))
    found = []
    for word in itertools.takewhile(lambda word: word != "--", words):
        name, equals, value = word.partition("=")
        found.append(Parameter(name.replace("-", "_"), value if equals else None))
    return found


def parameter_names(texts: Collection[str]) -> frozenset[str]:
    """The names of all parameters in these texts."""
    return frozenset(one.name for text in texts for one in parameters(text))


def lacking(wanted: str, command_line: str) -> list[Parameter]:
    """What of `wanted` the command line does not say.

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
    """What of `wanted` the kernel says that it does not do, and the file in which it says so."""
    files = {"nohz_full": boot.nohz_full, "isolcpus": boot.isolated}
    for one in parameters(wanted):
        asked = None if one.name not in files or one.value is None else _cpus(one.value)
        if asked is not None and ISOLATION in asked.flags and asked.cpus - {*files[one.name]}:
            yield one, "isolated" if one.name == "isolcpus" else one.name


def require(wanted: str, boot: Boot, who: str, remedy: str) -> None:
    """Raises `MachineError` when `who` was not booted with `wanted`, and says the `remedy`."""
    missing = lacking(wanted, boot.command_line)
    if missing:
        words = " ".join(map(str, missing))
        raise MachineError(f"dut.boot: {who} was not booted with {words}: {remedy}")
    for one, file in ineffective(wanted, boot):
        cpus = list_cpus(boot.isolated if file == "isolated" else boot.nohz_full)
        raise MachineError(
            f"dut.boot: {who} was booted with {one}, but its {FOLDER / file} says "
            f"{cpus or 'no CPU'}: take a kernel that can do it, or other CPUs"
        )


def require_of_host(
    wanted: str, without: Collection[str], cpus: Sequence[int], root: Path = ROOT
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
    )
    others = [one for one in parameters(boot.command_line) if one.name in without]
    if others:
        raise MachineError(
            f"dut.boot: this machine was booted with {' '.join(map(str, others))}, which other "
            "runs of the experiment ask for and this one does not: take that off its kernel's "
            f"command line, {resume}"
        )
    return boot.facts()


def host_boot(root: Path = ROOT) -> Boot:
    """What this machine was booted with. `root` stands in for ``/`` in tests."""
    cpus = root / FOLDER.relative_to("/")
    return Boot(
        _read(root / "proc/cmdline"),
        cpus_or_none(_read(cpus / "nohz_full")),
        cpus_or_none(_read(cpus / "isolated")),
    )


def cpus_or_none(text: str) -> tuple[int, ...]:
    """The CPUs in the content of a file such as ``nohz_full``, which may name none."""
    # A kernel with CONFIG_NO_HZ_FULL but without nohz_full= prints "(null)".
    return parse_cpus(text) if text[:1].isdigit() else ()


def _holds(one: Parameter, other: Parameter) -> bool:
    """Whether `other`, on a command line, is what `one` asks for."""
    if one.value is None or other.value is None or one == other:
        return one == other
    asked, said = _cpus(one.value), _cpus(other.value)
    if asked is None or said is None or asked.flags != said.flags:
        return False
    return asked.cpus <= said.cpus if one.name in SET_APART else asked.cpus == said.cpus


def _cpus(value: str) -> _Cpus | None:
    """The CPUs in a value such as ``1-3,5`` or ``managed_irq,domain,1``; None when it is no list
    of them.
    """
    words = value.split(",")
    flags = list(itertools.takewhile(lambda word: not word[:1].isdigit(), words))
    try:
        cpus = parse_cpus(",".join(words[len(flags) :]))
    except ValueError:  # strides and groups: 0-31:1/2
        return None
    return _Cpus(frozenset(flags) or frozenset({ISOLATION}), frozenset(cpus)) if cpus else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
