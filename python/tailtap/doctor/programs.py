"""Programs that tailtap or its DuTs use, and who else can write where results go."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tailtap.base.errors import Check
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


FOLDERS = "folders"


def check_folder(folder: Path | None = None) -> Iterator[Check]:
    """Whether only this user can write to `folder` and those around it; by default the current one.

    Who can write there can change results, and what is read from them, while tailtap runs as root.
    """
    place = (folder or Path()).resolve()
    for one in (place, *place.parents):
        found = _others(one.stat())
        if found:
            remedy = f"keep results where only you can write, or `chmod go-w {one}`"
            yield Check(FOLDERS, "results", "poor", f"{one}: {found}", remedy)
            return
    yield Check(FOLDERS, "results", "ok", f"{place}: only its owner can change it")


def _others(told: os.stat_result) -> str:
    us = {0, os.geteuid(), int(os.environ.get("SUDO_UID", os.geteuid()))}
    if told.st_uid not in us:
        return f"it belongs to {_user(told.st_uid)}"
    if told.st_mode & stat.S_ISVTX:
        return ""
    if told.st_mode & stat.S_IWOTH:
        return "everybody can write there"
    if told.st_mode & stat.S_IWGRP and not _own_group(told):
        return f"the group {_group(told.st_gid)} can write there"
    return ""


def _own_group(told: os.stat_result) -> bool:
    """Whether nobody but the owner is in the folder's group."""
    try:
        owner, group = pwd.getpwuid(told.st_uid), grp.getgrgid(told.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == group.gr_gid and not set(group.gr_mem) - {owner.pw_name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"the user {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
