"""This machine, and its containers: commands run in their namespaces and control groups.

What is started is a `Process` that reports events as lines of JSON.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tailtap.base.errors import MachineError
from tailtap.base.files import copy, drafted
from tailtap.base.foreign import json_object
from tailtap.base.proc import PROC, stats
from tailtap.base.units import list_cpus
from tailtap.remote import CommandFailed, Completed, NoAnswer, ProgramMissing

STOP_SECONDS = 30.0
"""How long a process may take to finish after it was asked to: a tap writes its stamps then."""
ENDS_WHEN_ASKED = ("env", "--default-signal=INT,TERM")
"""Starts a command that the signals of `Process.interrupt` and `Process.close` reach, env(1)."""
MAX_ERRORS = 4096
"""How many bytes of a process's standard error are worth quoting."""


class Process:
    """A child process: its output is read line by line, its errors are kept for messages."""

    def __init__(self, command: Sequence[str], title: str, *, with_input: bool = False) -> None:
        """Start `command`, called `title` in messages. Raises `MachineError` if it is missing.

        `with_input`, it can be written to; else its input is empty.
        """
        self.title = title
        self._buffer = b""
        self._open = True
        self._interrupted = False
        # Errors go to a file: a pipe that nobody reads would block the child when it is full.
        self._stderr = os.memfd_create("stderr")
        # A session of its own: Ctrl-C in the terminal reaches only us, and we stop the children
        # in order. The kernel ends the child if we are killed. In the background of a shell we are
        # started with SIGINT ignored, which a child would inherit.
        try:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *ENDS_WHEN_ASKED, *command],
                stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise ProgramMissing("setpriv", "apt-get install util-linux") from error
        assert self._child.stdout is not None
        self._stdout = self._child.stdout
        os.set_blocking(self._stdout.fileno(), False)

    def fileno(self) -> int:
        """The descriptor of the output, readable when there is a line or the process ended."""
        return self._stdout.fileno()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def ended(self) -> bool:
        return self._child.poll() is not None

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        status = self._child.poll()
        return None if status is None else self._meaning(status)

    def errors(self) -> str:
        """What the process wrote to standard error, as one line."""
        return self._errors(0)

    def last_errors(self) -> str:
        """The same of what it wrote last, where that is much."""
        return self._errors(max(0, os.fstat(self._stderr).st_size - MAX_ERRORS))

    def _errors(self, begin: int) -> str:
        said = os.pread(self._stderr, MAX_ERRORS, begin)
        return " ".join(said.decode(errors="replace").split())

    def input_fileno(self) -> int:
        """The descriptor of its input, of a process that was started with one."""
        assert self._child.stdin is not None  # it was started so
        return self._child.stdin.fileno()

    def end_input(self) -> None:
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def wait(self, timeout: float) -> None:
        """Return when the process has ended, or after `timeout` s."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout)

    def readable(self) -> bool:
        """Whether there is output to read, or its end, without waiting."""
        waiting = select.poll()
        waiting.register(self._stdout, select.POLLIN)
        return bool(self._buffer or waiting.poll(0))

    def read_line(self, timeout: float) -> str | None:
        """The next line of output; None at its end. Raises `TimeoutError` after `timeout` s."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer and self._open:
            with selectors.DefaultSelector() as selector:
                selector.register(self._stdout, selectors.EVENT_READ)
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(self.title)
            chunk = os.read(self._stdout.fileno(), 65536)
            self._open = bool(chunk)
            self._buffer += chunk
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def read_available(self) -> list[str] | None:
        """Every whole line that is there now, without waiting; None at the end of the output."""
        try:
            chunk = os.read(self._stdout.fileno(), 65536)
            self._open = bool(chunk)
        except BlockingIOError:
            chunk = b""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        if not lines and not self._open:
            return None
        return [line.decode(errors="replace") for line in lines]

    def ready(self, timeout: float) -> Self:
        """Itself, when it has said that it is ready; else it is ended. Raises `MachineError`."""
        try:
            self.expect("ready", timeout)
        except BaseException:
            self.close()
            raise
        return self

    def expect(self, event: str, timeout: float) -> dict[str, Any]:
        """Wait for the JSON line whose ``event`` is `event`.

        Raises `MachineError` when the process ends without it or `timeout` seconds pass.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self.read_line(max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise MachineError(
                    f"{self.title}: no {event!r} event within {timeout:g} s {self.errors()}".strip()
                ) from error
            if line is None:
                raise MachineError(self.failure())
            content = json_object(line)
            if content.get("event") == event:
                return content

    def read_object(self, timeout: float) -> dict[str, Any]:
        """Wait for the end and return the JSON object that was printed. Raises `MachineError`."""
        content = json_object(self.read_to_end(timeout))
        if not content:
            raise MachineError(self.failure())
        return content

    def read_to_end(self, timeout: float) -> str:
        """Wait for the end and return what was printed.

        Raises `MachineError` for a failure; an end that `interrupt` asked for is none.
        """
        lines: list[str] = []
        deadline = time.monotonic() + timeout
        try:
            while (line := self.read_line(max(0.0, deadline - time.monotonic()))) is not None:
                lines.append(line)
        except TimeoutError as error:
            raise MachineError(f"still running after {timeout:g} s").at(self.title) from error
        if self._child.wait() != 0 and not self._interrupted:
            raise MachineError(self.failure())
        return "\n".join(lines)

    def failure(self) -> str:
        """Why the process ended without its result, as one line."""
        return f"{self.title} {self.ending()}"

    def ending(self) -> str:
        """How the process ended, and what it said: `failure` without the title."""
        try:
            status = self._child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return "closed its output and runs on"
        status = self._meaning(status)
        if status < 0:
            ended = f"was ended by {signal.Signals(-status).name}"
        else:
            ended = f"ended with status {status}"
        said = self.errors().removeprefix("tailtap: ")
        return ended + (f": {said}" if said else "")

    def interrupt(self) -> None:
        """Ask the process to finish, as Ctrl-C would."""
        if not self.ended:
            self._interrupted = True
        self._send(signal.SIGINT)

    def close(self) -> None:
        """End the process if it still runs, and let go of its files. May be called again."""
        if not self.ended:
            self._send(signal.SIGTERM)
            try:
                self._child.wait(timeout=5.0)
            except subprocess.TimeoutExpired:
                self._send(signal.SIGKILL)
                self._child.wait()
        self.end_input()
        if not self._stdout.closed:
            self._stdout.close()
            os.close(self._stderr)

    def _send(self, number: signal.Signals) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _meaning(self, status: int) -> int:
        """What the child's exit status says of the command: negative for a signal."""
        return status


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
