"""Events at work: each command is run when it is due, and its begin and end are noted."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tailtap.base.errors import TailtapError
from tailtap.experiment.sections import Due
from tailtap.records.run import Event
from tailtap.remote import Host
from tailtap.remote.process import Process

LINES = 20
"""How many of the last lines of a command are kept."""
LONGEST_LINE = 500
FOREVER_SECONDS = 1e6
END_SECONDS = 2.0
"""How long a command may go on after the last packet."""

Values = Mapping[str, object]
Place = Callable[[str], tuple[Host, Values]]
"""Where the commands of a place run, and what is filled into them."""


class Happenings:
    """Events of a measurement: a thread waits for each, and another one for its end."""

    def __init__(self, events: Sequence[Due], place: Place, after_ns: int) -> None:
        """The first packet that counts passes `after_ns` from now; `events` are in their order."""
        self._began = time.monotonic_ns() + after_ns
        self._over, self._cut = threading.Event(), False
        self._told: list[Event] = []
        self.missed: Sequence[Due] = []
        """Those that were not begun: packets had ended before."""
        self._running: dict[threading.Thread, Process | None] = {}
        self._waiting = threading.Thread(target=self._follow, args=(events, place), daemon=True)
        self._waiting.start()

    def stop(self) -> list[Event]:
        """What has happened, in its order: packets have ended."""
        self._over.set()
        self._waiting.join()
        deadline = time.monotonic() + END_SECONDS
        for thread in self._running:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.close()
        return self._told

    def close(self) -> None:
        """End the commands that still run."""
        self._over.set()
        self._waiting.join()
        self._cut = True
        for thread, process in self._running.items():
            if process is not None and thread.is_alive():
                process.interrupt()
            thread.join(END_SECONDS)

    def _follow(self, events: Sequence[Due], place: Place) -> None:
        for number, due in enumerate(events):
            if self._over.wait(max(0.0, (self._began + due.at - time.monotonic_ns()) / 1e9)):
                self.missed = events[number:]
                return
            event = due.event
            told = Event(name=event.called, where=event.where, command=list(event.run),
                         at_ns=due.at, window_ns=event.window,
                         begin_ns=time.monotonic_ns())  # fmt: skip
            self._told.append(told)
            thread = threading.Thread(target=self._run, args=(told, place), daemon=True)
            self._running[thread] = None
            thread.start()

    def _run(self, told: Event, place: Place) -> None:
        lines: deque[str] = deque(maxlen=LINES)
        try:
            host, values = place(told.where)
            told.command = [word.format_map(values) for word in told.command]
            told.begin_ns = time.monotonic_ns()
            process = host.start(["sh", "-c", 'exec "$@" 2>&1', "event", *told.command])
            self._running[threading.current_thread()] = process
            try:
                while (line := process.read_line(FOREVER_SECONDS)) is not None:
                    lines.append(line[:LONGEST_LINE])
                if not self._cut:
                    told.end_ns = time.monotonic_ns()
                process.wait(END_SECONDS)
                told.status = process.status
                lines.extend([process.errors()[:LONGEST_LINE]] if process.errors() else [])
            finally:
                process.close()
        except (TailtapError, OSError) as error:
            lines.append(str(error)[:LONGEST_LINE])
        told.output = "\n".join(lines)
