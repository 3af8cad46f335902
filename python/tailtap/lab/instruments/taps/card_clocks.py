"""The clocks of cards are read while these stamp."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from threading import Event, Thread

from tailtap.base.errors import MachineError
from tailtap.host.net.card_clocks import CardClock, Reading
from tailtap.records.datapath import CardReadings

PERIOD_SECONDS = 0.1
"""How often each clock is read."""
AT_ENDS = 20
"""How often in a row at both ends, which shows the steps in which it goes, too."""


class Watch:
    """A thread that reads the clocks /dev/ptpN from `begin` to `end`."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = numbers
        self._clocks: dict[int, CardClock] = {}
        self._read: dict[int, list[Reading]] = {number: [] for number in numbers}
        self._over = Event()
        self._thread = Thread(target=self._run, name="tt-clocks", daemon=True)

    def begin(self) -> None:
        """Read them: once their cards stamp, as some set their clocks at the start of that.

        Raises `MachineError` where one of several clocks cannot be read.
        """
        for number in self._numbers:
            try:
                self._clocks[number] = CardClock(number)
            except MachineError:
                if len(self._numbers) > 1:
                    raise
        self._look(AT_ENDS)
        self._thread.start()

    def end(self) -> None:
        """Read them a last time."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
            self._look(AT_ENDS)
        for clock in self._clocks.values():
            clock.close()

    def readings(self, number: int) -> CardReadings | None:
        """Those of a clock; None where it cannot be read."""
        clock = self._clocks.get(number)
        if clock is None:
            return None
        return CardReadings(by=clock.by, times_ns=[*self._read[number]])

    def _run(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            self._look()

    def _look(self, times: int = 1) -> None:
        for number, clock in [*self._clocks.items()] * times:
            with contextlib.suppress(MachineError):  # its card was unplugged
                if (reading := clock.read()) is not None:
                    self._read[number].append(reading)
