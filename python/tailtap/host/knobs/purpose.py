"""What a machine is to be ready for: its role, the device's cores, and all other cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tailtap.base.errors import InputError
from tailtap.base.suggest import did_you_mean
from tailtap.base.units import list_cpus, parse_cpus, ranges
from tailtap.host.facts import machine as facts
from tailtap.host.knobs.tree import Absent, Tree

Role = Literal["bare-metal", "container", "vm-host", "vm-guest", "generator"]
ROLES: tuple[Role, ...] = get_args(Role)
HOST: frozenset[Role] = frozenset(("bare-metal", "container", "vm-host"))
"""Roles of a machine that devices run on, and that is none of them itself."""
PHYSICAL: frozenset[Role] = HOST | {"generator"}
EVERY: frozenset[Role] = frozenset(ROLES)

INTERFACE = "--interface"
"""The option that names interfaces, as errors do."""


@dataclass(frozen=True)
class Purpose:
    """What for: `of` makes one from options, and checks it against the machine."""

    role: Role
    cpus: tuple[int, ...]
    """The device's cores, or the generator's. Empty on a machine with a single one."""
    housekeeping: tuple[int, ...]
    """The cores for interrupts, kernel threads and everybody else."""
    interfaces: tuple[str, ...] = ()
    """The network interfaces that packets come and go by."""

    @property
    def isolated(self) -> str:
        """The device's cores as the kernel writes them. Raises `Absent` without any."""
        if not self.cpus:
            raise Absent("this machine has one CPU, so that nothing can be kept off the device's")
        return ranges(self.cpus)

    @property
    def others(self) -> str:
        """The housekeeping cores as the kernel writes them. Raises `Absent` without a device's."""
        _ = self.isolated
        return ranges(self.housekeeping)

    def without(self, interfaces: set[str]) -> Purpose:
        """The same, for other interfaces than these."""
        return replace(self, interfaces=tuple(sorted(set(self.interfaces) - interfaces)))

    @classmethod
    def of(
        cls,
        tree: Tree,
        role: str | None = None,
        cpus: str | Sequence[int] | None = None,
        housekeeping: str | Sequence[int] | None = None,
        interfaces: Sequence[str] | None = None,
    ) -> Purpose:
        """The purpose that options describe, the rest from what the machine says.

        The role is that of a guest in a virtual machine, else bare metal. The device's cores are
        those that the kernel isolates, else all but the first core. Interfaces are those with a
        device behind them. Raises `InputError` for cores or interfaces that the machine does not
        have, for cores that are both, and when no housekeeping core is left.
        """
        online = tree.online or (0,)
        given = None if cpus is None else _known(cpus, online, "--cpus")
        rest = None if housekeeping is None else _known(housekeeping, online, "--housekeeping")
        if given is not None and rest is not None and (both := set(given) & set(rest)):
            raise InputError(f"--cpus and --housekeeping both have CPU {list_cpus(both)}: choose")
        if given is None:
            given = _default_cpus(tree, online, rest or ())
        if rest is None:
            rest = tuple(cpu for cpu in online if cpu not in given)
        if not rest:
            raise InputError(
                f"--cpus {ranges(given)} leaves no housekeeping core of "
                f"{ranges(online)}: leave one out"
            )
        return cls(_role(tree, role), given, rest, _interfaces(tree, interfaces))


def _role(tree: Tree, role: str | None) -> Role:
    if role is None:
        return "vm-guest" if facts.under_hypervisor(tree.root) else "bare-metal"
    if role not in ROLES:
        raise InputError(f"there is no role {role!r}: {did_you_mean(role, ROLES)}").at("--role")
    return role


def _known(cpus: str | Sequence[int], online: tuple[int, ...], option: str) -> tuple[int, ...]:
    try:
        given = parse_cpus(cpus) if isinstance(cpus, str) else tuple(cpus)
    except ValueError:
        raise InputError(f"{option} {cpus}: this is no list of CPUs, such as 2-5 or 1,3") from None
    if not given:
        raise InputError(f"{option} names no CPU: leave it out, or name one of {ranges(online)}")
    if missing := set(given) - set(online):
        raise InputError(
            f"this machine has no CPU {ranges(tuple(missing))}: it has {ranges(online)}"
        ).at(option)
    return tuple(sorted(set(given)))


def _default_cpus(tree: Tree, online: tuple[int, ...], taken: tuple[int, ...]) -> tuple[int, ...]:
    isolated = set(tree.cpus("/sys/devices/system/cpu/isolated")) & set(online)
    if isolated and isolated != set(online):
        return tuple(sorted(isolated - set(taken)))
    if taken:
        return tuple(cpu for cpu in online if cpu not in taken)
    first = {online[0]}
    folder = f"/sys/devices/system/cpu/cpu{online[0]}/topology"
    first |= set(tree.cpus(f"{folder}/thread_siblings_list"))
    return tuple(cpu for cpu in online if cpu not in first)


def _interfaces(tree: Tree, given: Sequence[str] | None) -> tuple[str, ...]:
    there = {path.rpartition("/")[2] for path in tree.glob("/sys/class/net/*")}
    if given is None:
        return tuple(sorted(path.name for path in facts.physical_nics(tree.root)))
    for name in given:
        if name not in there:
            raise InputError(f"there is no {name!r}: {did_you_mean(name, there)}").at(INTERFACE)
    return tuple(dict.fromkeys(given))
