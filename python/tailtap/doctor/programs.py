"""Programs that tailtap or its DuTs use, and the Debian packages that bring them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from tailtap.base.check import Check
from tailtap.remote.local import SYSTEM_PATH

AREA = "programs"


@dataclass(frozen=True)
class Program:
    """A program, what it is for, and where it comes from."""

    name: str
    package: str
    purpose: str
    required: bool = False


PROGRAMS = (
    Program("ip", "iproute2", "namespaces and links", required=True),
    Program("tc", "iproute2", "the forwarder tc-mirred", required=True),
    Program("setpriv", "util-linux", "ends children with tailtap", required=True),
    Program("ethtool", "ethtool", "drivers, firmware and timestamping of network cards"),
    Program("perf", "linux-perf", "profiles of a DuT"),
    Program("tshark", "tshark", "reading captures independently"),
    Program("lxc-start", "lxc", "DuTs in containers"),
    Program("crun", "crun", "DuTs in containers of crun, and Podman"),
    Program("runc", "runc", "DuTs in containers of runc"),
    Program("podman", "podman", "DuTs in containers of Podman"),
    Program("catatonit", "catatonit", "containers with `dut.image`, or a folder as `dut.root`"),
    Program("mmdebstrap", "mmdebstrap", "containers with `dut.root: debian`"),
    Program("qemu-system-x86_64", "qemu-system-x86", "DuTs in virtual machines"),
)


def check_programs() -> Iterator[Check]:
    """One check for each program."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    for program in PROGRAMS:
        found = shutil.which(program.name, path=path)
        if found:
            yield Check(AREA, program.name, "ok", found, required=program.required)
        else:
            remedy = f"apt-get install {program.package}, for {program.purpose}"
            yield Check(AREA, program.name, "missing", "not found", remedy, program.required)
