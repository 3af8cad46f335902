"""Live images: a kernel, and an initial RAM disk that holds a whole root made by mmdebstrap.

A host that boots one has the same files after every boot, and needs no disk. The same packages, key
files and time give the same bytes. There is no secret in it: the host's own key is in a small
archive beside it, which the kernel unpacks first. Who boots the image without that gets a new key
at each boot.

The archive is of the format "newc" of cpio(5), which Linux unpacks as its root.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import msgspec

from tailtap.base.errors import InputError, MachineError
from tailtap.base.files import make_folder, write_json
from tailtap.lab.platforms.boot import version_of
from tailtap.lab.platforms.vm.kernels import PACKAGES
from tailtap.records.printed import ImageContentRecord
from tailtap.remote.local import LocalHost, require_program

KERNEL, INITRD, ABOUT, HOST_KEY = "vmlinuz", "initrd", "image.json", "ssh_host_ed25519_key"
KEY_ARCHIVE = "host-key.cpio"
"""The files of an image's folder. The archive holds the private key `HOST_KEY`."""
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
BLOCK = 512
"""An archive ends at a multiple of so many bytes."""
_SET_UP = """set -eu
root=$1
echo live > "$root/etc/hostname"
: > "$root/etc/machine-id"
rm -f "$root/var/lib/dbus/machine-id" "$root"/etc/ssh/ssh_host_*
mkdir -p "$root/root/.ssh"
install -m 600 {keys} "$root/root/.ssh/authorized_keys"
chmod 700 "$root/root/.ssh"
ln -sf sbin/init "$root/init"
cat > "$root/etc/systemd/system/tailtap-host-key.service" <<'UNIT'
[Unit]
Description=A key for a host that was booted without its own
ConditionPathExists=!/etc/ssh/{name}
Before=ssh.service

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/{name}

[Install]
WantedBy=ssh.service
UNIT
chroot "$root" systemctl --quiet enable tailtap-host-key.service
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
        return self.folder / KERNEL

    @property
    def initrd(self) -> Path:
        return self.folder / INITRD

    @property
    def key(self) -> Path:
        """The archive with the host's own key, which comes before the initial RAM disk."""
        return self.folder / KEY_ARCHIVE

    @property
    def release(self) -> str:
        """What ``uname -r`` prints once it runs. Raises `MachineError` when there is no kernel."""
        return version_of(str(self.kernel.absolute()))


def image_in(folder: str) -> Image:
    """The image in a folder. Raises `InputError` unless its files are there."""
    image = Image(Path(folder))
    for path in (image.kernel, image.key, image.initrd):
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
    kept beside it, so that ssh knows the host after each boot. `kernel` is `vanilla`, `rt` or a
    Debian package, `include` has further packages. No file in it is newer than `epoch`, in s since
    1970.

    Raises `InputError` and `MachineError`.
    """
    program = require_program("mmdebstrap")
    squeeze = require_program("zstd")
    if not keys.is_file() or not keys.read_text("utf-8", "replace").strip():
        raise InputError("there is no public key in it that may log in: see ssh-keygen(1)").at(keys)
    make_folder(folder)
    host_key = folder / HOST_KEY
    if not host_key.exists():
        LocalHost().run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "live", "-f", str(host_key)]
        )
    packages = [PACKAGES.get(kernel, kernel), *NEEDED, *include]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as name:
        draft = Path(name)
        root = draft / "root.tar"
        set_up = draft / "set-up"
        set_up.write_text(_SET_UP.format(keys=shlex.quote(str(keys.absolute())), name=HOST_KEY))
        hook = f'sh {shlex.quote(str(set_up))} "$1"'
        command = [program, "--quiet", "--variant=apt", "--aptopt=Apt::Install-Recommends false",
                   *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
                   f"--include={','.join(packages)}", f"--customize-hook={hook}",
                   suite, str(root)]  # fmt: skip
        made = LocalHost().run(
            ["env", f"SOURCE_DATE_EPOCH={epoch}", *command], check=False, seconds=BUILD_SECONDS
        )
        if made.status != 0:
            lines = reversed([*made.stdout.splitlines(), *made.stderr.splitlines()])
            last = next((line for line in lines if line.startswith("E:")), "no reason given")
            raise MachineError(f"mmdebstrap failed: {last}")
        _take_kernel(root, draft / KERNEL)
        with root.open("rb") as source, _squeezed(squeeze, draft / INITRD) as target:
            write_cpio(source, target)
        write_key_archive(host_key, draft / KEY_ARCHIVE, epoch)
        for part in (KERNEL, KEY_ARCHIVE, INITRD):
            (draft / part).replace(folder / part)
    image = Image(folder)
    about = ImageContentRecord(release=image.release, suite=suite, packages=packages, epoch=epoch)
    write_json(folder / ABOUT, msgspec.to_builtins(about))
    return image


def write_key_archive(key: Path, target: Path, epoch: int) -> None:
    """Write an initial RAM disk that holds nothing but a host's private key.

    Only its owner may read it. Another archive can follow (buffer-format.rst of the kernel).
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as content:
        for name, kind, mode in (
            ("etc", tarfile.DIRTYPE, 0o755),
            ("etc/ssh", tarfile.DIRTYPE, 0o755),
            (f"etc/ssh/{HOST_KEY}", tarfile.REGTYPE, 0o600),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime = kind, mode, epoch
            data = key.read_bytes() if kind == tarfile.REGTYPE else b""
            entry.size = len(data)
            content.addfile(entry, io.BytesIO(data))
    packed.seek(0)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        write_cpio(packed, file)
        file.write(bytes(-file.tell() % BLOCK))


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
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
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


_TYPES = {
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.CHRTYPE: stat.S_IFCHR,
    tarfile.BLKTYPE: stat.S_IFBLK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
}
PIECE = 1 << 20


def write_cpio(source: BinaryIO, target: IO[bytes]) -> None:
    """Write all entries of the tar file `source` to `target`.

    A hard link becomes a copy of the file. Raises `tarfile.TarError` for what is no tar file.
    """
    with tarfile.open(fileobj=source, mode="r:") as content:
        for inode, entry in enumerate(content, 1):
            file = content.extractfile(entry) if entry.isreg() or entry.islnk() else None
            size = 0
            data = b""
            if file is not None:
                size = content._find_link_target(entry).size if entry.islnk() else entry.size  # type: ignore[attr-defined]
            elif entry.issym():
                data = entry.linkname.encode()
                size = len(data)
            kind = stat.S_IFREG if entry.islnk() else _TYPES[entry.type]
            _head(target, entry, inode, kind | entry.mode, size)
            if file is not None:
                while piece := file.read(PIECE):
                    target.write(piece)
            else:
                target.write(data)
            target.write(bytes(-size % 4))
    name = b"TRAILER!!!\0"
    _named(target, (0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, len(name), 0), name)


def _head(target: IO[bytes], entry: tarfile.TarInfo, inode: int, mode: int, size: int) -> None:
    name = (entry.name.removeprefix("./") or ".").encode() + b"\0"
    links = 2 if entry.isdir() else 1
    major, minor = (entry.devmajor, entry.devminor) if entry.isdev() else (0, 0)
    numbers = (inode, mode, entry.uid, entry.gid, links, int(entry.mtime), size, 0, 0,
               major, minor, len(name), 0)  # fmt: skip
    _named(target, numbers, name)


def _named(target: IO[bytes], numbers: tuple[int, ...], name: bytes) -> None:
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name
    target.write(head + bytes(-len(head) % 4))
