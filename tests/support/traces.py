"""Traces read back by their description in docs/reference/files.md."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from namespaces import TAILTAP
from numpy.typing import NDArray

from tests.simulation.records import LAYOUT

RECORD = LAYOUT
IRQ, VECTOR, FUNCTION, DELAY, SOFTIRQ, TASK, WAKEUP, WORK, IDLE, NMI, HRTIMER, TLB = range(1, 13)
RUNNABLE, LOST = 19, 254
TIMER, CALL = 1, 3


@dataclass(frozen=True)
class Trace:
    """The files of a trace."""

    records: NDArray[Any]
    said: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Trace:
        """Both files; records alone of a trace that was cut off."""
        said = folder / "trace.json"
        return cls(events(folder), json.loads(said.read_text()) if said.exists() else {})

    def of(self, kind: int, **fields: int) -> NDArray[Any]:
        """Records of one kind that have these values."""
        found: NDArray[Any] = self.records[self.records["kind"] == kind]
        for name, value in fields.items():
            found = found[found[name] == value]
        return found

    def addresses(self, name: str) -> list[int]:
        """Where the functions of this name are."""
        return [
            int(at, 16) for at, known in self.said["names"]["functions"].items() if known == name
        ]

    def functions(self, name: str) -> NDArray[Any]:
        """Calls of the function of this name."""
        addresses = self.addresses(name)
        chosen = (self.records["kind"] == FUNCTION) & np.isin(self.records["aux"], addresses)
        found: NDArray[Any] = self.records[chosen]
        return found


def events(folder: Path) -> NDArray[Any]:
    """The records of ``trace.events``."""
    content = (folder / "trace.events").read_bytes()
    assert content[:8] == b"TTTRACE1"
    return np.frombuffer(content[8 : 8 + (len(content) - 8) // 32 * 32], RECORD)


@contextlib.contextmanager
def tracing(folder: Path, cpus: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`tailtap trace` while the body runs; afterwards its files are whole."""
    command = ["taskset", "--cpu-list", "0", TAILTAP, "trace", "--cpus", cpus]
    command += ["--out", str(folder), "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        assert json.loads(line) == {"event": "ready"}
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), errors
        assert "Traceback" not in errors
        assert process.returncode or json.loads(output)["event"] == "done"
    finally:
        process.kill()
        process.communicate()
