"""Ends a trial early when its rest cannot change the answer."""

from __future__ import annotations

from collections import deque

OVERTIME = 1.3
OVERTIME_SECONDS = 1.0
"""A generator that takes this much longer than the traffic lasts cannot send the rate."""


class LossGuard:
    """Ends a trial that has lost more than allowed for certain, or whose generator is too slow.

    Packets are counted from the first look after the warm-up. A packet counts as lost when it had
    come to the device by an earlier look, has not come out, and is older than any packet that can
    still be in the device. Whatever is uncertain counts in favour of the device.
    """

    period = 0.2

    def __init__(self, allowed: float, warm_up: int, seconds: float) -> None:
        """For traffic of about `seconds`, `warm_up` packets first; `allowed` may be lost."""
        self.gave_up = False
        self.overtime = False
        self._allowed = allowed
        self._warm_up = warm_up
        self._longest = OVERTIME * seconds + OVERTIME_SECONDS
        self._sends_since: float | None = None
        self._first: int | None = None
        self._start: tuple[int, int] | None = None
        self._came: deque[tuple[float, int]] = deque()

    def over(self, seconds: float, ingress: int, egress: int, reach: float) -> bool:
        """See `tailtap.measure.run.Guard`; `egress` was read before `ingress`."""
        if self._first is None:
            self._first = ingress
        if self._sends_since is None:
            # Before it sends, a generator may not react to an interrupt.
            if ingress > self._first:
                self._sends_since = seconds
        elif seconds - self._sends_since > self._longest:
            self.overtime = True
            return True
        if self._start is None:
            if ingress - self._first >= max(1, self._warm_up):
                self._start = ingress, egress
            return False
        came = self._start[0]
        while self._came and self._came[0][0] <= seconds - reach:
            came = self._came.popleft()[1]
        if came != self._start[0]:
            self._came.appendleft((seconds - reach, came))
        self._came.append((seconds, ingress))
        left = egress - self._start[1]
        if came - self._start[0] - left > self._allowed:
            self.gave_up = True
        return self.gave_up
