"""Images of containers: unpacked by Podman, and kept by what is in them.

Podman reads every form of them into a storage of its own below a temporary folder, which is all
that is left of it: no image, container or mount of others is touched.
"""

from __future__ import annotations

import contextlib
import json
import platform as python_platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import write_json
from tailtap.records.record import mark, read
from tailtap.records.run import Image
from tailtap.remote import CommandFailed
from tailtap.remote.local import LocalHost, require_program

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
