"""The host's end of a port into a virtual machine: requests and answers as lines of JSON.

The other end is in `agent.py`, which tells the format.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailtap.errors import MachineError

CHUNK = 65536
SESSIONS = 2**31


class Wire:
    """A connection to one port; it carries one command at a time."""

    def __init__(self, path: Path) -> None:
        """Connect to the socket of the port. Raises `MachineError` when nobody listens."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise MachineError(f"the virtual machine is gone: {path}: {error.strerror}") from error
        self._received = b""
        self._session = 0

    def fileno(self) -> int:
        """The descriptor, readable when there is an answer."""
        return self._socket.fileno()

    def start(self, command: Sequence[str], stdin: str = "") -> None:
        """Ask for a command, with the search path of this process."""
        # What an earlier user of the port was still to be told belongs to another session.
        self._session = secrets.randbelow(SESSIONS)
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/root"}
        environment |= {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        content = base64.b64encode(stdin.encode()).decode()
        self._send(command=list(command), environment=environment, stdin=content)

    def signal(self, number: int) -> None:
        """Send a signal to the command."""
        self._send(signal=number)

    def answers(self, deadline: float) -> list[dict[str, Any]]:
        """Wait for something to come; the whole answers about this command, their bytes decoded.

        Raises `TimeoutError` at `deadline` of the monotonic clock, and `MachineError` when the
        virtual machine has ended.
        """
        found = [row for row in self._receive(deadline) if row.get("session") == self._session]
        for row in found:
            for name in {"out", "err"} & row.keys():
                row[name] = base64.b64decode(row[name])
        return found

    def expect_hello(self, deadline: float) -> None:
        """Wait until the agent is there. Raises as `answers` does."""
        while not any("hello" in row for row in self._receive(deadline)):
            pass

    def close(self) -> None:
        """Let go of the port: a command that still runs is ended."""
        self._socket.close()

    def _send(self, **content: object) -> None:
        line = json.dumps({"session": self._session, **content})
        try:
            self._socket.settimeout(None)
            self._socket.sendall(line.encode() + b"\n")
        except OSError as error:
            raise MachineError(f"the virtual machine is gone: {error.strerror}") from error

    def _receive(self, deadline: float) -> list[dict[str, Any]]:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            chunk = self._socket.recv(CHUNK)
        except ConnectionError:
            chunk = b""
        if not chunk:
            raise MachineError("the virtual machine has ended")
        *lines, self._received = (self._received + chunk).split(b"\n")
        return [json.loads(line) for line in lines]
