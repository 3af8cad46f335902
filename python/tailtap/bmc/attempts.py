"""How many failed logins are answered and told.

No number of them keeps anybody out: whoever can reach a controller could otherwise keep others out
of it, and needs no further answer to guess (IPMI 2.0 gives a proof of the password to anyone).
"""

from __future__ import annotations

import ipaddress
from collections import deque
from functools import lru_cache

MOST_FAILURES = 5
WITHIN_NS = 60 * 10**9
"""Of the same user and network, so many failures count within this time."""
MOST_KEPT = 1024
"""Of more users and networks the one that failed longest ago is forgotten."""
_Key = tuple[bytes, str]


class Attempts:
    """The failed logins by user and network. Times are nanoseconds of a monotonic clock."""

    def __init__(self) -> None:
        """Nobody has failed."""
        self._failures: dict[_Key, deque[int]] = {}

    def counts(self, user: bytes, host: str, now_ns: int) -> int:
        """How many more failures count after this one; less than 0 when this is one too many."""
        key = user, network_of(host)
        times = self._failures.pop(key, deque(maxlen=MOST_FAILURES))
        self._failures[key] = times  # the last one, as the order is that of the latest failures
        while len(self._failures) > MOST_KEPT:
            del self._failures[next(iter(self._failures))]
        while times and now_ns - times[0] >= WITHIN_NS:
            times.popleft()
        if len(times) == MOST_FAILURES:
            return -1
        times.append(now_ns)
        return MOST_FAILURES - len(times)

    def succeeded(self, user: bytes, host: str) -> None:
        """Forget what failed before."""
        self._failures.pop((user, network_of(host)), None)


@lru_cache(MOST_KEPT)
def network_of(host: str) -> str:
    """What one host has for sure: an address of IPv4, the /64 of one of IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)
