"""A disk from which GRUB boots a kernel by default, or once what its environment names.

Made without root's rights and without a loop device: the first sector, GRUB's own image behind it,
and one partition with an ext4 that `mke2fs -d` fills.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

from tailtap.measure.testbed.image import Image

GRUB = Path("/usr/lib/grub/i386-pc")
MODULES = ("biosdisk", "part_msdos", "ext2", "normal", "linux", "configfile", "loadenv", "search",
           "search_fs_uuid", "serial", "terminal", "test", "echo", "sleep")  # fmt: skip
SECTOR, FIRST = 512, 2048
"""Bytes of a sector, and where the partition begins."""
SIZE_MIB = 512
CODE = 440
"""Bytes of the first sector that are GRUB's; disk signature and partitions follow."""
CONFIG = """\
serial --unit=0 --speed=115200
terminal_output serial
set timeout=0
set default=0
load_env
if [ "${{next_entry}}" ]; then
    set default="${{next_entry}}"
    set next_entry=
    save_env next_entry
fi
menuentry 'default' --id default {{
    linux /vmlinuz-{release} {line}
    initrd /initrd.img-{release}
}}
if [ -f $prefix/custom.cfg ]; then source $prefix/custom.cfg; fi
"""


def grub_disk(folder: Path, image: Image, line: str) -> Path:
    """A disk in `folder` that boots `image` with the words of `line`."""
    files, release = folder / "files", image.release
    (files / "grub").mkdir(parents=True)
    os.link(image.kernel, files / f"vmlinuz-{release}")
    archives = image.key.read_bytes() + image.initrd.read_bytes()
    (files / f"initrd.img-{release}").write_bytes(archives)
    (files / "grub/grub.cfg").write_text(CONFIG.format(release=release, line=line))
    subprocess.run(["grub-editenv", str(files / "grub/grubenv"), "create"], check=True)
    core = folder / "core.img"
    command = ["grub-mkimage", "-O", "i386-pc", "-o", str(core), "-p", "(hd0,msdos1)/grub"]
    subprocess.run([*command, *MODULES], check=True)
    assert core.stat().st_size < (FIRST - 1) * SECTOR
    disk = folder / "disk.img"
    with disk.open("wb") as file:
        file.write((GRUB / "boot.img").read_bytes()[:CODE])
        sectors = SIZE_MIB * (1 << 20) // SECTOR
        # A partition that may be booted, of Linux's type (0x83), by its sectors.
        partition = struct.pack("<B3sB3sII", 0x80, b"\xff" * 3, 0x83, b"\xff" * 3, FIRST, sectors)
        file.write(bytes(6) + partition + bytes(48) + b"\x55\xaa")
        file.write(core.read_bytes())
        file.truncate((FIRST + sectors) * SECTOR)
    make = ["mke2fs", "-q", "-t", "ext4", "-d", str(files), "-E", f"offset={FIRST * SECTOR}"]
    subprocess.run([*make, str(disk), f"{SIZE_MIB}M"], check=True)
    shutil.rmtree(files)
    return disk
