"""Captures of two clocks whose difference is known, and what one clock would have shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from stamps import write_stamps

Times = np.ndarray[Any, np.dtype[np.int64]]
START_NS = 1_000_000_000_000


@dataclass(frozen=True)
class TwoClocks:
    """Traffic through a device, stamped before it by one clock and behind it by another."""

    offset_ns: int = 0
    drift: float = 0.0
    least_ns: int = 5_000
    """The shortest latency, and the mean of what comes on top of it."""
    mean_ns: int = 20_000
    back_ns: tuple[int, int] = (9_000, 30_000)
    """The same for packets the other way."""
    span_ns: int = 3_000_000_000
    packets: int = 2_000
    step_ns: int = 0
    """By how much the clock behind the device steps, and at which share of the time."""
    step_at: float = 0.5

    def theirs(self, ours: Times) -> Times:
        since = ours - START_NS
        ahead = self.offset_ns + np.rint(self.drift * since).astype(np.int64)
        theirs: Times = (
            ours + ahead + np.where(since > self.span_ns * self.step_at, self.step_ns, 0)
        )
        return theirs

    def write(self, folder: Path, seed: int) -> Times:
        """Write ingress, egress (of the other clock), true-egress (of the same clock), and
        back-before and back-after of packets the other way. Gives the latencies in the order of
        ingress."""
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(seed)
        sent, took = self.sent(random, self.packets, (self.least_ns, self.mean_ns))
        ids = np.arange(self.packets)
        arrived = np.flatnonzero(random.random(self.packets) > 0.01)
        came = sent[arrived] + took[arrived]
        order = np.argsort(came, kind="stable")
        write_stamps(folder / "ingress.stamps", sent, ids)
        write_stamps(folder / "true-egress.stamps", came[order], ids[arrived][order])
        write_stamps(folder / "egress.stamps", self.theirs(came[order]), ids[arrived][order])
        left, back = self.sent(random, self.packets, self.back_ns)
        order = np.argsort(left + back, kind="stable")
        write_stamps(folder / "back-before.stamps", self.theirs(left), ids)
        write_stamps(folder / "back-after.stamps", (left + back)[order], ids[order])
        return took[arrived]

    def sent(
        self, random: np.random.Generator, count: int, delay: tuple[int, int]
    ) -> tuple[Times, Times]:
        """When so many packets are sent, at random, and what each takes, in ns."""
        sent = np.sort(random.integers(START_NS, START_NS + self.span_ns, count))
        return sent, delay[0] + np.rint(random.exponential(delay[1], count)).astype(np.int64)


def random_clocks(seed: int) -> TwoClocks:
    """Any offset up to eleven days, drift up to 5e-4, and delays that differ a hundred times."""
    random = np.random.default_rng(seed)
    least, back = (int(10 ** random.uniform(2, 5)) for _ in range(2))
    means = [int(10 ** random.uniform(1, 6)) for _ in range(2)]
    return TwoClocks(
        offset_ns=int(random.integers(-(START_NS - 10**10), 10**15)),
        drift=float(random.uniform(-1, 1) * 10 ** random.uniform(-8, -3.3)),
        least_ns=least,
        mean_ns=means[0],
        back_ns=(back, means[1]),
        span_ns=int(random.integers(10**8, 6 * 10**9)),
        packets=int(random.integers(100, 3_000)),
    )
