"""The energy that the DuT's machine takes while packets are sent, as far as the machine tells."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tailtap.host.facts.power import ROOT, Counter, counters, platform_watts
from tailtap.lab.instruments.observing import Quiet, Reading, Scope
from tailtap.records import run as records
from tailtap.records.run import Facts, Watts

MOST_WATTS = 1000
"""No domain of a processor takes more, so that no counter wraps twice between two readings."""


class Energy:
    """The energy of each domain of the processors, and the whole machine's power."""

    def __init__(self, root: Path = ROOT) -> None:
        """`root` stands in for ``/`` in tests."""
        self._root = root

    def start(self, scope: Scope) -> Counting | None:
        """Read the counters; None where nothing tells."""
        # Asking the management controller takes long and uses a processor: it comes before.
        platform = platform_watts(self._root)
        before = counters(self._root)
        return Counting(self._root, before, platform) if before or platform is not None else None


class Counting(Quiet):
    """Counters from a moment on. A thread reads those in between that would wrap unseen."""

    def __init__(self, root: Path, before: dict[str, Counter], platform: int | None) -> None:
        """Begin now."""
        self._root, self._platform = root, platform
        self._last, self._spent = before, dict.fromkeys(before, 0)
        self._began = time.monotonic_ns()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if before:
            seconds = min(one.range_uj for one in before.values()) / 1e6 / MOST_WATTS
            self._thread = threading.Thread(target=self._follow, args=(seconds,), daemon=True)
            self._thread.start()

    def _follow(self, seconds: float) -> None:
        while not self._over.wait(seconds):
            self._add()

    def _add(self) -> None:
        now = counters(self._root)
        self._spent = {name: self._spent[name] + now[name].since(self._last[name])
                       for name in self._spent if name in now}  # fmt: skip
        self._last = now

    def stop(self) -> Reading:
        """The energy of each domain in microjoules, and the power before and after in watts."""
        self.close()
        self._add()
        elapsed = time.monotonic_ns() - self._began
        watts = None
        if self._platform is not None:
            watts = Watts(before=self._platform, after=platform_watts(self._root))
        spent = records.Energy(elapsed_ns=elapsed, energy_uj=self._spent, platform_watts=watts)
        return Reading(Facts(energy=spent))

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
