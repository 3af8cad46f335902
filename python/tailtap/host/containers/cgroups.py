"""Control groups: which hierarchy has which controller, and the groups in all of them.

A controller belongs to one hierarchy at a time: to its own of version 1, or to the unified one of
version 2. Both versions can be mounted together; cgroups(7).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.base.files import read_text
from tailtap.host.changes import systemd

ROOT = Path("/")
DEATH_SECONDS = 5.0
"""How long killed processes may take to leave a group."""
HIERARCHY = "systemd.unified_cgroup_hierarchy"
"""The parameter of the kernel's command line by which systemd chooses the version."""
BOOT = {1: f"{HIERARCHY}=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1", 2: f"{HIERARCHY}=1"}
"""What a machine is booted with for each version. systemd 256 and 257 have version 1 for whoever
insists on it, and later ones have none."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of groups. Named ones of version 1, as systemd's, have no controller."""

    version: int
    path: Path
    controllers: frozenset[str]


def hierarchies(root: Path = ROOT) -> list[Hierarchy]:
    """Every mounted hierarchy, once each. `root` stands in for ``/`` in tests."""
    try:
        lines = (root / "proc/mounts").read_text(encoding="utf-8").splitlines()
        known = _controllers(root)
    except OSError:
        return []
    found: dict[frozenset[str] | int, Hierarchy] = {}
    for line in lines:
        _, where, kind, options, *_ = line.split()
        path = root / where.removeprefix("/")
        if kind == "cgroup":
            words = options.split(",")
            named = frozenset(word for word in words if word.startswith("name="))
            ours = frozenset(word for word in words if word in known)
            found.setdefault(ours or named, Hierarchy(1, path, ours))
        elif kind == "cgroup2":
            with contextlib.suppress(OSError):
                listed = (path / "cgroup.controllers").read_text(encoding="ascii").split()
                found.setdefault(2, Hierarchy(2, path, frozenset(listed)))
    return list(found.values())


def having(controller: str, root: Path = ROOT) -> Hierarchy | None:
    """The hierarchy that `controller` belongs to here."""
    rows = hierarchies(root)
    return next((row for row in rows if controller in row.controllers), None)


def require(controller: str, version: int | None, root: Path = ROOT) -> Hierarchy:
    """The hierarchy that limits by `controller`, of the wanted version.

    Raises `MachineError` that says how to boot for it when there is no such.
    """
    found = having(controller, root)
    if found is None:
        raise MachineError(
            f"no control group hierarchy here has the controller {controller}: mount "
            f"/sys/fs/cgroup, on a kernel with {controller} in /proc/cgroups"
        )
    if version in (None, found.version):
        return found
    words = BOOT[1] if version == 1 else f"{BOOT[2]} cgroup_no_v1={controller}"
    raise MachineError(
        f"dut.cgroup: control groups of version {version} cannot limit the DuT: the controller "
        f"{controller} belongs to version {found.version} here: boot with {words}, "
        "and resume the experiment with --resume"
    )


def groups(name: str, root: Path = ROOT) -> list[Path]:
    """The folder of the group `name` in every hierarchy that has it."""
    paths = (row.path / name for row in hierarchies(root))
    return [path for path in paths if path.is_dir()]


def counted(name: str, root: Path = ROOT) -> Path | None:
    """The folder of the group `name` by which perf counts: the unified hierarchy always can, unless
    one of version 1 has the controller. None where there is no such group.
    """
    unified = (row for row in hierarchies(root) if row.version == 2)
    found = having("perf_event", root) or next(unified, None)
    path = None if found is None else found.path / name
    return path if path is not None and path.is_dir() else None


def remove(name: str) -> None:
    """End every process in the group `name`, and remove it with those below, everywhere.

    Raises `MachineError` when a process does not end.
    """
    deadline = time.monotonic() + 2 * DEATH_SECONDS
    for top in groups(name):

        def belongs(pid: int, top: Path = top) -> bool:
            return pid in _processes(top)

        where = f"in the control group {top}"
        systemd.end(belongs, DEATH_SECONDS, where, among=partial(_processes, top))
        for folder, _, _ in os.walk(top, topdown=False):
            _remove_empty(Path(folder), deadline)


def _controllers(root: Path) -> set[str]:
    rows = (root / "proc/cgroups").read_text(encoding="ascii").splitlines()
    return {row.split()[0] for row in rows if row and not row.startswith("#")}


def _processes(top: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(top):
        # A thread group that is just ending may still be listed, as 0 from another namespace.
        listed = read_text(Path(folder) / "cgroup.procs") or ""
        yield from (pid for pid in map(int, listed.split()) if pid > 0)


def _remove_empty(folder: Path, deadline: float) -> None:
    """Remove a group; a process that has just ended holds it for a moment."""
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise MachineError(
                    f"cannot remove the control group {folder}: {error.strerror}"
                ) from error
            time.sleep(0.005)
        else:
            return
