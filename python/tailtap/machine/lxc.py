"""Containers of LXC: started, and removed with everything that belongs to them.

A container's folder below tailtap's state is a tmpfs with its configuration and what is written in
it. The folder is made first and goes last, so that cleaning finds a container by it whatever
happened in between.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tailtap.errors import MachineError
from tailtap.machine import cgroups
from tailtap.machine.journal import STATE, is_ours
from tailtap.machine.resource import Resource, Value
from tailtap.stations import CommandFailed
from tailtap.stations.local import LocalHost

CONTAINERS = STATE / "lxc"
"""Where the folders of all containers are: what LXC calls its path."""
MONITOR = ".monitor"
"""What the control group of LXC's own process is called after the container."""
REMOVAL_SECONDS = 5.0
"""How long LXC's own process may hold on to the container's folder."""
DEVICES = ("/dev/net/tun", "/dev/vfio", "/dev/hugepages", "/sys/fs/bpf")
"""What forwarders in user space need of the machine, where it has them."""


@dataclass(frozen=True)
class Spec:
    """What a container is to be."""

    name: str
    lower: Path
    """The folder whose content is its root; what it writes goes elsewhere."""
    init: Sequence[str]
    """The command that is its first process."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """LXC's names for files of its control group, and what is written into them."""
    shared: Sequence[Path] = ()
    """Folders of this machine that it sees in the same place and cannot change."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it finds besides those of `lower`, by their absolute path."""


def folder(name: str) -> Path:
    """Where everything of the container `name` lies."""
    return CONTAINERS / name


def inside(name: str) -> list[str]:
    """What goes in front of a command that is to run in the container `name`."""
    return ["lxc-attach", "-P", str(CONTAINERS), "-n", name, "--"]


@dataclass(frozen=True)
class Container(Resource):
    """A container that runs, with its control groups, mounts and folder."""

    kind: ClassVar[str] = "container"

    name: str
    spec: Spec | None = None
    """What it is to be; None to undo it."""

    @property
    def label(self) -> str:
        """Its name."""
        return self.name

    def read(self) -> bool:
        """Whether its folder is there. Raises `MachineError` when one is to be made anew."""
        there = folder(self.name).exists()
        if there and self.spec is not None:
            raise MachineError(
                f"the container name {self.name} is in use: `tailtap clean` removes what is left "
                "of it"
            )
        return there

    def plan(self) -> Value:
        """It runs."""
        return True

    def apply(self) -> None:
        """Start it. Raises `MachineError` when LXC cannot."""
        assert self.spec is not None
        where = folder(self.name)
        where.mkdir(parents=True)
        _start(self.spec, where)

    def undo(self, old: Value, applied: Value = None) -> None:
        """End everything in it and remove all that it left."""
        if not old:
            remove(self.name)

    def pending(self, old: Value, applied: Value = None) -> bool:
        """Whether its folder or a control group of it is there."""
        return folder(self.name).exists() or any(
            cgroups.groups(name) for name in (self.name, self.name + MONITOR)
        )

    def as_json(self) -> dict[str, Any]:
        """Its name, by which all of it is found."""
        return {"name": self.name}

    @classmethod
    def existing(cls) -> list[Container]:
        """Those that have a folder of ours."""
        return [cls(name) for name in existing()]


def pid_of(name: str) -> int:
    """The process id of the first process of a container that runs. Raises `MachineError`."""
    asked = ["lxc-info", "-P", str(CONTAINERS), "-n", name, "-p", "-H"]
    told = LocalHost().run(asked).stdout
    try:
        return int(told)
    except ValueError as error:
        raise MachineError(
            f"LXC cannot start a container: {_reason(folder(name) / 'log') or told.strip()}"
        ) from error


def existing() -> list[str]:
    """The names of all containers of labs, running or not."""
    return sorted(path.name for path in CONTAINERS.glob("*") if is_ours(path.name))


def remove(name: str) -> None:
    """End the container with everything that runs in it, and remove all that it left.

    Raises `MachineError` when something resists.
    """
    cgroups.remove(name)
    cgroups.remove(name + MONITOR)
    where = folder(name)
    deadline = time.monotonic() + REMOVAL_SECONDS
    while where.is_mount():
        try:
            LocalHost().run(["umount", str(where)])
        except CommandFailed as error:
            if time.monotonic() > deadline:
                raise MachineError(f"cannot unmount {where}: {error.reason}") from error
            time.sleep(0.01)
    # Only a folder that was never mounted has something in it, as after a reboot.
    LocalHost().run(["rm", "-rf", "--one-file-system", str(where)])


def _start(spec: Spec, where: Path) -> None:
    host = LocalHost()
    host.run(["mount", "-t", "tmpfs", "-o", "mode=0755", spec.name, str(where)])
    for path, text in spec.files.items():
        target = where / "upper" / path.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (where / "upper").mkdir(exist_ok=True)
    (where / "config").write_text(configuration(spec), encoding="utf-8")
    log = where / "log"
    command = [
        "lxc-start",
        "-P",
        str(CONTAINERS),
        "-n",
        spec.name,
        "-d",
        "-l",
        "ERROR",
        "-o",
        str(log),
    ]
    try:
        host.run(command)
    except CommandFailed as error:
        raise MachineError(f"LXC cannot start a container: {_reason(log) or error}") from error


def configuration(spec: Spec) -> str:
    """The container's configuration; lxc.container.conf(5).

    Its network namespace has nothing but a loopback device: the lab's ports come in by name. It
    keeps all capabilities, because forwarders load eBPF, lock memory and open raw sockets.
    """
    rows = [
        ("lxc.uts.name", spec.name),
        ("lxc.rootfs.path", f"overlayfs:{spec.lower}:{folder(spec.name)}/upper"),
        ("lxc.net.0.type", "empty"),
        ("lxc.apparmor.profile", "unconfined"),
        ("lxc.mount.auto", "proc:rw sys:rw cgroup:mixed"),
        ("lxc.autodev", "1"),
        ("lxc.init.cmd", " ".join(spec.init)),
        # Right below the root group, where a partition of CPUs can be.
        ("lxc.cgroup.dir.container", spec.name),
        ("lxc.cgroup.dir.monitor", spec.name + MONITOR),
        *spec.limits.items(),
    ]
    for path in DEVICES:
        if Path(path).exists():
            kind = "dir" if Path(path).is_dir() else "file"
            rows.append(("lxc.mount.entry", f"{path} {path[1:]} none rbind,create={kind} 0 0"))
    for shared in spec.shared:
        inner = _escaped(shared)
        options = "rbind,ro,create=dir"
        rows.append(("lxc.mount.entry", f"{inner} {inner[1:]} none {options} 0 0"))
    return "".join(f"{key} = {value}\n" for key, value in rows)


def _escaped(path: Path) -> str:
    """A path in a line of fields; fstab(5)."""
    return str(path).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")


def _reason(log: Path) -> str | None:
    """The first error in LXC's log, without the place in its sources."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"ERROR\s+\S+ - \S+ - (.*)", text)
    return found[1].strip() if found else None
