"""Captures of two clocks whose difference is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from stamps import write_stamps

from tests.simulation.clocks import Clock
from tests.simulation.machine import Integers
from tests.simulation.traffic import START_NS


@dataclass(frozen=True)
class TwoClocks:
    """Traffic through a device, stamped before it by one clock and behind it by another."""

    other: Clock = field(default_factory=Clock)
    """The clock behind the device."""
    least_ns: int = 5_000
    """The shortest latency, and the mean of what comes on top of it."""
    mean_ns: int = 20_000
    back_ns: tuple[int, int] = (9_000, 30_000)
    """The same for packets the other way."""
    span_ns: int = 3_000_000_000
    packets: int = 2_000

    def write(self, folder: Path, seed: int) -> None:
        """Write ingress, egress, and back-before and back-after of packets the other way."""
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(seed)
        sent, took = self.sent(random, self.packets, (self.least_ns, self.mean_ns))
        ids = np.arange(self.packets)
        arrived = np.flatnonzero(random.random(self.packets) > 0.01)
        came = sent[arrived] + took[arrived]
        order = np.argsort(came, kind="stable")
        write_stamps(folder / "ingress.stamps", sent, ids)
        write_stamps(folder / "egress.stamps", self.other.shows(came[order]), ids[arrived][order])
        left, back = self.sent(random, self.packets, self.back_ns)
        order = np.argsort(left + back, kind="stable")
        write_stamps(folder / "back-before.stamps", self.other.shows(left), ids)
        write_stamps(folder / "back-after.stamps", (left + back)[order], ids[order])

    def sent(
        self, random: np.random.Generator, count: int, delay: tuple[int, int]
    ) -> tuple[Integers, Integers]:
        """When so many packets are sent, at random, and what each takes, in ns."""
        sent = np.sort(random.integers(START_NS, START_NS + self.span_ns, count))
        return sent, delay[0] + np.rint(random.exponential(delay[1], count)).astype(np.int64)


def random_clocks(seed: int) -> TwoClocks:
    """Any offset up to eleven days, drift up to 5e-4, and delays that differ a hundred times."""
    random = np.random.default_rng(seed)
    least, back = (int(10 ** random.uniform(2, 5)) for _ in range(2))
    means = [int(10 ** random.uniform(1, 6)) for _ in range(2)]
    return TwoClocks(
        Clock(
            int(random.integers(-(START_NS - 10**10), 10**15)),
            float(random.uniform(-1, 1) * 10 ** random.uniform(-8, -3.3)),
        ),
        least_ns=least,
        mean_ns=means[0],
        back_ns=(back, means[1]),
        span_ns=int(random.integers(10**8, 6 * 10**9)),
        packets=int(random.integers(100, 3_000)),
    )
