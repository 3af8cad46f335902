"""Containers of Podman, whose command line is Docker's, without a daemon.

All that Podman keeps is in the container's folder: its storage, its locks, and its database. So
containers of others, and what they are called, do not matter.
Podman also unpacks images, which are kept by what is in them.
"""

from __future__ import annotations

import contextlib
import json
import platform as python_platform
import re
import resource
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import write_json, write_text
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
from tailtap.records.record import mark, read
from tailtap.records.run import Image
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, require_program

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


ARCHIVES = ("oci-archive", "docker-archive", "oci")
"""Forms of an image on the disk, as Podman calls them; containers-transports(5)."""
STORED = "containers-storage"
NAME = re.compile(r"\w+(?:[.:@/-]\w+)*")
"""Names, tags, digests and numbers of images; ``docker://`` and the like are places elsewhere."""
UNPACK_SECONDS = 600.0
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What images call this machine's architecture, where that differs from ``uname -m``."""
ROOT = "rootfs"
TOLD = "image.json"


@dataclass(frozen=True)
class Unpacked:
    """An image that is unpacked."""

    root: Path
    told: Image


def check_reference(text: str) -> str:
    """`text` as it is. Raises `ValueError` for what names no image on this machine."""
    form, separator, rest = text.partition(":")
    if form in ARCHIVES and separator:
        if not rest.startswith("/"):
            raise ValueError(f"{text!r}: write the absolute path of the archive behind {form}:")
    elif NAME.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no image on this machine: write the name of one that Podman has (`podman "
            "pull` fetches it), oci-archive:/PATH or docker-archive:/PATH"
        )
    return text


def unpacked(reference: str, cache: Path) -> Unpacked:
    """The image that `reference` names (`check_reference`), unpacked in `cache`.

    It is unpacked once for each content. Raises `MachineError` when there is no such image, or it
    is for another machine.
    """
    require_program("podman")
    source, known_by = _source(reference)
    folder = cache / f"image-{mark(*known_by)}"
    if not (folder / TOLD).is_file():
        cache.mkdir(parents=True, exist_ok=True)
        _unpack(reference, source, folder, cache)
    told = read(folder / TOLD, Image)
    ours = MACHINES.get(python_platform.machine(), python_platform.machine())
    if told.architecture != ours:
        raise MachineError(
            f"dut.image: {reference} is for {told.architecture}, and this machine is {ours}: "
            f"build it for {ours}"
        )
    told.reference = reference
    return Unpacked(folder / ROOT, told)


def account_of(user: str, root: Path) -> tuple[int, int]:
    """User and group of ``USER`` or ``USER:GROUP``, numbers or names of an image's own files.

    Raises `InputError` for a name that is not there.
    """
    name, _, group = user.partition(":")
    row = _row(root / "etc/passwd", name) if name and not name.isdigit() else None
    if row is not None:
        uid, gid = int(row[2]), int(row[3])
    elif name and not name.isdigit():
        raise InputError(f"dut.image: its user {name} is not in its /etc/passwd")
    else:
        uid, gid = int(name or 0), 0
    if group:
        known = None if group.isdigit() else _row(root / "etc/group", group)
        if known is None and not group.isdigit():
            raise InputError(f"dut.image: its group {group} is not in its /etc/group")
        gid = int(group if known is None else known[2])
    return uid, gid


def _row(path: Path, name: str) -> Sequence[str] | None:
    """The fields of a line of passwd(5) or group(5), in a file that is within the image."""
    with contextlib.suppress(OSError, ValueError):
        if not path.resolve().is_relative_to(path.parent.parent.resolve()):
            return None
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split(":")
            if fields[0] == name and len(fields) >= 3 and fields[2].isdigit():
                return fields
    return None


def _source(reference: str) -> tuple[str, Sequence[object]]:
    """What Podman is to read, and what tells that content from any other."""
    form, _, rest = reference.partition(":")
    if form in ARCHIVES:
        # An archive may have a name behind its path: oci-archive:/PATH:NAME.
        path = Path(rest if Path(rest).exists() else rest.partition(":")[0])
        try:
            found = path.stat()
        except OSError as error:
            raise MachineError(f"dut.image: {path}: {error.strerror}") from error
        return reference, (reference, found.st_mtime_ns, found.st_size, found.st_ino)
    try:
        asked = ["podman", "image", "inspect", "--", reference]
        [said] = json.loads(LocalHost().run(asked).stdout)
        places = json.loads(LocalHost().run(["podman", "info", "--format", "json"]).stdout)["store"]
    except CommandFailed as error:
        raise MachineError(
            f"dut.image: Podman has no image {reference} ({error.reason}): `podman images` lists "
            "what it has"
        ) from error
    names = said.get("RepoTags")
    if not names:
        raise MachineError(f"dut.image: {reference} has no name: give it one by `podman tag`")
    storage = f"[{places['graphDriverName']}@{places['graphRoot']}+{places['runRoot']}]"
    return f"{STORED}:{storage}{names[0]}", (said["Id"],)


def _unpack(reference: str, source: str, folder: Path, cache: Path) -> None:
    """Make `folder` of an image, which appears whole or not at all."""
    # Podman takes no folder of more than 50 characters.
    draft = Path(tempfile.mkdtemp(prefix="draft.", dir=cache))
    places = [
        word for name in ("root", "runroot", "tmpdir") for word in (f"--{name}", str(draft / name))
    ]
    podman = ["podman", *places, "--storage-driver", "vfs"]
    try:
        number = LocalHost().run([*podman, "pull", "--quiet", source], seconds=UNPACK_SECONDS)
        name = number.stdout.split()[-1]
        [said] = json.loads(LocalHost().run([*podman, "image", "inspect", name]).stdout)
        mounted = LocalHost().run([*podman, "image", "mount", name]).stdout.strip()
        whole = draft / "whole"
        whole.mkdir(mode=0o700)
        # In a storage of this kind it is a folder: the layers on top of each other.
        LocalHost().run(["mv", "--no-target-directory", mounted, str(whole / ROOT)])
        write_json(whole / TOLD, _told(reference, said), below=whole)
        with contextlib.suppress(OSError):  # another run has made it meanwhile
            whole.rename(folder)
    except CommandFailed as error:
        raise MachineError(
            f"dut.image: Podman cannot unpack {reference}: {error.reason}"
        ) from error
    finally:
        LocalHost().run(["rm", "-rf", "--one-file-system", str(draft)])


def _told(reference: str, said: Mapping[str, Any]) -> dict[str, Any]:
    config = said.get("Config") or {}
    return {
        "reference": reference,
        "id": f"sha256:{said['Id']}",
        "digest": said.get("Digest") or "",
        "architecture": said.get("Architecture") or "",
        "entrypoint": config.get("Entrypoint") or [],
        "arguments": config.get("Cmd") or [],
        "environment": config.get("Env") or [],
        "folder": config.get("WorkingDir") or "/",
        "user": config.get("User") or "",
    }
