"""The first files of a guest: a shell, the modules that it needs to reach ours, and `init.sh`."""

from __future__ import annotations

import gzip
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tailtap.base.errors import InputError, MachineError, NotRead
from tailtap.host.containers.container import Inner
from tailtap.lab.platforms.dut import OwnFiles
from tailtap.lab.platforms.vm.domain import PORT
from tailtap.lab.platforms.vm.kernels import Kernel, shell
from tailtap.remote import CommandFailed, agent
from tailtap.remote.guest import GuestHost
from tailtap.remote.local import LocalHost

MODULES = ("virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "overlay")
"""What a guest needs before it has this machine's files; the kernel loads the rest itself."""
FOLDERS = ("bin", "modules", "proc", "sys", "dev", "host", "memory", "root")


def _unpacked(module: bytes) -> bytes:
    import lzma  # which not every Python is compiled with

    return lzma.decompress(module)


READERS: Mapping[str, Callable[[bytes], bytes]] = {
    ".ko": bytes,
    ".xz": _unpacked,
    ".gz": gzip.decompress,
}
"""How to read a module, by the end of its name."""


def write(
    target: Path,
    kernel: Kernel,
    settings: Mapping[str, str],
    cards: Sequence[str] = (),
) -> None:
    """Write the archive for `kernel`.

    `settings` are the ``links`` (pairs of a MAC address and a name), their ``mtu``, and the
    ``cpus`` that take their interrupts. `cards` are aliases of the modules that drive the links
    when they are no virtio ones.

    Raises `InputError` when the kernel lacks a module that a guest needs.
    """
    host = LocalHost()
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        root = Path(temporary)
        for name in FOLDERS:
            (root / name).mkdir()
        shutil.copy2(shell(), root / "bin/busybox")
        init = root / "init"
        init.write_bytes(resources.files(__package__).joinpath("init.sh").read_bytes())
        init.chmod(0o755)
        inserted: list[str] = []
        for path in _modules(host, kernel, (*MODULES, *cards)):
            name = path.name.partition(".ko")[0] + ".ko"
            if name not in inserted:
                inserted.append(name)
                (root / "modules" / name).write_bytes(_read(path))
        content = {
            **settings,
            "insert": " ".join(inserted),
            "release": kernel.release,
            "modules": str(kernel.modules.resolve()),
            "port": PORT,
            "python": sys.executable,
            "agent": agent.program(),
        }
        lines = (f"{name}={shlex.quote(value)}\n" for name, value in content.items())
        (root / "settings").write_text("".join(lines), encoding="utf-8")
        pack = 'cd "$1" && find . | cpio --quiet -o -H newc > "$2"'
        host.run(["sh", "-c", pack, "pack", str(root), str(target)])


def _modules(host: LocalHost, kernel: Kernel, names: Sequence[str]) -> Iterator[Path]:
    """The modules in the order in which they are inserted, those they depend on first."""
    for name in names:
        command = ["modprobe", "-d", str(kernel.root), "-S", kernel.release, "--show-depends", name]
        try:
            told = host.run(command).stdout
        except CommandFailed as error:
            raise InputError(
                f"dut.kernel {kernel.name}: {kernel.modules} has no module {name}, which a guest "
                "of tailtap needs"
            ) from error
        for line in told.splitlines():
            kind, _, rest = line.strip().partition(" ")
            if kind == "insmod":  # the others are part of the kernel itself
                yield Path(rest.split()[0])


def _read(path: Path) -> bytes:
    reader = READERS.get(path.suffix)
    if reader is None:
        raise InputError("cannot read modules packed this way: unpack them, then depmod").at(path)
    return reader(path.read_bytes())


DISK = Path("/run/disk")
"""In the guest."""
QCOW2 = b"QFI\xfb"
"""How a file of QEMU's copy-on-write format begins; docs/interop/qcow2.txt of QEMU."""
MOUNT = f"""
modprobe virtio_blk || true
for tried in 1 2 3 4 5 6 7 8 9 10; do [ ! -e /sys/class/block/vda ] || break; sleep 0.2; done
mkdir -p {DISK}.lower {DISK}.memory {DISK}
mount -t tmpfs tmpfs {DISK}.memory
mkdir {DISK}.memory/upper {DISK}.memory/work
# The largest first: others are for booting.
for size in $(for one in /sys/class/block/vda*; do echo "$(cat $one/size):${{one##*/}}"; done \\
              | sort -t: -k1,1nr -k2,2r); do
    device=/dev/${{size#*:}}
    mount -o ro "$device" {DISK}.lower 2>/dev/null || continue
    if [ -d {DISK}.lower/etc ] || [ -d {DISK}.lower/bin ]; then found=$device; break; fi
    umount {DISK}.lower
done
if [ -z "${{found:-}}" ]; then
    echo "no file system with /etc or /bin on it can be mounted" >&2
    exit 1
fi
mount -t overlay -o lowerdir={DISK}.lower,upperdir={DISK}.memory/upper,workdir={DISK}.memory/work \\
    overlay {DISK}
for folder in dev proc sys; do mkdir -p {DISK}/$folder; mount --rbind /$folder {DISK}/$folder; done
echo "$found"
"""


def form(image: Path) -> str:
    """The format of a disk, as QEMU calls it. Raises `InputError` for what is no file."""
    try:
        with image.open("rb") as file:
            return "qcow2" if file.read(len(QCOW2)) == QCOW2 else "raw"
    except OSError as error:
        raise NotRead(error, f"cannot read {image}").at("dut.image") from error


@dataclass(frozen=True)
class FilesOfDisk(OwnFiles):
    """The files of a guest's disk."""

    guest: GuestHost

    def _require(self, program: str, path: str) -> None:
        folders = path.split(":") if "/" not in program else [""]
        places = [f"{self.root}{folder}/{program.lstrip('/')}" for folder in folders]
        command = ["sh", "-c", 'for one; do [ ! -e "$one" ] || exit 0; done; exit 1', "sh", *places]
        try:
            self.guest.run(command)
        except CommandFailed:
            raise MachineError(
                f"dut.options.command: the program {program} is not on the disk"
            ) from None


def mounted(guest: GuestHost, image: Path) -> tuple[FilesOfDisk, str]:
    """The files of the disk of a guest that is up, and the device that has them.

    Raises `MachineError` where nothing on it can be mounted.
    """
    try:
        device = guest.run(["sh", "-ec", MOUNT]).stdout.strip()
    except CommandFailed as error:
        raise MachineError(f"dut.image: {image}: {error.reason}") from error
    return FilesOfDisk(DISK, None, _entering, guest), device


def _entering(inner: Inner) -> list[str]:
    """What runs a command of the disk in the guest."""
    variables = [f"{name}={value}" for name, value in inner.environment.items()]
    return ["env", "-i", *variables, "chroot", str(DISK), *inner.words]
