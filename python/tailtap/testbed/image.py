"""Live images: a kernel, and an initial RAM disk that holds a whole root made by mmdebstrap.

A host that boots one has the same files after every boot, and needs no disk. The same packages, key
files and time give the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from tailtap.errors import InputError, MachineError
from tailtap.files import make_folder, write_json
from tailtap.platform.kernel import version_of
from tailtap.platform.vm.kernels import PACKAGES
from tailtap.stations.local import LocalHost, require_program
from tailtap.testbed.cpio import write_cpio

KERNEL, INITRD, ABOUT, HOST_KEY = "vmlinuz", "initrd", "image.json", "ssh_host_ed25519_key"
"""The files of an image's folder."""
NEEDED = ("systemd-sysv", "udev", "dbus", "openssh-server", "python3", "iproute2", "ethtool",
          "kmod", "kexec-tools", "procps", "util-linux")  # fmt: skip
"""What a host of a testbed has: what boots it, ssh, and what our program calls."""
_DRIVERS = ("gpu", "media", "net/wireless", "infiniband", "staging", "iio", "input")
LEFT_OUT = (
    *(f"/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")),
    "/lib/modules/*/kernel/sound/*",
    *(f"/lib/modules/*/kernel/drivers/{name}/*" for name in _DRIVERS),
)
"""Nothing that forwards packets needs these; memory holds what is left."""
BUILD_SECONDS = 1800.0
_SET_UP = """set -eu
root=$1
echo live > "$root/etc/hostname"
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id" "$root"/etc/ssh/ssh_host_*
mkdir -p "$root/root/.ssh"
install -m 600 {host_key} "$root/etc/ssh/{name}"
install -m 600 {keys} "$root/root/.ssh/authorized_keys"
chmod 700 "$root/root/.ssh"
ln -sf sbin/init "$root/init"
chroot "$root" systemctl --quiet enable systemd-networkd.service systemd-network-generator.service
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer
rm -rf "$root"/var/cache/* "$root"/var/log/* "$root"/var/lib/apt/lists/*
"""


@dataclass(frozen=True)
class Image:
    """A live image in a folder of its own."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.folder / KERNEL

    @property
    def initrd(self) -> Path:
        """The initial RAM disk."""
        return self.folder / INITRD

    @property
    def release(self) -> str:
        """What ``uname -r`` prints once it runs. Raises `MachineError` when there is no kernel."""
        return version_of(str(self.kernel.absolute()))


def image_in(folder: str) -> Image:
    """The image in a folder. Raises `InputError` unless its files are there."""
    image = Image(Path(folder))
    for path in (image.kernel, image.initrd):
        if not path.is_file():
            raise InputError(f"there is no {path}: `tailtap testbed image` makes live images")
    return image


def make_image(
    folder: Path,
    *,
    keys: Path,
    kernel: str = "vanilla",
    suite: str = "bookworm",
    include: Sequence[str] = (),
    epoch: int,
) -> Image:
    """Make an image in `folder`, in place of one that is there.

    Whoever has one of the public `keys` may log in as root. The host's own key is made once and
    kept, so that ssh knows the host after each boot. `kernel` is `vanilla`, `rt` or a Debian
    package, `include` has further packages. No file in it is newer than `epoch`, in s since 1970.

    Raises `InputError` and `MachineError`.
    """
    program = require_program("mmdebstrap")
    squeeze = require_program("zstd")
    if not keys.is_file() or not keys.read_text("utf-8", "replace").strip():
        raise InputError(f"{keys}: there is no public key in it that may log in: see ssh-keygen(1)")
    make_folder(folder)
    host_key = folder / HOST_KEY
    if not host_key.exists():
        LocalHost().run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "live", "-f",
                         str(host_key)])  # fmt: skip
    packages = [PACKAGES.get(kernel, kernel), *NEEDED, *include]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as name:
        draft = Path(name)
        root = draft / "root.tar"
        set_up = draft / "set-up"
        ours, theirs = (shlex.quote(str(path.absolute())) for path in (host_key, keys))
        set_up.write_text(_SET_UP.format(host_key=ours, keys=theirs, name=HOST_KEY))
        hook = f'sh {shlex.quote(str(set_up))} "$1"'
        command = [program, "--quiet", "--variant=apt", "--aptopt=Apt::Install-Recommends false",
                   *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
                   f"--include={','.join(packages)}", f"--customize-hook={hook}",
                   suite, str(root)]  # fmt: skip
        _made(command, {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, draft / "log")
        _take_kernel(root, draft / KERNEL)
        with root.open("rb") as source, _squeezed(squeeze, draft / INITRD) as target:
            write_cpio(source, target)
        for part in (KERNEL, INITRD):
            (draft / part).replace(folder / part)
    image = Image(folder)
    about = {"schema": "tailtap.image/1", "release": image.release, "suite": suite,
             "packages": packages, "epoch": epoch}  # fmt: skip
    write_json(folder / ABOUT, about)
    return image


def _made(command: Sequence[str], environment: dict[str, str], log: Path) -> None:
    with log.open("wb") as said:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                  env=environment, timeout=BUILD_SECONDS, check=False)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise MachineError(f"mmdebstrap does not end within {BUILD_SECONDS:g} s") from error
    if done.returncode != 0:
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        last = next((line for line in reversed(lines) if line.startswith("E:")), "no reason given")
        raise MachineError(f"mmdebstrap failed: {last}")


def _take_kernel(root: Path, target: Path) -> None:
    with tarfile.open(root) as content:
        for entry in content:
            if Path(entry.name).name.startswith("vmlinuz-") and entry.isreg():
                source = cast("IO[bytes]", content.extractfile(entry))
                with target.open("wb") as file:
                    shutil.copyfileobj(source, file)
                return
    raise MachineError("the packages of the image have no kernel: see --kernel")


@contextlib.contextmanager
def _squeezed(program: str, target: Path) -> Iterator[BinaryIO]:
    """A pipe into zstd(1), which writes `target`. Only its owner may read it: it has a key."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        command = [program, "--quiet", "-9", "-T0", "--stdout"]
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file)
        pipe = cast("BinaryIO", running.stdin)
        try:
            yield pipe
            pipe.close()
        except BaseException:
            running.kill()
            raise
        finally:
            status = running.wait()
    if status != 0:
        raise MachineError(f"{program} failed with status {status}: is the disk full?")
