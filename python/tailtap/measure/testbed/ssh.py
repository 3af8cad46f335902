"""Machines that OpenSSH reaches: one connection each, with our program at its other end.

ssh's own configuration says users, keys and jump hosts. The connection is not shared with others:
a signal to a shared one ends the local program only (OpenSSH's PROTOCOL.mux). Nothing is sent to
keep it alive, as that would wake up a machine that is measured. A machine needs a shell and nothing
else: our program, and what roles need of Python packages, comes along, and an interpreter as well
where that of the machine does not fit.
"""

from __future__ import annotations

import os
import platform
import re
import select
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.measure.testbed.model import Host
from tailtap.measure.testbed.program import LIBC, bundle, libc_version, program
from tailtap.records.record import Record, parsed
from tailtap.remote import Completed, ProgramMissing
from tailtap.remote.agent import serve
from tailtap.remote.connection import Connection
from tailtap.remote.local import COMMAND_SECONDS, SYSTEM_PATH, Process, require_program
from tailtap.remote.mux import ProtocolError, parse
from tailtap.remote.stream import StreamStation

CONNECT_SECONDS = 15
"""How long a machine may take to take the connection."""
HELLO_SECONDS = 60.0
"""How long its interpreter may take to answer, a login included."""
SEND_SECONDS = 300.0
"""How long our program may take to get there."""
SSH_FAILED = 255
"""The status by which ssh says that there was no connection."""
QUIET = ("BatchMode=yes", f"ConnectTimeout={CONNECT_SECONDS}", "ServerAliveInterval=0",
         "ControlMaster=no", "ControlPath=none", "ForwardAgent=no", "ForwardX11=no",
         "RequestTTY=no", "EscapeChar=none")  # fmt: skip

_NO_SUDO = re.compile(r"sudo: (?!unable to resolve host)")
"""What it says of a host's name changes nothing."""
_BOOTSTRAP = Path(__file__).with_name("bootstrap.sh")


class SshStation(StreamStation):
    """A machine of a testbed."""

    def __init__(
        self,
        name: str,
        host: Host,
        config: str | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`host`, called `name` in messages. `config` is ssh's configuration file, if not its own.

        `tell` is given a line when our own interpreter was copied. Nothing is reached yet.
        """
        super().__init__([], name)
        self._host, self._config, self._tell = host, config, tell

    def _begin(self) -> Process:
        return self.start("tailtap.measure.roles.here")

    def clean(self) -> None:
        """Undo what dead measurements left there. Raises `MachineError`."""
        super().clean()
        process = self.start("tailtap", "clean", "--quiet")
        process.end_input()
        try:
            process.read_to_end(HELLO_SECONDS)
        finally:
            process.close()

    def start(self, *run: str) -> Process:
        """A module of our program there, with its input and output. Raises `MachineError`.

        The program is brought along first if it is not there.
        """
        process = _Login(self._login(), self.name)
        try:
            _hello(process, run, self._tell)
        except BaseException:
            process.close()
            raise
        return process

    def shell(self, script: str) -> Sequence[str]:
        """How to run a line of shell there, as the user who logs in. Raises `MachineError`."""
        assert self._host.ssh is not None  # or it would be this machine
        options = [word for option in QUIET for word in ("-o", option)]
        if self._config is not None:
            options = ["-F", self._config, *options]
        return [require_program("ssh"), *options, "--", self._host.ssh, script]

    def _login(self) -> Sequence[str]:
        taking = shlex.join(["sh", "-c", _BOOTSTRAP.read_text("utf-8"), "sh", self._host.python])
        # A login that is not root's becomes root without being asked for a password.
        script = f'[ "$(id -u)" = 0 ] && exec {taking}; exec sudo -n -- {taking}'
        return self.shell(f"exec sh -c {shlex.quote(script)}")


class _Login(Process):
    """ssh, whose end says what is wrong with the connection."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        super().__init__(command, name, with_input=True)

    def failure(self) -> str:
        """Why there is no program at the other end, as one line."""
        usual = super().failure()
        said, status = self.errors(), self.status
        if "IDENTIFICATION HAS CHANGED" in said:
            return (
                f"{self.title}: its host key is another one than before: find out why, then "
                "remove the old one with `ssh-keygen -R`"
            )
        if "Host key verification failed" in said:
            return f"{self.title}: its host key is not known: log in by hand once, and compare it"
        if _NO_SUDO.search(said):
            return (
                f"{self.title}: the login may not become root without a password: log in as root, "
                "or allow it NOPASSWD in sudoers(5)"
            )
        if status == SSH_FAILED:
            last = said.replace("\r", "").strip() or "no reason given"
            return f"{self.title} cannot be reached by ssh: {last}"
        return usual


class Hello(Record, kw_only=True):
    """What a host says of itself."""

    python: str
    """The version of its interpreter, such as ``3.11``; empty where there is none."""
    libc: str
    machine: str


class Kept(Record, kw_only=True):
    """Whether a host has the program."""

    there: bool


def _hello(process: Process, run: Sequence[str], tell: Callable[[str], None]) -> None:
    """Have the shell there become our program. Raises `MachineError`."""
    name = process.title
    had = parsed(name, _line(process, HELLO_SECONDS), Hello, MachineError)
    if had.machine != platform.machine():
        raise MachineError(
            f"{name} is of the architecture {had.machine} and this machine of "
            f"{platform.machine()}: our program runs on one of them only"
        )
    lacking = lacks(had)
    try:
        ours = bundle() if lacking else program()
    except MachineError as error:
        raise error.at(f"{name}: {lacking}") from error
    _send(process, f"{PLACE}/{ours.identity}\n".encode(), HELLO_SECONDS)
    if not _is_there(process, HELLO_SECONDS):
        archive, checksum = ours.packed
        began = time.monotonic()
        _send(process, f"{len(archive)} {checksum}\n".encode() + archive, SEND_SECONDS)
        _is_there(process, SEND_SECONDS)
        if lacking:
            tell(
                f"{name}: {lacking}: copied tailtap with its own Python, "
                f"{len(archive) / 1e6:.0f} MB in {time.monotonic() - began:.1f} s"
            )
    _send(process, f"{' '.join(run)}\n".encode(), HELLO_SECONDS)


def _is_there(process: Process, seconds: float) -> bool:
    return parsed(process.title, _line(process, seconds), Kept, MachineError).there


def lacks(had: Hello) -> str:
    """Why our program does not run by what a host has; empty where it does."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if had.python != here:
        return f"Python {had.python} is not {here}" if had.python else "there is no Python"
    if libc_version(had.libc) < libc_version(LIBC):
        return f"{had.libc or 'a C library that is no glibc'} is older than {LIBC}"
    return ""


def _send(process: Process, data: bytes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    descriptor = process.input_fileno()
    os.set_blocking(descriptor, False)
    while data:
        _wait(process, descriptor, select.POLLOUT, deadline)
        try:
            data = data[os.write(descriptor, data) :]
        except BrokenPipeError as error:
            raise MachineError(process.failure()) from error


def _line(process: Process, seconds: float) -> dict[str, Any]:
    """The next line, and not a byte more: what follows is for somebody else."""
    deadline = time.monotonic() + seconds
    found = b""
    while not found.endswith(b"\n"):
        _wait(process, process.fileno(), select.POLLIN, deadline)
        piece = os.read(process.fileno(), 1)
        if not piece:
            raise MachineError(process.failure())
        found += piece
    try:
        return parse(found)
    except ProtocolError:
        said = found.decode(errors="replace").strip()
        raise MachineError(
            f"{process.title} prints {said!r} before any program runs: make its shell's start-up "
            "files silent"
        ) from None


def _wait(process: Process, descriptor: int, event: int, deadline: float) -> None:
    waiting = select.poll()
    waiting.register(descriptor, event)
    if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise MachineError(f"{process.title} does not answer by ssh {process.errors()}".rstrip())


PLACE = "/var/lib/tailtap/programs"
"""Where programs are kept there, in folders called after what is in them."""
END_SECONDS = 5.0
MODULE = "tailtap.measure.testbed.ssh"


class FarHost:
    """A host that ssh reaches, for commands one after the other."""

    def __init__(self, station: SshStation) -> None:
        self.name = station.name
        self._process = station.start(MODULE)
        self._connection = Connection(
            self._process.fileno(),
            self._process.input_fileno(),
            self._process.title,
            self._process.failure,
        )
        try:
            self._connection.hello(time.monotonic() + HELLO_SECONDS)
        except TimeoutError as error:
            self.close()
            raise MachineError(f"{self.name} does not answer within {HELLO_SECONDS:g} s") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FarHost:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self, command: Sequence[str], *, check: bool = True, seconds: float = COMMAND_SECONDS
    ) -> Completed:
        """Run `command` there to its end, at most `seconds`.

        Raises `CommandFailed` on a failure unless `check` is off, and `MachineError` when the
        program is missing or the connection is.
        """
        environment = {"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8", "HOME": "/root"}
        try:
            return self._connection.completed(command, environment, "", seconds, check=check)
        except ProgramMissing as error:
            raise error.at(self.name) from error

    def put(self, source: Path, target: str) -> None:
        """Copy a file of this machine to `target` there. Raises `MachineError` and `OSError`."""
        self._connection.put(source, Path(target))

    def close(self) -> None:
        self._connection.close()
        self._process.end_input()
        self._process.wait(END_SECONDS)
        self._process.close()


if __name__ == "__main__":
    serve(sys.stdin.fileno(), sys.stdout.fileno())
