"""A child of tailtap that stands for a command in a virtual machine.

``python -m tailtap.remote.relay SOCKET COMMAND…`` gives its output, ends as it ends, and passes
signals on: to tailtap it looks like the command itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence

from tailtap.base.errors import MachineError
from tailtap.remote.agent import ERR, IN, OUT
from tailtap.remote.connection import Connection
from tailtap.remote.mux import Channel, Handler, Json

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE = 125
"""The exit status when the virtual machine ended under the command."""
STDOUT, STDERR = 1, 2
READ_BYTES = 64


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
        for caught in os.read(woken, READ_BYTES):
            channel.signal(caught)

    connection.loop.watch(woken, reading=pass_on)
    while relayed.result is None or relayed.unsaid:
        connection.loop.step()
    return int(connection.answer(relayed.result)["exit"])


class _Relayed(Handler):
    """The command's output, on its way to whoever reads that of this process."""

    def __init__(self, connection: Connection) -> None:
        self._loop = connection.loop
        self.unsaid = bytearray()
        self.result: Json | None = None
        os.set_blocking(STDOUT, False)

    def received(self, channel: Channel, stream: int, data: bytes) -> None:
        if stream == ERR:  # a file, which never blocks
            os.write(STDERR, data)
            channel.grant(len(data), ERR)
            return
        self.unsaid += data
        self._write(channel)

    def closed(self, channel: Channel, result: Json) -> None:
        self.result = result

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
    """End as the command ended."""
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
