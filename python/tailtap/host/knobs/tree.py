"""What knobs are judged by: a machine's files, this one's or a recorded tree's, and its purpose.

A recorded tree is a folder with ``proc`` and ``sys`` in it, and with ``dev/kmsg`` when it has the
kernel's log. A purpose is its role, the device's cores, and all other cores. Nothing here changes
anything.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from tailtap.base.errors import InputError, did_you_mean
from tailtap.base.units import list_cpus, parse_cpus, ranges
from tailtap.host.cpu.cpus import cpus_in
from tailtap.host.facts import machine as facts

_LOG_RECORD = 8192
"""The longest record of the kernel's log; Documentation/ABI/testing/dev-kmsg."""


class Absent(Exception):
    """A knob does not apply to this machine or purpose; the message is the reason, a clause."""


class Unreadable(Exception):
    """A knob cannot be judged here; the message is the reason, a clause."""


@dataclass(frozen=True)
class Tree:
    """The machine whose files are below `root`. Paths are absolute, as the machine sees them."""

    root: Path = Path("/")

    @property
    def is_live(self) -> bool:
        return self.root == Path("/")

    def at(self, path: str) -> Path:
        """Where the file `path` of the machine is."""
        return self.root / path.lstrip("/")

    def exists(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return self.at(path).exists()
        return False

    def glob(self, pattern: str) -> list[str]:
        """The paths that match, numbers in their order.

        What goes while it is looked at, such as a control group, is not there: `Path.glob` fails.
        """
        words = pattern.lstrip("/")
        found = glob.iglob(words, root_dir=self.root, recursive=True)  # noqa: PTH207
        return sorted((f"/{path}" for path in found), key=_natural)

    def closed(self, path: str) -> str | None:
        """The folder on the way to `path` that this user may not look into, such as debugfs."""
        for folder in reversed(Path(path).parents):
            place = self.at(str(folder))
            with contextlib.suppress(OSError):
                if place.is_dir() and not os.access(place, os.X_OK):
                    return str(folder)
        return None

    def text(self, path: str) -> str:
        """The content of a file, without the newline at its end.

        Raises `Absent` when there is no such file, `Unreadable` when it cannot be read.
        """
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(f"there is no {path}") from None
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            raise Unreadable(f"{path} cannot be read: {reason}") from None

    def look(self, path: str) -> str | None:
        """The content of a file; None when it is missing, unreadable or empty."""
        return facts.read(self.at(path))

    @property
    def words(self) -> list[str]:
        """`words_of` its command line. Raises `Absent` or `Unreadable` without one."""
        return words_of(self.text("/proc/cmdline"))

    def word(self, name: str) -> list[str]:
        """The values of a parameter of the command line, in order; "" for one without a value."""
        return [word.partition("=")[2] for word in self.words if name_of(word) == name_of(name)]

    @property
    def online(self) -> tuple[int, ...]:
        """The CPUs that are switched on; empty when the machine does not say."""
        return self.cpus("/sys/devices/system/cpu/online")

    def cpus(self, path: str) -> tuple[int, ...]:
        """The CPUs in a list of the kernel's; empty when there is none."""
        return cpus_in(self.at(path))

    def config(self, option: str) -> bool | None:
        """Whether the kernel was built with ``CONFIG_`` `option`; None when nothing tells."""
        text = None
        with contextlib.suppress(OSError):
            text = gzip.decompress(self.at("/proc/config.gz").read_bytes()).decode("utf-8")
        text = text or self.look(f"/boot/config-{facts.kernel_release(self.root)}")
        if text is None:
            return None
        return re.search(rf"^CONFIG_{option}=[ym]$", text, re.MULTILINE) is not None

    def messages(self) -> list[str]:
        """The kernel's log, oldest line first. Raises `Unreadable` when it may not be read."""
        try:
            log = os.open(self.at("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise Unreadable(f"the kernel's log cannot be read: {error.strerror}") from None
        try:
            text = _all_records(log)
        finally:
            os.close(log)
        lines = (line.partition(";") for line in text.splitlines() if not line.startswith(" "))
        return [message for _, separator, message in lines if separator]

    def default_route(self) -> set[str]:
        """The interfaces by which this machine reaches others; never to be disturbed."""
        found = set()
        for line in (self.look("/proc/net/route") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[1] == fields[7] == "00000000":
                found.add(fields[0])
        for line in (self.look("/proc/net/ipv6_route") or "").splitlines():
            fields = line.split()
            if len(fields) > 9 and int(fields[0], 16) == int(fields[1], 16) == 0:
                found.add(fields[-1])
        return found - {"lo"}


def _all_records(log: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(log, _LOG_RECORD)
        except BlockingIOError:  # no more of them
            break
        except BrokenPipeError:  # records were overwritten meanwhile
            continue
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode("utf-8", errors="replace")


def _natural(path: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


Role = Literal["bare-metal", "container", "vm-host", "vm-guest", "generator"]
ROLES: tuple[Role, ...] = get_args(Role)
HOST: frozenset[Role] = frozenset(("bare-metal", "container", "vm-host"))
"""Roles of a machine that devices run on, and that is none of them itself."""
PHYSICAL: frozenset[Role] = HOST | {"generator"}
EVERY: frozenset[Role] = frozenset(ROLES)

INTERFACE = "--interface"
"""The option that names interfaces, as errors do."""


def words_of(line: str) -> list[str]:
    """The kernel's words of a command line, in order; what is behind ``--`` is init's.

    Quotation marks keep spaces together (Documentation/admin-guide/kernel-parameters.rst).
    """
    words = [word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*")+', line)]
    return words[: words.index("--")] if "--" in words else words


def name_of(word: str) -> str:
    """The parameter of a word, as the kernel compares it: dashes are underscores."""
    return word.partition("=")[0].replace("-", "_")


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
