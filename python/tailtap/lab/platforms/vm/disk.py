"""A virtual machine's own disk: its files are the device's, under the kernel of `dut.kernel`.

The disk is attached as it is, and read alone. The guest boots as any other of ours, with our agent
on this machine's files, mounts the disk's root file system below `DISK`, and puts an overlay in
memory upon it, which takes what is written. The device's command runs there by chroot(1). So
nothing has to be put into the disk, and its own boot loader, kernel and services are not started.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tailtap.base.errors import MachineError, NotRead
from tailtap.host.containers.container import Inner
from tailtap.lab.platforms.dut import OwnFiles
from tailtap.remote import CommandFailed
from tailtap.remote.guest import GuestHost

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
