"""Containers as bundles of the Open Container Initiative, run by ``crun`` or ``runc``.

The bundle is a folder with ``config.json`` and the root file system; config.md of the runtime
specification (1.0) describes both. The runtime keeps its state in the same folder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import set_value, write_text
from tailtap.base.proc import status
from tailtap.host.changes.systemd import is_the_machine_s, network_of
from tailtap.host.containers import cgroups
from tailtap.host.containers.container import (
    DEVICES,
    Contained,
    Inner,
    Limit,
    Spec,
    environment,
)
from tailtap.records.record import mark
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

INIT = ("/bin/sh", "-c", "sleep infinity & wait")
"""A first process that reaps orphans: a shell that waits for any child."""
UNIFIED = "/sys/fs/cgroup/unified"
"""Where systemd mounts version 2 of control groups beside version 1."""
STATES = "state"
"""What a runtime keeps of its containers, in the folder of each."""
_HIDING = 'umount "$0" && exec "$@"'
_CAPABILITIES = ("bounding", "effective", "permitted")


def hiding() -> list[str]:
    """What goes in front of crun on a machine with both versions of control groups.

    crun refuses to run where version 2 has controllers beside version 1. It does not see version 2
    this way, and limits by version 1.
    """
    both = any(
        row.version == 2 and row.controllers and str(row.path) == UNIFIED
        for row in cgroups.hierarchies()
    )
    return ["unshare", "--mount", "sh", "-c", _HIDING, UNIFIED] if both else []


def mount_root(folder: Path, lower: Path) -> Path:
    """The root file system in a container's folder: `lower`, and what is written over it."""
    root = folder / "rootfs"
    for path in (root, folder / "work"):
        path.mkdir()
    options = f"lowerdir={_escaped(lower)},upperdir={folder}/upper,workdir={folder}/work"
    LocalHost().run(["mount", "-t", "overlay", "-o", options, folder.name, str(root)])
    return root


def write_rest(group: str, limits: Sequence[Limit]) -> None:
    """Write what no runtime has a word for into the files of a control group."""
    for limit in limits:
        if limit.file == "cpuset.sched_load_balance":
            path = cgroups.require("cpuset", limit.version).path / group / limit.file
            set_value(path, limit.value)


@dataclass(frozen=True)
class Bundle(Contained):
    """A container that an OCI runtime runs, ``crun`` here, with its groups, mounts and folder."""

    kind: ClassVar[str] = "oci-container"
    place: ClassVar[str] = "oci"
    program: ClassVar[str] = "crun"
    init: ClassVar[Sequence[str]] = INIT

    @classmethod
    def runtime(cls) -> str:
        return cls.program

    @property
    def called(self) -> str:
        return self.name

    def start(self, spec: Spec) -> None:
        mount_root(self.folder, spec.lower)
        text = json.dumps(configuration(spec), indent=1)
        write_text(self.folder / "config.json", text, mode=0o600)
        log = self.folder / "log"
        # The container inherits what its runtime has open, so it gets a file, not our pipes.
        run = [*entering(self.program, self.folder), "run", "--detach"]
        run += ["--bundle", str(self.folder), "--pid-file", str(self.folder / "pid"), self.name]
        script = 'log=$1; shift; exec "$@" < /dev/null > "$log" 2>&1'
        try:
            LocalHost().run(["sh", "-c", script, "run", str(log), *run])
        except CommandFailed as error:
            said = " ".join(log.read_text(encoding="utf-8", errors="replace").split())
            raise MachineError(
                f"{self.program} cannot start a container: {said or error.reason}"
            ) from error
        write_rest(self.name, spec.limits)

    def pid(self) -> int:
        return pid_in(self.folder, self.program, self.group)

    def inside(self) -> list[str]:
        return [*entering(self.runtime(), self.folder), "exec", self.called]

    def entered(self, inner: Inner) -> list[str]:
        return executing(self.runtime(), self.folder, self.called, inner)


class Runc(Bundle):
    """A container that ``runc`` runs."""

    program: ClassVar[str] = "runc"


def pid_in(folder: Path, program: str, group: str) -> int:
    """The process id in a container's folder, of a process in the control group `group`.

    Raises `MachineError` for one that has ended: its number may be another one's by now.
    """
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text(encoding="ascii"))
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
        within = any(group in Path(line.split(":", 2)[2]).parts for line in lines)
        if within and not is_the_machine_s(network_of(pid)):
            return pid
    raise MachineError(f"{program} cannot start a container: its first process has ended")


def entering(runtime: str, folder: Path) -> list[str]:
    """What goes in front of a word to a runtime about the container in a folder."""
    command = [runtime, "--root", str(folder / STATES)]
    return [*hiding(), *command] if runtime == "crun" else command


def executing(runtime: str, folder: Path, name: str, inner: Inner) -> list[str]:
    """The command by which a runtime runs another one in the container in a folder."""
    said = _process(inner.words, inner.environment, inner.folder, inner.uid, inner.gid)
    file = folder / f"process-{mark(said)}.json"
    write_text(file, json.dumps(said, indent=1), mode=0o600)
    return [*entering(runtime, folder), "exec", "--process", str(file), name]


def _process(
    words: Sequence[str], variables: Mapping[str, str], folder: str, uid: int = 0, gid: int = 0
) -> dict[str, Any]:
    """A process in the words of the specification.

    Users other than root keep capabilities only where these are ambient; capabilities(7).
    """
    able = _capabilities()
    kinds = (*_CAPABILITIES, "inheritable", "ambient") if uid else _CAPABILITIES
    return {
        "user": {"uid": uid, "gid": gid},
        "cwd": folder,
        "args": list(words),
        "env": [f"{name}={value}" for name, value in variables.items()],
        "capabilities": dict.fromkeys(kinds, able),
        "noNewPrivileges": False,
    }


def configuration(spec: Spec) -> dict[str, Any]:
    """The bundle's ``config.json``.

    Its network namespace has nothing but a loopback device: the lab's ports come in by name. It
    keeps all capabilities, because forwarders load eBPF, lock memory and open raw sockets. It
    has no limits of its own for processes (rlimits), which need rights that root may lack.
    """
    return {
        "ociVersion": "1.0.2",
        "hostname": spec.name,
        "root": {"path": "rootfs", "readonly": False},
        "process": _process(spec.init, environment(), "/"),
        "mounts": [*_mounts(spec)],
        "linux": {
            "cgroupsPath": f"/{spec.name}",
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "resources": {"devices": [{"allow": True, "access": "rwm"}], **_resources(spec.limits)},
        },
    }


def _mounts(spec: Spec) -> list[dict[str, Any]]:
    rows: list[tuple[str, str, str, list[str]]] = [
        ("/proc", "proc", "proc", ["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
        ("/dev/shm", "tmpfs", "shm", ["nosuid", "noexec", "nodev", "mode=1777"]),
        ("/sys", "sysfs", "sysfs", ["nosuid", "noexec", "nodev"]),
        ("/sys/fs/cgroup", "cgroup", "cgroup", ["nosuid", "noexec", "nodev", "ro"]),
    ]
    rows += [(path, "none", path, ["rbind"]) for path in DEVICES if Path(path).exists()]
    rows += [(str(path), "none", str(path), ["rbind", "ro"]) for path in spec.shared]
    return [
        {"destination": where, "type": kind, "source": source, "options": options}
        for where, kind, source, options in rows
    ]


def _resources(limits: Sequence[Limit]) -> dict[str, Any]:
    """Limits in the words of the specification, which the runtime turns into those of a version."""
    values = {limit.file: limit.value for limit in limits}
    memory = values.get("memory.limit_in_bytes") or values.get("memory.max")
    found: dict[str, Any] = {}
    if "cpuset.cpus" in values:
        found["cpu"] = {"cpus": values["cpuset.cpus"]}
    if memory is not None:
        found["memory"] = {"limit": int(memory)}
    return found


def _capabilities() -> list[str]:
    """The names of all capabilities that this process can pass on; capabilities(7)."""
    mask = int(status()["CapBnd"], 16)
    return [f"CAP_{name}" for number, name in enumerate(NAMES) if mask >> number & 1]


NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""Capabilities by their numbers; linux/capability.h."""


def _escaped(path: Path) -> str:
    """A folder among the options of an overlay."""
    return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
