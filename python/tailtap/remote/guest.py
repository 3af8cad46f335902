"""A virtual machine on this machine: its own kernel and interfaces, our own files read-only.

``python -m tailtap.remote.guest SOCKET COMMAND…`` is a child of tailtap that stands for a command
in it: it gives its output, ends as it ends, and passes signals on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.remote import CommandFailed, Completed
from tailtap.remote.agent import ERR, IN, OUT
from tailtap.remote.connection import Awaited, Connection
from tailtap.remote.local import COMMAND_SECONDS, LocalHost, Process
from tailtap.remote.mux import Channel

SWITCH_SECONDS = 60.0
"""How long the switch may take until others can connect."""


class GuestHost(LocalHost):
    """Commands run by the agent in the guest (`agent.py`), on a channel each.

    A switch (`switch.py`) holds the guest's port; what is started is a relay (`main`) that has a
    channel of its own. The guest sees this machine's files under the same names; what it writes
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
        return self._connection.completed(
            command, environment(), stdin, seconds * self._patience, check=check
        )

    def start(self, command: Sequence[str]) -> Process:
        relay = [sys.executable, "-P", "-m", "tailtap.remote.guest", str(self._place), *command]
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


PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE = 125
"""The exit status when the virtual machine ended under the command."""
STDOUT, STDERR = 1, 2


def environment() -> dict[str, str]:
    """What commands in a virtual machine find there: the search path of this process."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def relay(connection: Connection, command: Sequence[str]) -> int:
    """Run `command` at the other end; its exit status. Raises `MachineError`."""
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(waking)
    relayed = _Relayed(connection)
    channel = connection.open("command", relayed, command=list(command), environment=environment())
    channel.end(IN)

    def pass_on() -> None:
        for caught in os.read(woken, 64):
            channel.signal(caught)

    connection.loop.watch(woken, reading=pass_on)
    while relayed.result is None or relayed.unsaid:
        connection.loop.step()
    return int(connection.answer(relayed.result)["exit"])


class _Relayed(Awaited):
    """The command's output, on its way to whoever reads that of this process."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._loop = connection.loop
        self.unsaid = bytearray()
        os.set_blocking(STDOUT, False)

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        if stream == ERR:  # a file, which never blocks
            os.write(STDERR, data)
            channel.grant(len(data), ERR)
            return
        self.unsaid += data
        self._write(channel)

    def _write(self, channel: Channel) -> None:
        # While nobody reads, signals still pass, and the command waits as it would at home.
        try:
            while self.unsaid:
                count = os.write(STDOUT, self.unsaid)
                del self.unsaid[:count]
                channel.grant(count, OUT)
        except BlockingIOError:
            self._loop.watch(STDOUT, writing=lambda: self._write(channel))
        else:
            self._loop.watch(STDOUT)


def main() -> None:
    """Run the command in the virtual machine, and end as it ended."""
    with socket.socket(socket.AF_UNIX) as connected:
        try:
            connected.connect(sys.argv[1])
            connection = Connection(connected.fileno(), connected.fileno(), "the virtual machine")
            with contextlib.closing(connection):
                status = relay(connection, sys.argv[2:])
        except (MachineError, ConnectionError, FileNotFoundError) as error:
            print(error, file=sys.stderr)
            sys.exit(GONE)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main()
