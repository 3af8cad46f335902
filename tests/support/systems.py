"""Roots of other systems: an older Debian, and one for aarch64, whose programs are emulated."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from wheels import run

EMULATOR = "/usr/bin/qemu-aarch64-static"
OLD = "bullseye"
PYTHON_SOURCES = "bookworm"
"""Which Debian's source package of Python 3.11 is compiled for the older one, which has 3.9."""
BUILDS = ("gcc", "libc6-dev", "make", "zlib1g-dev", "libffi-dev", "libssl-dev",
          "liblzma-dev", "libbz2-dev")  # fmt: skip
LAB = ("iproute2", "ethtool", "kmod", "util-linux")
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
COMPILE = """
cd /usr/src
apt-get -qq update && apt-get -qq -o APT::Sandbox::User=root source --download-only python3.11
tar -xf python3.11_*.orig.tar.* --one-top-level=python --strip-components=1
cd python
{ ./configure && make -j "$(nproc)" CFLAGS=-O1 && make install; } > ../log 2>&1 || {
    tail ../log
    exit 1
}
"""


@dataclass(frozen=True)
class System:
    """A root folder with Python 3.11, for this machine's processor or for aarch64."""

    folder: Path
    machine: str

    def says(self, lines: str) -> str:
        """What these lines of a shell print, typed by root at home, where all succeed."""
        emulated = self.machine == "aarch64"
        apart = ("--map-root-user",) if emulated else ()
        return run("unshare", *apart, "--mount", "--propagation", "private", "bash", "-euc", ENTER,
                   "bash", self.folder, FORMAT if emulated else "", lines)  # fmt: skip


def old_system(folder: Path) -> System:
    """Debian 11: glibc 2.31."""
    mirror = "http://deb.debian.org/debian"
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include", ",".join((*BUILDS, *LAB)),
        OLD, folder, f"deb {mirror} {OLD} main",
        f"deb-src {mirror} {PYTHON_SOURCES} main")  # fmt: skip
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    system = System(folder, "x86_64")
    system.says(COMPILE)
    return system


def foreign_system(folder: Path) -> System:
    """Debian 12 for aarch64. No package is configured: none needs it."""
    packages = ("dash", "coreutils", "mount", "libstdc++6", "python3-venv", *LAB)
    run("mmdebstrap", "--quiet", "--architectures=arm64", "--variant=extract",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--include", ",".join(packages),
        "bookworm", folder)  # fmt: skip
    for name in ("proc", "sys", "run", "root"):  # of base-files, which needs many more
        (folder / name).mkdir(exist_ok=True)
    return System(folder, "aarch64")
