"""Machines that OpenSSH reaches: one connection each, with our program at its other end.

ssh's own configuration says users, keys and jump hosts. The connection is not shared with others:
a signal to a shared one ends the local program only (OpenSSH's PROTOCOL.mux). Nothing is sent to
keep it alive, as that would wake up a machine that is measured. A machine is asked for an
interpreter and nothing else: our program, and what roles need of Python packages, comes along.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import select
import shlex
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import tailtap
from tailtap.base.errors import MachineError
from tailtap.measure.testbed.model import Host
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
SSH_FAILED, NO_COMMAND = 255, 127
"""The status by which ssh says that there was no connection, and a shell that there is no such
program."""
QUIET = ("BatchMode=yes", f"ConnectTimeout={CONNECT_SECONDS}", "ServerAliveInterval=0",
         "ControlMaster=no", "ControlPath=none", "ForwardAgent=no", "ForwardX11=no",
         "RequestTTY=no", "EscapeChar=none")  # fmt: skip

_NO_SUDO = re.compile(r"sudo: (?!unable to resolve host)")
"""What it says of a host's name changes nothing."""
_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")


class SshStation(StreamStation):
    """A machine of a testbed."""

    def __init__(self, name: str, host: Host, config: str | None = None) -> None:
        """`host`, called `name` in messages. `config` is ssh's configuration file, if not its own.

        Nothing is reached yet.
        """
        super().__init__([], name)
        self._host, self._config = host, config

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
            _hello(process, self.name, run)
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
        words = [self._host.python, "-I", "-S", "-c", _BOOTSTRAP.read_text("utf-8")]
        python = shlex.join(words)
        # A login that is not root's becomes root without being asked for a password.
        script = f'[ "$(id -u)" = 0 ] && exec {python}; exec sudo -n -- {python}'
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
        if status == NO_COMMAND:
            return f"{self.title} has no such interpreter: install python3, or name it in `python`"
        if status == SSH_FAILED:
            last = said.replace("\r", "").strip() or "no reason given"
            return f"{self.title} cannot be reached by ssh: {last}"
        return usual


class Hello(Record, kw_only=True):
    """What the interpreter of a host says of itself."""

    python: list[int]
    machine: str
    there: bool


def _hello(process: Process, name: str, run: Sequence[str]) -> None:
    """Have the interpreter there become our program. Raises `MachineError`."""
    ours = program()
    folder = f"{PLACE}/{ours.identity}"
    _send(process, json.dumps({"folder": folder, "run": list(run)}).encode() + b"\n", HELLO_SECONDS)
    told = parsed(process.title, _line(process, HELLO_SECONDS), Hello, MachineError)
    if tuple(told.python) != sys.version_info[:2]:
        theirs, here = (".".join(map(str, one)) for one in (told.python, sys.version_info[:2]))
        raise MachineError(
            f"{name} has Python {theirs} and this machine {here}, and our program is made for one "
            "of them: name another interpreter there in `python`"
        )
    if told.machine != platform.machine():
        raise MachineError(
            f"{name} is of the architecture {told.machine} and this machine of "
            f"{platform.machine()}: our program runs on one of them only"
        )
    if not told.there:
        archive, checksum = ours.packed
        said = json.dumps({"bytes": len(archive), "sha256": checksum})
        _send(process, said.encode() + b"\n" + archive, SEND_SECONDS)


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


NEEDED = ("click", "msgspec", "pydantic", "pyroute2", "PyYAML")
"""The distributions that roles import, besides what these require in turn."""
PLACE = "/var/lib/tailtap/programs"
"""Where programs are kept there, in folders called after what is in them."""
UNUSED = (".pyi", ".pyc", ".md")


@dataclass(frozen=True)
class Program:
    """Files by the path at which they are found below the program's folder."""

    files: dict[str, Path]

    @cached_property
    def identity(self) -> str:
        """A checksum of all names and contents, in hexadecimal digits."""
        total = hashlib.sha256()
        for name, path in self.files.items():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{content}  {name}\n".encode())
        return total.hexdigest()

    @cached_property
    def packed(self) -> tuple[bytes, str]:
        """All of them as a compressed tar file, and its SHA-256 in hexadecimal digits."""
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as squeezed,
            tarfile.open(fileobj=squeezed, mode="w") as content,
        ):
            for name, path in self.files.items():
                entry = tarfile.TarInfo(name)
                data = path.read_bytes()
                entry.size, entry.mode = len(data), 0o755 if path.suffix == ".so" else 0o644
                content.addfile(entry, io.BytesIO(data))
        archive = packed.getvalue()
        return archive, hashlib.sha256(archive).hexdigest()


@cache
def program() -> Program:
    """The program that runs here."""
    files = dict(_own())
    for name in sorted(_required(NEEDED)):
        files |= dict(_of(name))
    return Program(dict(sorted(files.items())))


def _own() -> Iterator[tuple[str, Path]]:
    root = Path(tailtap.__file__).parent
    # A wheel has the libraries that the module is linked with beside the package.
    for folder in (root, root.with_name("tailtap.libs")):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in UNUSED:
                yield str(path.relative_to(root.parent)), path


def _required(names: tuple[str, ...]) -> set[str]:
    """These distributions and all that they need, extras left out."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            for line in metadata.requires(name) or ():
                requirement, _, marker = line.partition(";")
                if not marker:
                    left.append(requirement.split("=")[0].rstrip("<>!~ "))
    return found


def _of(name: str) -> Iterator[tuple[str, Path]]:
    for file in metadata.files(name) or ():
        path = Path(str(file.locate()))
        # Programs and data lie outside the folder of packages.
        if path.is_file() and path.suffix not in UNUSED and ".." not in file.parts:
            yield str(file), path


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
