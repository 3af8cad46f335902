"""A process that has imported the program already, and becomes `tailtap` for each call.

Importing takes longer than most of what tests ask of the program. The process imports what
commands use, in one thread, and forks for each call; what it forks has the arguments, folder,
environment and files of that call, as a program that is started has them.

A call is a message on a Unix socket: JSON with three descriptors. Its answers are the number of the
process that runs it with the memory that it has before, and its status with the most memory that it
had meanwhile.

For very many calls there is a process that stays: it runs one after the other without a fork, which
takes longer than most of them do.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

MOST_BYTES = 1 << 20
READ_AT_START = ("PYTHON", "LD_")
"""How the names of variables begin that an interpreter reads as it starts, and not again."""
LIBRARIES = ("numpy", "pyarrow.parquet", "duckdb", "scipy.stats", "yaml", "pydantic", "rich.table")


def start_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(READ_AT_START)}


START_VARIABLES = start_variables()
"""Those with which the process starts: what needs others is no call for it."""


class Ended(Exception):
    """The process that stays has ended within a call."""


class Program:
    """A process that has imported the program, from the side of a test."""

    def __init__(self, connected: socket.socket) -> None:
        """At the other end of the socket. It ends with this process, whose end is closed then."""
        self._lock, self._socket = threading.Lock(), connected

    def call(
        self,
        command: Sequence[str],
        out: int,
        error: int,
        timeout: float,
        *,
        beside: int | None = None,
    ) -> int:
        """Run `command` with files for its output and errors; its status, negative for a signal.

        `beside` is a process whose mount and network namespaces it has. Raises
        `subprocess.TimeoutExpired` after so many seconds, when it was killed.
        """
        return self.measured(command, out, error, timeout, beside=beside)[0]

    def measured(
        self,
        command: Sequence[str],
        out: int,
        error: int,
        timeout: float,
        *,
        folder: Path | None = None,
        beside: int | None = None,
        more_bytes: int | None = None,
        cpu_seconds: int | None = None,
    ) -> tuple[int, int]:
        """The same in `folder`, with the most memory that it had resident beyond what it began
        with, in bytes.

        It can have `more_bytes` of addresses than it starts with, and is killed (SIGXCPU) when it
        has used so many seconds of CPU time: those do not depend on what else the machine does.
        """
        asked = {
            "command": list(command),
            # As behind nsenter(1), at the root of another mount namespace.
            "folder": str(folder or ("/" if beside else Path.cwd())),
            "beside": beside,
            "environment": dict(os.environ),
            "more_bytes": more_bytes,
            "cpu_seconds": cpu_seconds,
        }
        with self._lock, Path(os.devnull).open("rb") as nothing:
            self._ask(asked, [nothing.fileno(), out, error])
            pid, began = self._answer(None)
            try:
                status, peak = self._answer(timeout)
            except TimeoutError as late:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(Ended):
                    self._answer(None)
                raise subprocess.TimeoutExpired(command, timeout) from late
            return status, max(0, peak - began)

    def close(self) -> None:
        self._socket.close()

    def _ask(self, asked: dict[str, Any], files: list[int]) -> None:
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], files)
        except BrokenPipeError as error:
            raise Ended from error

    def _answer(self, timeout: float | None) -> tuple[int, int]:
        self._socket.settimeout(timeout)
        try:
            answer = self._socket.recv(MOST_BYTES)
        except ConnectionResetError as error:
            raise Ended from error
        if not answer:
            raise Ended
        first, second = map(int, answer.split())
        return first, second


class Zygote(Program):
    """The process that forks for each call."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        # One thread: a thread that holds a lock while the process forks would hold it for ever.
        others = {
            name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)
        }
        environment = {**others, **START_VARIABLES, "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)

    def staying(self) -> Program:
        """A process that stays. Each call of it raises `Ended` when it ends the process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock, theirs:
            self._ask({"stays": True}, [theirs.fileno()])
        return Program(ours)


@cache
def zygote() -> Zygote:
    return Zygote()


def load() -> Callable[[], NoReturn]:
    """Import all of the program; what runs it."""
    for name in LIBRARIES:
        importlib.import_module(name)
    import tailtap
    from tailtap.cli import main

    for module in pkgutil.walk_packages([str(Path(tailtap.__file__).parent)], "tailtap."):
        # Programs, which run when they are imported.
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return main


def _serve(connected: socket.socket) -> None:
    main = load()
    while asked := _asked(connected):
        call, files = asked
        stays = "stays" in call
        pid = os.fork()
        if pid == 0 and stays:
            connected.close()
            _stay(main, socket.socket(fileno=files[0]))
            os._exit(0)
        if pid == 0:
            _begin(connected, call, files)
            connected.close()
            os._exit(_ended(main))
        for file in files:
            os.close(file)
        if not stays:
            _, status, used = os.wait4(pid, 0)
            connected.send(f"{os.waitstatus_to_exitcode(status)} {used.ru_maxrss << 10}".encode())


def _stay(main: Callable[[], NoReturn], connected: socket.socket) -> None:
    while asked := _asked(connected):
        _begin(connected, *asked)
        status = _ended(main)
        connected.send(f"{status} {_memory('VmHWM')}".encode())


def _asked(connected: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next call and its files; nothing when there is none any more."""
    message, files, _, _ = socket.recv_fds(connected, MOST_BYTES, 3)
    return (json.loads(message), files) if message else None


def _begin(connected: socket.socket, asked: dict[str, Any], files: Sequence[int]) -> None:
    """Be the program that is asked for, as if it had just started."""
    # The most that it has had is from now on what it has now.
    Path("/proc/self/clear_refs").write_text("5")
    connected.send(f"{os.getpid()} {_memory('VmRSS')}".encode())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if (beside := asked["beside"]) is not None:
        for kind in ("net", "mnt"):
            _enter(Path(f"/proc/{beside}/ns/{kind}"))
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    sys.argv[:] = asked["command"]
    if (more := asked["more_bytes"]) is not None:
        _limit(resource.RLIMIT_AS, _memory("VmSize") + more)
    if (seconds := asked["cpu_seconds"]) is not None:
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds))


def _enter(namespace: Path) -> None:
    """Move this process there, setns(2)."""
    with namespace.open("rb") as opened:
        if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), 0):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(namespace))


def _limit(which: int, most: int) -> None:
    resource.setrlimit(which, (most, resource.getrlimit(which)[1]))


def _memory(field: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) << 10


def _ended(main: Callable[[], NoReturn]) -> int:
    status: Any = 1
    try:
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connected:
        _serve(connected)
