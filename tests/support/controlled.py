"""Machines that are files, controllers served by `tailtap bmc`, and clients that ask them."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from program import TAILTAP

USER, PASSWORD = "admin", "long and secret"


def switchable(folder: Path, name: str = "machine", delay: str = "0") -> dict[str, str]:
    """The commands of a machine that is a file: on or off. Each switch adds a line to ``log``.

    It takes `delay` seconds to tell its status.
    """
    state = folder / f"{name}.state"
    state.write_text("off\n")
    script = folder / f"{name}.sh"
    script.write_text(
        "#!/bin/sh\n"
        f"case $1 in status) sleep {delay}; cat {state};;\n"
        # At once: the state is asked for meanwhile.
        f"*) echo $1 >> {folder}/{name}.log; echo $1 > {state}.new; mv {state}.new {state};; esac\n"
    )
    script.chmod(0o755)
    words = {"status": "status", "switch_on": "on", "switch_off": "off"}
    return {key: f"{script} {word}" for key, word in words.items()}


def credentials(folder: Path) -> Path:
    """A file with the password of `USER`."""
    path = folder / "users"
    path.write_text(f'{USER}: "{PASSWORD}"\n')
    path.chmod(0o600)
    return path


def password_file(folder: Path, password: str = PASSWORD) -> Path:
    """A file with one password."""
    path = folder / "password"
    path.write_text(f"{password}\n")
    path.chmod(0o600)
    return path


def configuration(folder: Path, machines: Sequence[dict[str, Any]]) -> Path:
    """A file of `tailtap bmc` with these machines; a free port for those that name none."""
    credentials(folder)
    path = folder / "bmc.yaml"
    rows = [{"listen": "127.0.0.1:0", **machine} for machine in machines]
    path.write_text(json.dumps({"credentials": "users", "machines": rows}))
    return path


class Served:
    """A running `tailtap bmc`."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.ports: list[int] = []
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self._events.put(json.loads(line))

    def expect(self, event: str, seconds: float = 30) -> dict[str, Any]:
        """The next event of that name."""
        deadline = time.monotonic() + seconds
        while True:
            row = self._events.get(timeout=max(0.01, deadline - time.monotonic()))
            if row["event"] == event:
                return row

    def ipmitool(
        self, *words: str, at: int = 0, password: str = PASSWORD, suite: str = "17"
    ) -> subprocess.CompletedProcess[str]:
        """Ask the controller number `at`."""
        return ipmitool(self.ports[at], *words, password=password, suite=suite)


def ipmitool(
    port: int, *words: str, password: str = PASSWORD, suite: str = "17"
) -> subprocess.CompletedProcess[str]:
    """Ask the controller on `port` of this machine."""
    where = ["-I", "lanplus", "-C", suite, "-H", "127.0.0.1", "-p", str(port)]
    command = ["ipmitool", *where, "-N", "1", "-R", "3", "-U", USER, "-P", password, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@contextlib.contextmanager
def serving(path: Path, machines: int = 1) -> Iterator[Served]:
    """`tailtap bmc` with the file at `path`, which lists so many `machines`."""
    command = [str(TAILTAP), "bmc", str(path), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        served = Served(child)
        try:
            for _ in range(machines):
                address = served.expect("listening")["address"]
                served.ports.append(int(address.rpartition(":")[2]))
            yield served
        finally:
            child.terminate()
            assert child.stderr is not None
            errors = child.stderr.read()
            status = child.wait(timeout=90)
            if sys.exc_info()[0] is None:
                assert (status, errors) == (0, "")
