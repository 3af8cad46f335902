"""Ways to the same percentiles, run in turn and compared."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benches.process import Finished
from benches.traffic import Pair
from tailtap.host.facts import environment

MILLION = 1_000_000
MIB = 1 << 20


@dataclass(frozen=True)
class Answer:
    """The percentiles, or None of a way that only reads; and what a process of its own took."""

    percentiles: list[int] | None
    process: Finished | None = None


@dataclass
class Way:
    """One way to evaluate a pair, and what was measured of it."""

    name: str
    pair: Pair
    run: Callable[[Pair], Answer]
    rounds: int
    seconds: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    def measure(self) -> None:
        """Runs once; raises `AssertionError` when the percentiles are not the true ones."""
        start = time.perf_counter()
        answer = self.run(self.pair)
        seconds = time.perf_counter() - start
        if answer.process:
            seconds = answer.process.seconds
            if answer.percentiles is not None:  # less than the process that starts it otherwise
                self.peaks.append(answer.process.peak)
        wrong = answer.percentiles not in (None, self.pair.percentiles)
        assert not wrong, f"{self.name}: other percentiles than those of the traffic"
        self.seconds.append(seconds)

    @property
    def median(self) -> float:
        """The median time in seconds."""
        return statistics.median(self.seconds)

    @property
    def packet_seconds(self) -> float:
        """The median time for each packet."""
        return self.median / self.pair.packets

    @property
    def peak(self) -> int:
        """The largest peak memory of its processes in bytes, 0 if it has none of its own."""
        return max(self.peaks, default=0)


def in_turn(ways: Sequence[Way]) -> None:
    """Measures all ways, each as often as it says, one round after the other."""
    for turn in range(max(way.rounds for way in ways)):
        for way in ways:
            if turn < way.rounds:
                way.measure()


def machine() -> str:
    """The processor, how many cores of it we may use, and the kernel."""
    found = environment.describe()
    cores = len(os.sched_getaffinity(0))
    return f"{found.cpu.model}, {cores} core{'s'[: cores != 1]}, Linux {os.uname().release}"


def table(ways: Sequence[Way], reading: Way, ours: Way) -> Iterator[str]:
    """The lines of a table; ratios are of the time for each packet."""
    yield (
        f"{'':42}{'M pairs':>8}{'seconds':>9}{'x reading':>11}{'x tailtap':>11}"
        f"{'Mpkt/s':>8}{'peak MiB':>10}"
    )
    for way in ways:
        each = way.packet_seconds
        peak = f"{way.peak / MIB:10,.0f}" if way.peak else ""
        yield (
            f"{way.name:42}{way.pair.sent / MILLION:8g}{way.median:9.3f}"
            f"{each / reading.packet_seconds:11.1f}{each / ours.packet_seconds:11.2f}"
            f"{1 / each / MILLION:8.2f}{peak}"
        )
