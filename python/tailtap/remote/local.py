"""This machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tailtap.base.files import copy
from tailtap.remote import CommandFailed, Completed, NoAnswer, ProgramMissing
from tailtap.remote.process import Process

COMMAND_SECONDS = 60.0
"""No command that sets something up takes longer; one that does hangs."""
PACKAGES = {
    "perf": "linux-perf",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ipmitool": "ipmitool",
    "qemu-system-x86_64": "qemu-system-x86",
    "virt-qemu-run": "libvirt-daemon",
    "modprobe": "kmod",
    "depmod": "kmod",
    "setpriv": "util-linux",
    "lxc-start": "lxc",
    "lxc-info": "lxc",
    "lxc-attach": "lxc",
    "lxc-stop": "lxc",
    "crun": "crun",
    "runc": "runc",
    "podman": "podman",
    "virsh": "libvirt-clients",
}
"""The Debian package of each program that tailtap calls."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are: containers and users other than root often lack the sbin folders."""


def require_program(name: str, remedy: str | None = None) -> str:
    """The path of a program of this machine. Raises `ProgramMissing`."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if found is None:
        raise missing(name, remedy)
    return found


def missing(name: str, remedy: str | None = None) -> ProgramMissing:
    """The error for a program that is not there; its Debian package helps unless told otherwise."""
    return ProgramMissing(name, remedy or f"apt-get install {PACKAGES.get(name, name)}")


class LocalHost:
    """Commands run on this machine, as the user who started tailtap."""

    own_kernel = False
    own_files = False
    prefix: Sequence[str] = ()
    """What goes in front of every command; the kinds of hosts on this machine differ in it."""

    @property
    def name(self) -> str:
        return "this machine"

    @property
    def program(self) -> Sequence[str]:
        """How the `tailtap` program is called: by the interpreter that runs right now.

        ``-P`` keeps the folder in which the user stands out of Python's search path.
        """
        return (sys.executable, "-P", "-m", "tailtap")

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: str = "",
        check: bool = True,
        seconds: float = COMMAND_SECONDS,
    ) -> Completed:
        """Run `command` to its end, for `seconds` at most. Raises `CommandFailed` on a failure
        unless `check` is off, and `MachineError` when the program is missing.
        """
        whole = [*self.prefix, *command]
        try:
            done = subprocess.run(
                whole,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError as error:
            raise missing(whole[0]) from error
        except subprocess.TimeoutExpired as error:
            raise NoAnswer(whole, seconds) from error
        if check and done.returncode != 0:
            raise CommandFailed(whole, done.stderr or f"status {done.returncode}")
        return Completed(done.stdout, done.stderr, done.returncode)

    def start(self, command: Sequence[str]) -> Process:
        return Process([*self.prefix, *command], self.title(command))

    def title(self, command: Sequence[str]) -> str:
        """What `command` is called in messages."""
        words = command[len(self.program) :] if self._is_ours(command) else command
        return f"{'tailtap ' if self._is_ours(command) else ''}{words[0]}"

    def put(self, source: Path, target: Path) -> None:
        copy(source, target)

    def get(self, source: Path, target: Path) -> None:
        copy(source, target)

    def _is_ours(self, command: Sequence[str]) -> bool:
        return list(command[: len(self.program)]) == list(self.program)


class NamespaceHost(LocalHost):
    """Commands run by ``ip netns exec``, which also shows the namespace's own sysfs."""

    def __init__(self, namespace: str) -> None:
        """A host for the existing network namespace `namespace`."""
        self.namespace = namespace
        self.prefix = ("ip", "netns", "exec", namespace)

    @property
    def name(self) -> str:
        return f"namespace {self.namespace}"
