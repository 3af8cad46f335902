"""Kernels for virtual machines: Debian's packages, unpacked and not installed, or a given image.

Packages are downloaded once, by apt, and kept in `CACHE`; to renew one, remove its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import make_folder, write_json
from tailtap.base.locks import lock
from tailtap.host.facts.machine import boot_id
from tailtap.lab.platforms.boot import RT, VANILLA, version_of
from tailtap.remote.local import LocalHost

CACHE = Path("/var/cache/tailtap")
"""The folder of packages, and of facts about this machine until it reboots."""
PACKAGES: Mapping[str, str] = {VANILLA: "linux-image-amd64", RT: "linux-image-rt-amd64"}
"""The package of each kernel that has a name."""
DEFAULT = VANILLA
SHELL = "busybox-static"
"""What the guest boots with, before it has this machine's files."""
DOWNLOAD_SECONDS = 900.0
PART = re.compile(r"Depends: (linux-(?:image|base|binary|modules)-\S+)")
"""What a kernel's package depends on and is a part of it: up to Debian 13 one package that has all,
since then one each for its configuration, its image and its modules.
"""


@dataclass(frozen=True)
class Kernel:
    """An image and the modules that belong to it."""

    name: str
    image: Path
    release: str
    modules: Path
    """The folder ``lib/modules/RELEASE``, with the lists that depmod makes."""

    @property
    def root(self) -> Path:
        return self.modules.parents[2]

    @property
    def config(self) -> Path | None:
        """The file that says how it was built, where distributions put it; None without one."""
        name = f"config-{self.release}"
        places = (self.image.parent / name, self.modules / "config", Path("/boot") / name)
        return next((path for path in places if path.is_file()), None)


def kernel(name: str) -> Kernel:
    """The kernel of that name, downloaded if it is missing, or the one with that path.

    Raises `InputError` for anything else and for a kernel without its modules, `MachineError` when
    the image cannot be read or the package cannot be got.
    """
    if name in PACKAGES:
        folder = unpacked(PACKAGES[name])
        for modules in (folder / "lib/modules").glob("*"):
            release = modules.name
            for image in (folder / "boot" / f"vmlinuz-{release}", modules / "vmlinuz"):
                if image.is_file():
                    return Kernel(name, image, release, modules)
        raise MachineError(
            f"there is no kernel with its modules in {folder}: remove it, so that it is downloaded "
            "again"
        )
    image = Path(name)
    if not image.is_absolute():
        raise InputError(
            f"dut.kernel: {name!r} is neither {', '.join(PACKAGES)} nor the absolute path of a "
            "kernel image, which a virtual machine could boot"
        )
    release = version_of(name)
    return Kernel(name, image, release, _modules(image, release))


def shell() -> Path:
    """A shell that needs no libraries. Raises `MachineError` when it cannot be got."""
    return unpacked(SHELL) / "bin/busybox"


def to_download(name: str) -> list[str]:
    """The packages that a machine with the kernel of that name needs and that are not there yet."""
    packages = [PACKAGES[name], SHELL] if name in PACKAGES else [SHELL]
    return [package for package in packages if not is_unpacked(package)]


def is_unpacked(package: str) -> bool:
    """Whether `package` is there already."""
    return folder_of(package).is_dir()


def unpacked(package: str) -> Path:
    """The folder with the content of a package; downloads it the first time."""
    folder = folder_of(package)
    if folder.is_dir():
        return folder
    with _locked(folder.parent):
        if not folder.is_dir():  # nobody else has got it meanwhile
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as draft:
                _unpack(package, Path(draft))
                (Path(draft) / "content").rename(folder)
    return folder


def folder_of(package: str) -> Path:
    """Where the content of a package is, once it was needed."""
    return CACHE / "packages" / package


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from downloading the same."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ".lock"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise MachineError(f"cannot write {folder}: {error.strerror}: run it with sudo") from error
    try:
        lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _unpack(package: str, draft: Path) -> None:
    host = LocalHost()
    content = draft / "content"
    try:
        command = ["env", "-C", str(draft), "apt-get", "download", "-qq"]
        command += ["-o", "APT::Sandbox::User=root", *_parts(host, package)]
        _run(host, command)
        for archive in draft.glob("*.deb"):
            _run(host, ["dpkg-deb", "-x", str(archive), str(content)])
    except MachineError as error:
        raise MachineError(
            f"cannot get the Debian package {package}, which virtual machines boot from: {error}: "
            "check /etc/apt/sources.list and `apt-get update`"
        ) from error
    for name in ("bin", "lib"):
        # Packages may rely on these links, which are there where they are installed.
        if (content / "usr" / name).is_dir() and not (content / name).exists():
            (content / name).symlink_to(f"usr/{name}")
    for modules in (content / "lib/modules").glob("*"):
        # It reads every module, which takes minutes where others use the CPUs and the disk.
        depmod = ["depmod", "-b", str(content), modules.name]
        host.run(depmod, seconds=DOWNLOAD_SECONDS)


def _parts(host: LocalHost, package: str) -> list[str]:
    """`package`, and the parts of a kernel that it depends on.

    Debian's names for kernels are empty packages, which depend on the newest one.
    """
    parts = [package]
    for part in parts:
        told = host.run(["apt-cache", "depends", "--important", part]).stdout
        parts += [name for name in PART.findall(told) if name not in parts]
    return parts


def _run(host: LocalHost, command: list[str]) -> None:
    """Run what may take long. Raises `MachineError`."""
    process = host.start(command)
    try:
        process.read_to_end(DOWNLOAD_SECONDS)
    finally:
        process.close()


def _modules(image: Path, release: str) -> Path:
    """Where the modules of an image are, by the ways in which kernels are installed and packed."""
    for root in (image.parent.parent, image.parent, Path("/"), Path("/usr")):
        folder = root / "lib/modules" / release
        if (folder / "modules.dep").exists():
            return folder
    raise InputError(
        f"dut.kernel: {image}: there are no modules for {release}: put them, after depmod, into "
        f"{image.parent.parent / 'lib/modules' / release}"
    )


QEMU = "qemu-system-x86_64"
DEVICE = Path("/dev/kvm")
PROBE_SECONDS = 10.0
"""How long the kernel may take; with KVM it needs one second."""
REACHED = "VFS: Unable to mount root fs"
"""The last message of a kernel that found everything else."""


@dataclass(frozen=True)
class Accelerator:
    """KVM or TCG, and the reason."""

    kind: Literal["kvm", "tcg"]
    reason: str

    @property
    def emulated(self) -> bool:
        """Whether QEMU emulates the CPU (TCG): latency then says nothing."""
        return self.kind == "tcg"


def accelerator(kernel: Kernel) -> Accelerator:
    """KVM if `kernel` boots under it, else TCG. The answer is kept until this machine reboots.

    Raises `MachineError` when QEMU is missing.
    """
    known = remembered()
    if known is not None:
        return known
    found = _probe(kernel)
    path = _memory()
    make_folder(path.parent)
    write_json(path, {"boot": boot_id(), **asdict(found)})
    return found


def foreseen() -> Accelerator | None:
    """What `accelerator` would find; None when it would have to try. Makes nothing."""
    return remembered() or _without_device()


def remembered() -> Accelerator | None:
    """The answer that is stored since this machine booted; None when there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        content = json.loads(_memory().read_text(encoding="utf-8"))
        if content["boot"] == boot_id():
            return Accelerator(content["kind"], content["reason"])
    return None


def _without_device() -> Accelerator | None:
    return None if DEVICE.exists() else Accelerator("tcg", f"there is no {DEVICE}")


def _probe(kernel: Kernel) -> Accelerator:
    without = _without_device()
    if without is not None:
        return without
    LocalHost().run([QEMU, "--version"])
    command = [QEMU, "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-no-reboot"]
    command += ["-display", "none", "-serial", "stdio", "-kernel", str(kernel.image)]
    command += ["-append", "console=ttyS0 panic=-1"]
    with tempfile.TemporaryFile() as said:
        try:
            subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=PROBE_SECONDS,
                check=False,
            )
            ended = "it ended"
        except subprocess.TimeoutExpired:
            ended = f"it hung for {PROBE_SECONDS:g} s"
        said.seek(0)
        words = said.read().decode(errors="replace")
        if REACHED in words:
            return Accelerator("kvm", f"{kernel.release} booted under KVM")
        ended += explanation(words)
    return Accelerator("tcg", f"{DEVICE} is there, but {kernel.release} did not boot: {ended}")


def explanation(words: str) -> str:
    """The most telling line of QEMU's and the kernel's output."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line] or lines[-1:]
    return f": {errors[0].removeprefix(f'{QEMU}: ')}" if errors else ""


def _memory() -> Path:
    return CACHE / "kvm.json"
