"""This machine, and its containers: commands run in their namespaces and control groups."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailtap.base.files import copy, drafted
from tailtap.base.proc import PROC, stats
from tailtap.base.units import list_cpus
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
        return (sys.executable, "-P", "-m", "tailtap")

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: str = "",
        check: bool = True,
        seconds: float = COMMAND_SECONDS,
    ) -> Completed:
        whole = [*self.prefix, *command]
        done = _ran(whole, seconds, input=stdin, stdout=subprocess.PIPE)
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


def _ran(words: list[str], seconds: float, **streams: Any) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            **streams,
        )
    except FileNotFoundError as error:
        raise missing(words[0]) from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(words, seconds) from error


class NamespaceHost(LocalHost):
    """Commands run by ``ip netns exec``, which also shows the namespace's own sysfs."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.prefix = ("ip", "netns", "exec", namespace)

    @property
    def name(self) -> str:
        return f"namespace {self.namespace}"


SIGNALLED, MOST_SIGNALLED = 128, 128 + signal.SIGRTMAX
"""What enters a container ends with this and the number of the signal that ended the command; with
255 where it could not enter."""


class ContainerHost(LocalHost):
    """Commands run by what enters a container, as its root and within its limits."""

    own_files = True

    def __init__(self, container: str, enter: Sequence[str], cpus: Sequence[int]) -> None:
        """A host for the running container `container`; what is started runs on `cpus`.

        `enter` goes in front of every command, such as the ``lxc-attach`` of that container.
        """
        self.container = container
        self.prefix = enter
        self._cpus = list_cpus(cpus)

    @property
    def name(self) -> str:
        return f"container {self.container}"

    def start(self, command: Sequence[str]) -> Process:
        # What enters ends with tailtap, and the command with that. The container's services
        # may have a CPU more than the DuT.
        within = ["setpriv", "--pdeathsig", "TERM", "--", "taskset", "-c", self._cpus]
        return Attached([*self.prefix, *within, *command], self.title(command))

    def put(self, source: Path, target: Path) -> None:
        with source.open("rb") as file:
            self._copy(["sh", "-c", 'cat > "$1"', "put", str(target)], file.fileno(), None)

    def get(self, source: Path, target: Path) -> None:
        with drafted(target) as file:
            self._copy(["cat", str(source)], subprocess.DEVNULL, file.fileno())

    def _copy(self, command: Sequence[str], stdin: int, stdout: int | None) -> None:
        whole = [*self.prefix, *command]
        done = _ran(whole, COMMAND_SECONDS, stdin=stdin, stdout=stdout)
        if done.returncode != 0:
            raise CommandFailed(whole, done.stderr)


class ImageHost(NamespaceHost):
    """A container that has none of this machine's files.

    What sets up its ports are programs of this machine in its network namespace. What is started
    are commands of this machine that enter it (`Engine.entered`).
    """

    @property
    def name(self) -> str:
        return f"container {self.namespace}"

    def start(self, command: Sequence[str]) -> Process:
        # In the namespace it would not see this machine's control groups.
        return Attached(command, self.title(command))


class Attached(Process):
    """A command in a container, behind what entered it and waits."""

    @property
    def pid(self) -> int:
        """The command's process id on this machine; that of what enters until the command runs."""
        return next(iter(_inside(self._child.pid)), self._child.pid)

    def _meaning(self, status: int) -> int:
        return SIGNALLED - status if SIGNALLED < status <= MOST_SIGNALLED else status


def _inside(parent: int) -> list[int]:
    """The running processes that `parent` started in another process id namespace.

    What enters may have a second child on the way to the first, which stays in ours.
    """
    ours = (PROC / "self/ns/pid").readlink()
    found: list[int] = []
    for one in stats():
        if one.parent == parent and one.state != "Z":
            with contextlib.suppress(OSError):  # it ended just now
                if (PROC / str(one.pid) / "ns/pid").readlink() != ours:
                    found.append(one.pid)
    return found
