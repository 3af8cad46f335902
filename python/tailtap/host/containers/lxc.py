"""Containers of LXC: started, and removed with everything that belongs to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import write_text
from tailtap.host.changes.journal import STATE
from tailtap.host.containers.container import DEVICES, Contained, Inner, Spec
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

CONTAINERS = STATE / "lxc"
"""Where the folders of all containers are: what LXC calls its path."""
MONITOR = ".monitor"
"""What the control group of LXC's own process is called after the container."""


@dataclass(frozen=True)
class Container(Contained):
    """A container of LXC that runs, with its control groups, mounts and folder."""

    kind: ClassVar[str] = "container"
    place: ClassVar[str] = CONTAINERS.name
    program: ClassVar[str] = "lxc-start"
    init: ClassVar[Sequence[str]] = (
        "/usr/sbin/init.lxc", "-n", "tailtap", "--", "sleep", "infinity",
    )  # fmt: skip

    def groups(self) -> Sequence[str]:
        return (self.name, self.name + MONITOR)

    def start(self, spec: Spec) -> None:
        write_text(self.folder / "config", configuration(spec))
        log = self.folder / "log"
        command = ["lxc-start", "-P", str(CONTAINERS), "-n", spec.name, "-d"]
        try:
            LocalHost().run([*command, "-l", "ERROR", "-o", str(log)])
        except CommandFailed as error:
            raise MachineError(f"LXC cannot start a container: {_reason(log) or error}") from error

    def pid(self) -> int:
        asked = ["lxc-info", "-P", str(CONTAINERS), "-n", self.name, "-p", "-H"]
        told = LocalHost().run(asked).stdout
        try:
            return int(told)
        except ValueError as error:
            reason = _reason(self.folder / "log") or told.strip()
            raise MachineError(f"LXC cannot start a container: {reason}") from error

    def inside(self) -> list[str]:
        return ["lxc-attach", "-P", str(CONTAINERS), "-n", self.name, "--"]

    def entered(self, inner: Inner) -> list[str]:
        """The command that runs another one in it.

        Raises `MachineError` for users other than root, whom LXC gives no capabilities, and for
        folders, which it does not choose.
        """
        if inner.uid or inner.folder != "/":
            raise MachineError(
                f"dut.image: its commands are user {inner.uid}'s and start in {inner.folder}, "
                "which LXC cannot do with capabilities: take dut.platform: crun, runc or podman"
            )
        row = ["lxc-attach", "-P", str(CONTAINERS), "-n", self.name, "--clear-env"]
        for key, value in inner.environment.items():
            row += ["-v", f"{key}={value}"]
        return [*row, "--", *inner.words]


def configuration(spec: Spec) -> str:
    """The container's configuration; lxc.container.conf(5).

    Its network namespace has nothing but a loopback device: the lab's ports come in by name. It
    keeps all capabilities, because forwarders load eBPF, lock memory and open raw sockets.
    """
    rows = [
        ("lxc.uts.name", spec.name),
        ("lxc.rootfs.path", f"overlayfs:{spec.lower}:{CONTAINERS / spec.name}/upper"),
        ("lxc.net.0.type", "empty"),
        ("lxc.apparmor.profile", "unconfined"),
        ("lxc.mount.auto", "proc:rw sys:rw cgroup:mixed"),
        ("lxc.autodev", "1"),
        ("lxc.init.cmd", " ".join(spec.init)),
        # Right below the root group, where a partition of CPUs can be.
        ("lxc.cgroup.dir.container", spec.name),
        ("lxc.cgroup.dir.monitor", spec.name + MONITOR),
        *(
            (f"lxc.cgroup{'' if one.version == 1 else 2}.{one.file}", one.value)
            for one in spec.limits
        ),
    ]
    for path in DEVICES:
        if Path(path).exists():
            kind = "dir" if Path(path).is_dir() else "file"
            rows.append(("lxc.mount.entry", f"{path} {path[1:]} none rbind,create={kind} 0 0"))
    for shared in spec.shared:
        inner = _escaped(shared)
        options = f"rbind,ro,create={'dir' if shared.is_dir() else 'file'}"
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
