"""The clocks of network cards, /dev/ptpN, read against CLOCK_MONOTONIC (linux/ptp_clock.h).

The kernel says by CLOCK_REALTIME when it read a card's clock. That runs as CLOCK_MONOTONIC does,
and is ahead of it by the same until somebody sets it; a reading during which that happens is none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tailtap.base.errors import MachineError
from tailtap.records.datapath import ReadBy

_PRECISE, _EXTENDED, _PLAIN = 0xC0403D08, 0xC4C03D09, 0x43403D05
"""PTP_SYS_OFFSET_PRECISE, PTP_SYS_OFFSET_EXTENDED and PTP_SYS_OFFSET."""
_TIME = struct.Struct("qII")
"""`struct ptp_clock_time`: seconds and nanoseconds."""
_MOST = 25
"""PTP_MAX_SAMPLES: times in an answer."""
_REALTIME_COARSE, _MONOTONIC_COARSE = 5, 6
"""They stand still between two ticks, and both show the time of the last one: time(7)."""
SAMPLES = 5
"""How often a clock is read each time: the quickest counts."""
PRECISE_NS = 50
"""What two times that hardware took at once may be apart: an assumption."""
_UNABLE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL)


class Reading(NamedTuple):
    """What a card's clock showed between two times of CLOCK_MONOTONIC; in ns."""

    before_ns: int
    shown_ns: int
    after_ns: int


class CardClock:
    """A card's clock, by the best way of reading it that its driver has."""

    def __init__(self, number: int) -> None:
        """/dev/ptp`number`. Raises `MachineError` where it cannot be read."""
        self.device = f"/dev/ptp{number}"
        try:
            self._device = os.open(self.device, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise MachineError(f"this clock cannot be read: {error.strerror}").at(
                self.device
            ) from error
        self.by: ReadBy = "precise"
        """How it is read: at once by hardware, or between two times of the kernel's."""
        try:
            self._exchange()
        except OSError:
            os.close(self._device)
            raise

    def close(self) -> None:
        """Read it no more."""
        os.close(self._device)

    def read(self) -> Reading | None:
        """The quickest of `SAMPLES` readings; None where somebody set the kernel's clock meanwhile.

        Raises `MachineError`.
        """
        ahead = _realtime_ahead_ns()
        times = self._exchange()
        if _realtime_ahead_ns() != ahead:
            return None
        before, shown, after = min(times, key=lambda one: one.after_ns - one.before_ns)
        return Reading(before - ahead, shown, after - ahead)

    def _exchange(self) -> list[Reading]:
        """Readings by CLOCK_REALTIME, in the first way of those left that the driver has."""
        try:
            return _WAYS[self.by](self._device)
        except OSError as error:
            ways = list(_WAYS)
            after = ways[ways.index(self.by) + 1 :]
            if error.errno not in _UNABLE or not after:
                raise MachineError(f"this clock cannot be read: {error.strerror}").at(
                    self.device
                ) from error
            self.by = after[0]
            return self._exchange()


def _precise(device: int) -> list[Reading]:
    card, realtime, *_ = _asked(device, _PRECISE, bytes(4 * _TIME.size))
    return [Reading(realtime - PRECISE_NS, card, realtime + PRECISE_NS)]


def _repeated(device: int, request: int, room: int, step: int) -> list[Reading]:
    """Readings that begin every `step` times, of which an answer has `room`."""
    head = struct.pack("4I", SAMPLES, 0, 0, 0)
    times = _asked(device, request, head + bytes(room * _TIME.size))[1:]
    return [Reading(*times[at : at + 3]) for at in range(0, step * SAMPLES, step)]


_WAYS: dict[ReadBy, Callable[[int], list[Reading]]] = {
    "precise": _precise,
    "extended": partial(_repeated, request=_EXTENDED, room=3 * _MOST, step=3),
    # The system's clock is read between all readings of the card's.
    "plain": partial(_repeated, request=_PLAIN, room=2 * _MOST + 1, step=2),
}


def _asked(device: int, request: int, content: bytes) -> list[int]:
    """The times of an answer, in ns; where it has a head, that takes the place of the first."""
    answer = bytearray(content)
    fcntl.ioctl(device, request, answer)
    return [seconds * 10**9 + ns for seconds, ns, _ in _TIME.iter_unpack(answer)]


def _realtime_ahead_ns() -> int:
    while True:
        before = time.clock_gettime_ns(_MONOTONIC_COARSE)
        realtime = time.clock_gettime_ns(_REALTIME_COARSE)
        if time.clock_gettime_ns(_MONOTONIC_COARSE) == before:
            return realtime - before
