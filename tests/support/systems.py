"""Roots of other systems, by `make other-systems`: an older Debian, and Debian for aarch64.

The programs of the latter are emulated by this machine's kernel with qemu-user. Its own kernel runs
on a whole machine, which qemu-system emulates.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wheels import run

FOLDER = Path(sys.prefix, "other-systems")
EMULATOR = "/usr/bin/qemu-aarch64-static"
ELF = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
FORMAT = f":tt-aarch64:M::{ELF}:{MASK}:{EMULATOR}:F"
"""Which programs the kernel gives to the emulator (Documentation/admin-guide/binfmt-misc.rst)."""
# The list of such formats belongs to the user namespace: this machine's own stays as it is.
ENTER = """
if [ -n "$2" ]; then
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    printf %s "$2" > /proc/sys/fs/binfmt_misc/register
fi
mount --bind "$1" "$1" # a root that namespaces can be made in is a mount
for each in proc sys dev; do
    mount --rbind /$each "$1/$each"
done
mount -t tmpfs tmpfs "$1/tmp"; mount -t tmpfs tmpfs "$1/run"
exec chroot "$1" env -i HOME=/root LANG=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels \\
    PIP_NO_COMPILE=1 PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -euc "cd; $3"
"""
INIT = """\
#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp; mount -t bpf bpf /sys/fs/bpf
export HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin
cd
sh -eu /typed; echo "status $?"
echo o > /proc/sysrq-trigger; sleep 60
"""
# Its memory is the disk: what measuring in namespaces does not need stays out.
ARCHIVE = r"""
set -- "$1" wheels boot root/dist usr/share 'usr/lib/modules/*/kernel/sound' \
    'usr/lib/modules/*/kernel/drivers/[!n]*'
archive=$1; shift
for each in bokeh matplotlib pandas pyarrow scipy statsmodels; do
    set -- "$@" "root/tailtap/lib/*/site-packages/$each"
done
count=$#
for each; do set -- "$@" -path "./$each" -o; done
shift "$count"
find . \( "$@" -false \) -prune -o -print0 \
    | cpio --null --create --format=newc --quiet > "$archive"
"""


class System:
    """A root folder with Python 3.11: Debian 11 on x86_64, Debian 12 on aarch64."""

    def __init__(self, machine: str) -> None:
        """The one of that processor."""
        self.machine, self.folder = machine, FOLDER / machine

    def says(self, lines: str) -> str:
        """What these lines of a shell print, typed by root at home, where all succeed."""
        emulated = self.machine == "aarch64"
        apart = ("--map-root-user",) if emulated else ()
        return run("unshare", *apart, "--mount", "--propagation", "private", "bash", "-euc", ENTER,
                   "bash", self.folder, FORMAT if emulated else "", lines)  # fmt: skip

    def booted(self, lines: str, work: Path, seconds: float) -> str:
        """The same on a whole machine for aarch64; its first files are put into `work`."""
        [kernel] = self.folder.glob("boot/vmlinuz-*")
        run("depmod", "--basedir", self.folder, kernel.name.removeprefix("vmlinuz-"))
        (self.folder / "typed").write_text(lines)
        (self.folder / "init").write_text(INIT)
        (self.folder / "init").chmod(0o755)
        archive = work / "files.cpio"
        subprocess.run(
            ["sh", "-euc", ARCHIVE, "sh", archive], check=True, cwd=self.folder, timeout=seconds
        )
        done = subprocess.run(
            ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72", "-smp", "2",
             "-icount", "shift=0,sleep=off",  # it is not late where this machine is busy
             "-m", "4096", "-nographic", "-nodefaults", "-serial", "stdio", "-no-reboot",
             "-kernel", kernel, "-initrd", archive,
             "-append", "console=ttyAMA0 quiet loglevel=1 panic=-1"],
            check=False, capture_output=True, text=True, timeout=seconds,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        archive.unlink()
        said, _, rest = done.stdout.rpartition("status ")
        assert rest.split()[:1] == ["0"], done.stdout[-5_000:] + done.stderr
        return said
