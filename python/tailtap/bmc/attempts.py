"""How often a host may try passwords."""

from __future__ import annotations

from collections import deque

MOST_FAILURES = 5
WITHIN_NS = 60 * 10**9
"""A host that failed so often within this time is refused until the oldest failure is older."""
MOST_HOSTS = 1024
"""Of more hosts the one that failed longest ago is forgotten."""


class Attempts:
    """The failed logins of hosts by address. Times are nanoseconds of a monotonic clock."""

    def __init__(self) -> None:
        """Nobody has failed."""
        self._failures: dict[str, deque[int]] = {}

    def failed(self, host: str, now_ns: int) -> None:
        """Count a failure of `host`."""
        times = self._failures.pop(host, deque(maxlen=MOST_FAILURES))
        times.append(now_ns)
        self._failures[host] = times  # the last one, as the order is that of the latest failures
        while len(self._failures) > MOST_HOSTS:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, host: str) -> None:
        """Forget what failed before."""
        self._failures.pop(host, None)

    def refused(self, host: str, now_ns: int) -> bool:
        """Whether `host` has to wait."""
        times = self._failures.get(host)
        return times is not None and len(times) == MOST_FAILURES and now_ns - times[0] < WITHIN_NS
