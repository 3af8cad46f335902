"""A virtual machine on this machine: its own kernel and interfaces, our own files read-only."""

from __future__ import annotations

import base64
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tailtap.errors import MachineError
from tailtap.host import CommandFailed, Completed
from tailtap.host.local import COMMAND_SECONDS, PACKAGES, LocalHost
from tailtap.host.process import Process
from tailtap.host.wire import Wire

MISSING = 127
"""What the agent says of a command that is not there."""


class GuestHost(LocalHost):
    """Commands run by the agent in the guest (`agent.py`), each on a port of its own.

    The guest sees this machine's files under the same names; what it writes stays in it.
    """

    own_kernel = True

    def __init__(self, name: str, ports: Sequence[Path], patience: float) -> None:
        """A host for the guest whose ports have their sockets at `ports`, the first for `run`.

        Its commands may take `patience` times as long as on this machine.
        """
        self._name = f"virtual machine {name}"
        self._patience = patience
        self._wire = Wire(ports[0])
        self._ports = ports[1:]
        self._started: dict[Path, Process] = {}

    @property
    def name(self) -> str:
        """The host's name in messages."""
        return self._name

    def wait_until_up(self, deadline: float) -> None:
        """Return when commands can run, or at `deadline` of the monotonic clock.

        Raises `TimeoutError` then, and `MachineError` when the guest has ended.
        """
        self._wire.expect_hello(deadline)

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: str = "",
        check: bool = True,
        seconds: float = COMMAND_SECONDS,
    ) -> Completed:
        """Run `command` to its end. Raises `CommandFailed` on a failure unless `check` is off,
        and `MachineError` when the program is missing or the guest has ended.
        """
        self._wire.start(command, stdin)
        said = {"out": b"", "err": b""}
        limit = seconds * self._patience
        deadline = time.monotonic() + limit
        status: int | None = None
        try:
            while status is None:
                for answer in self._wire.answers(deadline):
                    for name in said:
                        said[name] += answer.get(name, b"")
                    status = answer.get("exit", status)
        except TimeoutError as error:
            raise CommandFailed(command, f"no answer within {limit:g} s") from error
        out, err = (said[name].decode(errors="replace") for name in ("out", "err"))
        if status == MISSING and not out:
            package = PACKAGES.get(command[0], command[0])
            raise MachineError(
                f"the program {command[0]} is missing: install the Debian package {package}"
            )
        if check and status != 0:
            raise CommandFailed(command, err or f"status {status}")
        return Completed(out, err, status)

    def start(self, command: Sequence[str]) -> Process:
        """Start `command`; it ends at the latest when tailtap or the guest does.

        Raises `MachineError` when as many run as there are ports.
        """
        free = (port for port in self._ports if self._is_free(port))
        port = next(free, None)
        if port is None:
            raise MachineError(f"{self.name}: {len(self._ports)} commands run in it already")
        relay = [sys.executable, "-P", "-m", "tailtap.host.relay", str(port), *command]
        self._started[port] = Process(relay, self.title(command))
        return self._started[port]

    def put(self, source: Path, target: Path) -> None:
        """Copy a file of this machine to `target` in the guest."""
        # The path of the source is the same in the guest, but it may be younger than its cache.
        content = base64.b64encode(source.read_bytes()).decode()
        self.run(["sh", "-c", 'base64 --decode > "$1"', "put", str(target)], stdin=content)

    def get(self, source: Path, target: Path) -> None:
        """Copy a file of the guest to `target` on this machine."""
        content = self.run(["base64", str(source)]).stdout
        target.write_bytes(base64.b64decode(content))

    def close(self) -> None:
        """End what runs in the guest."""
        for process in self._started.values():
            with contextlib.suppress(OSError):
                process.close()
        self._wire.close()

    def _is_free(self, port: Path) -> bool:
        return port not in self._started or self._started[port].ended
