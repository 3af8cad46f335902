"""What processors count of themselves (instructions, TLB misses, migrations), by ``perf stat``.

The events are those of the article on control groups and added latency. They are counted, not
sampled: between its beginning and its end a window costs the measured processors nothing but what
the counters themselves cost. perf is told when to begin and to end, and says that it did, so that
a window holds what it is about and neither perf's own start nor its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tailtap.errors import MachineError
from tailtap.host import Host

EVENTS = (
    "instructions",
    "branches",
    "dTLB-loads",
    "dTLB-load-misses",
    "cpu-migrations",
    "context-switches",
)
"""Events as perf names them; the last two are counted by the kernel, wherever it runs."""
ANSWER_SECONDS = 10.0
"""How long perf may take to start or to answer; it needs some hundredths of a second."""


class PerfStat:
    """One window of counting on some CPUs. Use it as a context: leaving ends perf."""

    def __init__(self, host: Host, cpus: Sequence[int], folder: Path) -> None:
        """Counting on `cpus` of `host`; the pipes to talk with perf stand in `folder`."""
        self._host, self._cpus = host, tuple(cpus)
        self._pipes = tuple(folder / f".perf-{id(self):x}-{name}" for name in ("control", "answer"))
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> PerfStat:
        """Start perf and begin to count. Raises `MachineError` when it cannot."""
        with contextlib.ExitStack() as stack:
            ends = []
            for pipe in self._pipes:
                os.mkfifo(pipe, 0o600)
                stack.callback(pipe.unlink, missing_ok=True)
                ends.append(os.open(pipe, os.O_RDWR))
                stack.callback(os.close, ends[-1])
            self._control, self._answer = ends
            cpus = ",".join(str(cpu) for cpu in self._cpus)
            # Counting begins when told (-D -1); the result goes to the standard output.
            command = ["perf", "stat", "--json", "--log-fd", "1", "--delay", "-1"]
            command += ["--control", f"fifo:{self._pipes[0]},{self._pipes[1]}"]
            self._process = self._host.start([*command, "-C", cpus, "-e", ",".join(EVENTS)])
            stack.callback(self._process.close)
            self._tell("enable")
            self._began = time.monotonic_ns()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End perf, whatever state it is in."""
        self._stack.close()

    def stop(self) -> dict[str, Any]:
        """End the window: its length in ns, and for each event its count or None.

        None is for what this machine has no counter for. Raises `MachineError`.
        """
        self._tell("disable")
        elapsed = time.monotonic_ns() - self._began
        self._process.interrupt()  # it prints its counts and ends by that signal
        lines: list[str] = []
        while (line := self._process.read_line(ANSWER_SECONDS)) is not None:
            lines.append(line)
        return {"cpus": list(self._cpus), "elapsed_ns": elapsed, "events": counts(lines)}

    def _tell(self, word: str) -> None:
        os.write(self._control, f"{word}\n".encode())
        with selectors.DefaultSelector() as selector:
            selector.register(self._answer, selectors.EVENT_READ)
            selector.register(self._process, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(ANSWER_SECONDS)}
        if self._answer not in ready:
            why = self._process.failure() if self._process in ready else "perf does not answer"
            raise MachineError(
                f"cannot count on CPUs {list(self._cpus)}: {why}: install the Debian package "
                "linux-perf, or set counters: false"
            )
        os.read(self._answer, 4096)


def counts(lines: Sequence[str]) -> dict[str, int | None]:
    """The count of every event in the lines that ``perf stat --json`` printed; None if missing.

    perf says ``<not supported>`` where there is no such counter and ``<not counted>`` where the
    counter was never free; a count of a counter that was shared is scaled by perf.
    """
    found: dict[str, int | None] = dict.fromkeys(EVENTS)
    for line in lines:
        with contextlib.suppress(ValueError, KeyError):
            row: Mapping[str, Any] = json.loads(line)
            event = str(row["event"]).partition(":")[0]
            if event in found:
                found[event] = round(float(row["counter-value"]))
    return found
