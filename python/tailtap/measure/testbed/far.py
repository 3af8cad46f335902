"""Commands and files on a host of a testbed, beside a measurement.

``python -m tailtap.measure.testbed.far`` is the far end: it serves channels on its standard input
and output, as the agent in virtual machines does (`remote/agent.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tailtap.base.errors import MachineError
from tailtap.measure.testbed.ssh import SshStation
from tailtap.remote import CommandFailed, Completed, NoAnswer
from tailtap.remote.agent import MISSING, serve
from tailtap.remote.connection import Connection
from tailtap.remote.local import COMMAND_SECONDS, SYSTEM_PATH, missing

HELLO_SECONDS = 60.0
"""How long our program may take to start there."""
END_SECONDS = 5.0
MODULE = "tailtap.measure.testbed.far"


class FarHost:
    """A host that ssh reaches, for commands one after the other."""

    def __init__(self, station: SshStation) -> None:
        """Log in. Raises `MachineError` when the host cannot be reached."""
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
        """The host itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Log out."""
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
            ran = self._connection.run(command, environment, b"", time.monotonic() + seconds)
        except TimeoutError as error:
            raise NoAnswer(command, seconds) from error
        out, err = (bytes(said).decode(errors="replace") for said in (ran.out, ran.err))
        if ran.status == MISSING and not out:
            raise missing(command[0]).at(self.name)
        if check and ran.status != 0:
            raise CommandFailed(command, err or f"status {ran.status}")
        return Completed(out, err, ran.status)

    def put(self, source: Path, target: str) -> None:
        """Copy a file of this machine to `target` there. Raises `MachineError` and `OSError`."""
        self._connection.put(source, Path(target))

    def close(self) -> None:
        """Log out."""
        self._connection.close()
        self._process.end_input()
        self._process.wait(END_SECONDS)
        self._process.close()


if __name__ == "__main__":
    serve(sys.stdin.fileno(), sys.stdout.fileno())
