"""Programs that change what was tuned, or work when nobody asked them to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial

from tailtap.base.errors import MachineError
from tailtap.base.proc import names
from tailtap.host.changes.resource import Resource
from tailtap.host.changes.systemd import DEVICE, RUNNING, STATE, StoppedTimers, properties
from tailtap.host.knobs.knob import Place, fixed, known
from tailtap.host.knobs.tree import Absent, Purpose, Tree, Unreadable

NOBODY = "nobody"


def runs(program: str) -> Place:
    """Whether a program of that name runs, by the names of all processes."""

    def find(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
        running = names(tree.at("/proc")).values()
        return {f"{program} in /proc/*/comm": "runs" if program in running else "does not run"}

    return Place(f"{program} in /proc/*/comm", find)


TIMERS = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dnf-makecache.timer", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "fstrim.timer", "fwupd-refresh.timer", "logrotate.timer", "man-db.timer",
    "mdcheck_start.timer", "mlocate-updatedb.timer", "motd-news.timer", "plocate-updatedb.timer",
    "raid-check.timer", "sysstat-collect.timer", "systemd-tmpfiles-clean.timer",
)  # fmt: skip
"""Of Debian, Ubuntu and Fedora: what reads disks or networks for minutes when its time has come."""


def _timers(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
    """Timers of systemd that start maintenance."""
    if not tree.exists(RUNNING):
        raise Absent("systemd does not run here")
    try:
        found = properties(TIMERS, STATE)
    except MachineError as error:
        raise Unreadable(str(error)) from None
    if not found:
        raise Absent("systemd has none of the usual timers")
    return found


def _stopped(tree: Tree, purpose: Purpose, value: str) -> Sequence[Resource]:
    found = _timers(tree, purpose)
    return [StoppedTimers([unit for unit, state in found.items() if state != value])]


def _open_in(file: str) -> Place:
    """The programs that have a file open, but this one; only root sees those of others."""

    def find(tree: Tree, _purpose: Purpose) -> Mapping[str, str]:
        found: set[str] = set()
        own = str(os.getpid()) if tree.is_live else ""
        for path in tree.glob("/proc/[0-9]*/comm"):
            process = path.split("/")[2]
            with contextlib.suppress(OSError):  # processes come and go
                links = tree.at(f"/proc/{process}/fd").iterdir()
                if process != own and any(str(link.readlink()) == file for link in links):
                    found.add(tree.look(path) or process)
        return {f"{file} in /proc/*/fd": " ".join(sorted(found)) or NOBODY}

    return Place(f"{file} in /proc/*/fd", find)


row = partial(known, group="services")
ROWS = (
    row(
        "maintenance",
        Place(f"systemctl show {TIMERS[0]} and others", _timers, change=_stopped),
        fixed("inactive"),
        "Updates, indexes and rotations of logs begin when their time has come. Until this is put "
        "back none of them begins; what runs already is not stopped.",
        "systemd.timer(5)",
    ),
    row(
        "counting-programs",
        _open_in("anon_inode:[perf_event]"),
        fixed(NOBODY),
        "Counters that overflow raise interrupts that nothing can mask, and programs hang on "
        "tracepoints of every packet. Profilers that run all the time are among them.",
        "perf_event_open(2)",
    ),
    row(
        "wake-up-wishes",
        _open_in(DEVICE),
        fixed(NOBODY),
        "Another program decides how deeply processors sleep, and may let go at any time.",
        "Documentation/power/pm_qos_interface.rst",
    ),
    row(
        "irqbalance",
        runs("irqbalance"),
        fixed("does not run"),
        "It moves interrupts between cores every ten seconds, to the device's cores too unless "
        "they are banned.",
        "irqbalance(1); tuned: profile cpu-partitioning",
    ),
    row(
        "tuned",
        runs("tuned"),
        fixed("does not run"),
        "It sets many of the same values, and sets them again when its profile changes.",
        "tuned issues 518 and 533",
    ),
    row(
        "thermald",
        runs("thermald"),
        fixed("does not run"),
        "It lowers frequencies and makes cores idle before they are too hot.",
        "thermald(8)",
    ),
)
