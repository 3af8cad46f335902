"""Containers of Podman, whose command line is Docker's, without a daemon.

All that Podman keeps is in the container's folder: its storage, its locks, and its database. So
containers of others, and what they are called, do not matter.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tailtap.base.errors import MachineError
from tailtap.base.files import write_text
from tailtap.host.containers.container import (
    DEVICES,
    Contained,
    Limit,
    Spec,
    environment,
)
from tailtap.host.containers.lxc import Container
from tailtap.host.containers.oci import (
    STATES,
    Bundle,
    Runc,
    hiding,
    mount_root,
    write_rest,
)
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost

SETTINGS = """[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
runtime = "{runtime}"
"""
"""containers.conf(5). The locks would be in memory that all of a machine's Podmans share."""

RUNTIMES = ("crun", "runc")
"""What runs containers for Podman, the first choice first."""

CONFIGURATION = "CONTAINERS_CONF"


@dataclass(frozen=True)
class Pod(Bundle):
    """A container of Podman that runs, with its control groups, mounts and folder.

    It is entered by the runtime: the parent of what ``podman exec`` runs is a monitor, which lives
    on when that command is killed.
    """

    kind: ClassVar[str] = "podman-container"
    place: ClassVar[str] = "podman"
    program: ClassVar[str] = "podman"

    def start(self, spec: Spec) -> None:
        root = mount_root(self.folder, spec.lower)
        settings = SETTINGS.format(runtime=self.runtime())
        write_text(self.folder / "containers.conf", settings)
        try:
            LocalHost().run(
                [*_podman(self.folder), *_run(spec, self.folder), str(root), *spec.init]
            )
        except CommandFailed as error:
            raise MachineError(f"Podman cannot start a container: {error.reason}") from error
        write_rest(self.group, spec.limits)

    @classmethod
    def runtime(cls) -> str:
        for name in RUNTIMES:
            if LocalHost().run(["sh", "-c", f"command -v {name}"], check=False).status == 0:
                return name
        raise MachineError("Podman needs crun or runc: apt-get install crun")

    @classmethod
    def require(cls) -> None:
        super().require()
        cls.runtime()

    @property
    def called(self) -> str:
        """The number that Podman gave it."""
        return (self.folder / "id").read_text(encoding="ascii").strip()

    @property
    def group(self) -> str:
        return f"libpod-{self.called}"

    @classmethod
    def version(cls) -> str:
        return f"{super().version()} with {cls.runtime()}"


def _podman(folder: Path) -> list[str]:
    # Its monitor leaves files in the folder that it was started in.
    settings = ["env", "--chdir", str(folder), f"{CONFIGURATION}={folder / 'containers.conf'}"]
    places = [
        word
        for name, path in (("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp"))
        for word in (name, str(folder / path))
    ]
    state = ["--runtime-flag", f"root={folder / STATES}"]
    hidden = hiding() if Pod.runtime() == "crun" else []
    return [*hidden, *settings, "podman", *places, "--storage-driver", "vfs", *state]


def _run(spec: Spec, folder: Path) -> Iterator[str]:
    """The command that starts a container, up to its root file system."""
    yield from ("run", "--detach", "--rootfs", "--name", spec.name, "--hostname", spec.name)
    # The lab's ports come in by name. Forwarders load eBPF, lock memory and open raw sockets.
    yield from ("--network", "none", "--privileged", "--security-opt", "seccomp=unconfined")
    yield from ("--cgroup-parent", "/", "--cgroups", "no-conmon", "--log-driver", "none")
    yield from ("--pidfile", str(folder / "pid"), "--cidfile", str(folder / "id"))
    for name, value in environment().items():
        yield from ("--env", f"{name}={value}")
    yield from ("--no-hosts", "--pids-limit", "-1", "--systemd", "false")
    for name, most in _process_limits():
        yield from ("--ulimit", f"{name}={most}:{most}")
    for limit in spec.limits:
        yield from _limit(limit)
    for path in DEVICES:
        if Path(path).is_dir():
            yield from ("--volume", f"{path}:{path}:rbind")
    for shared in spec.shared:
        yield from ("--volume", f"{shared}:{shared}:rbind,ro")


def _limit(limit: Limit) -> Sequence[str]:
    if limit.file == "cpuset.cpus":
        return ("--cpuset-cpus", limit.value)
    if limit.file in ("memory.limit_in_bytes", "memory.max"):
        return ("--memory", f"{limit.value}b")
    return ()


def _process_limits() -> Iterator[tuple[str, int]]:
    """What this process may have: Podman asks for more, for which root may lack the right.

    It lowers its own limit of processes to as many as there can be numbers of.
    """
    most = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    for name, which, bound in (
        ("nofile", resource.RLIMIT_NOFILE, None),
        ("nproc", resource.RLIMIT_NPROC, most),
    ):
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY:
            yield name, hard if bound is None else min(hard, bound)


ENGINES: Sequence[type[Contained]] = (Container, Bundle, Runc, Pod)


def pid_of(name: str) -> int:
    """The first process of a container, whoever runs it. Raises `MachineError`."""
    for kind in ENGINES:
        if kind(name).folder.exists():
            return kind(name).pid()
    raise MachineError(f"there is no container {name}")
