"""A virtual machine on this machine: its own kernel and interfaces, our own files read-only."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed, Completed, NoAnswer
from tailtap.remote.agent import MISSING
from tailtap.remote.connection import Connection
from tailtap.remote.local import COMMAND_SECONDS, LocalHost, missing
from tailtap.remote.process import Process
from tailtap.remote.relay import environment

SWITCH_SECONDS = 60.0
"""How long the switch may take until others can connect."""


class GuestHost(LocalHost):
    """Commands run by the agent in the guest (`agent.py`), on a channel each.

    A switch (`switch.py`) holds the guest's port; what is started is a relay (`relay.py`) that has
    a channel of its own. The guest sees this machine's files under the same names; what it writes
    stays in it.
    """

    own_kernel = True
    own_files = True

    def __init__(
        self, name: str, port: Path, patience: float, why: Callable[[], str] = str
    ) -> None:
        """A host for the guest whose port has its socket at `port`; another one is made beside it.

        Its commands may take `patience` times as long as on this machine. `why` tells how the
        machine ended, once it has. Raises `MachineError`.
        """
        self._name = f"virtual machine {name}"
        self._patience = patience
        self._place = port.with_name(f"{port.name}-channels")
        self._started: list[Process] = []
        switch = [sys.executable, "-P", "-m", "tailtap.remote.switch"]
        self._switch = Process([*switch, str(port), str(self._place)], f"the port of {self.name}")
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._switch.expect("ready", SWITCH_SECONDS)
            self._socket.connect(str(self._place))
        except BaseException:
            self._socket.close()
            self._switch.close()
            raise
        number = self._socket.fileno()
        self._why = why
        self._connection = Connection(number, number, f"the {self.name}", self._ending)

    @property
    def name(self) -> str:
        return self._name

    def wait_until_up(self, deadline: float) -> None:
        """Return when commands can run, or at `deadline` of the monotonic clock.

        Raises `TimeoutError` then, and `MachineError` when the guest has ended.
        """
        self._connection.hello(deadline)

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: str = "",
        check: bool = True,
        seconds: float = COMMAND_SECONDS,
    ) -> Completed:
        limit = seconds * self._patience
        try:
            ran = self._connection.run(
                command, environment(), stdin.encode(), time.monotonic() + limit
            )
        except TimeoutError as error:
            raise NoAnswer(command, limit) from error
        out, err = (bytes(said).decode(errors="replace") for said in (ran.out, ran.err))
        if ran.status == MISSING and not out:
            raise missing(command[0])
        if check and ran.status != 0:
            raise CommandFailed(command, err or f"status {ran.status}")
        return Completed(out, err, ran.status)

    def start(self, command: Sequence[str]) -> Process:
        relay = [sys.executable, "-P", "-m", "tailtap.remote.relay", str(self._place), *command]
        self._started = [process for process in self._started if not process.ended]
        self._started.append(Process(relay, self.title(command)))
        return self._started[-1]

    def put(self, source: Path, target: Path) -> None:
        self._copied("put", source, target)

    def get(self, source: Path, target: Path) -> None:
        self._copied("get", source, target)

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(OSError):
                process.close()
        self._connection.close()
        self._socket.close()
        self._switch.close()

    def _ending(self) -> str:
        """How the guest ended, as a sentence; it may be the switch alone that did."""
        self._switch.wait(SWITCH_SECONDS)
        if self._switch.status:
            return self._switch.failure()
        return f"the {self.name} has ended: {self._why()}".removesuffix(": ")

    def _copied(self, what: str, source: Path, target: Path) -> None:
        copy = self._connection.get if what == "get" else self._connection.put
        try:
            copy(source, target)
        except MachineError as error:
            raise CommandFailed((what, str(source), str(target)), str(error)) from error
