"""Which rows made packets late, and which were merely there: shifts of the same events.

Benjamini, Y. and Hochberg, Y. (1995), Controlling the false discovery rate, JRSS B 57, 289-300.

Periods of stalls, and beats of the packet rate with timers.

Rayleigh's test of points in time t: z = |sum exp(2 pi i f t)|^2 / n is exponential with mean 1 when
they come at random (Mardia, K. and Jupp, P. (2000), Directional Statistics, section 6.3.1). Over M
independent frequencies the largest z exceeds a level with the probability 1 - (1 - exp(-z))^M; n
points over a time D have f D independent frequencies up to f.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes.joined import Joined
from tailtap.analysis.causes.taxonomy import Served
from tailtap.analysis.evaluation.values import Column
from tailtap.records.causes import Period

SHIFTS = 999
SEED = 1
FALSE_CLAIMS = 0.01
"""The share of wrong claims among all claims that is expected at most."""
MOST_WINDOWS = 500
"""Stays that represent the stalls of a run."""
LEAST_TIME = 0.001
"""A row that had less time than this share of their excess is not tested: it explains nothing, and
each test more makes it harder for others to pass. That does not depend on when it had that time."""

BACKGROUND = ("task", "kernel-thread", "idle-exit", "waiting", "throttled")
"""Causes that have the core whenever nobody else wants it."""


@dataclass(frozen=True)
class Claim:
    """What shifting the events of one row found."""

    observed: float
    """Of the excess of each stall's worst packet, the share that the row covers, summed."""
    expected: float
    """The same by chance."""
    shifts: int
    p: float
    passed: bool

    @property
    def beyond_chance(self) -> float:
        """The share of what was observed that is more than chance."""
        over = self.observed - self.expected
        return max(0.0, over / self.observed) if self.observed else 0.0


def claims(joined: Joined, served: Served, span: tuple[int, int], gap_ns: int) -> dict[int, Claim]:
    """The claim of each row that occurs on the serving cores within `span`, in ns.

    `gap_ns` is the usual longest time between packets. What has the core by default (tasks, idle)
    is tested once more, by its time in stretches without service that are longer than that; of the
    two tests the row has the one with the smaller p.
    """
    totals = np.zeros(len(joined.laid.rows.names), np.int64)
    np.add.at(totals, list(joined.laid.rows.of_owners), joined.laid.cores.totals(*span))
    worst = joined.stall_worst
    chosen = worst[np.linspace(0, worst.size - 1, min(worst.size, MOST_WINDOWS)).astype(np.int64)]
    excess = joined.excess_ns[chosen]
    least = max(1.0, LEAST_TIME * float(excess.sum()))
    tested = [row for row in joined.laid.rows.tested() if totals[row] >= least]
    background = [row for row in tested if joined.laid.rows.names[row].cause in BACKGROUND]
    if served.by == "poll":
        background = []  # who polls leaves no time to others
    # With fewer shifts a single row could not pass among so many.
    shifts = max(SHIFTS, round((len(tested) + len(background)) / FALSE_CLAIMS))
    packets = joined.stays
    windows = (
        packets.ingress_ns[chosen],
        packets.egress_ns[chosen],
        joined.cpu[chosen],
        excess,
    )
    found = [
        (row, values)
        for rows, longer_than_ns in ((tested, 0), (background, gap_ns))
        for row, values in zip(
            rows,
            joined.laid.cores.test(
                list(joined.laid.rows.of_owners), rows, windows, span,
                longer_than_ns=longer_than_ns, shifts=shifts, seed=SEED,
            ),
            strict=True,
        )
    ]  # fmt: skip
    passed = benjamini_hochberg([p for _, (*_, p) in found])
    best: dict[int, Claim] = {}
    for (row, values), good in zip(found, passed, strict=True):
        if row not in best or values[-1] < best[row].p:
            best[row] = Claim(*values, passed=good)
    return best


def benjamini_hochberg(ps: Sequence[float], share: float = FALSE_CLAIMS) -> list[bool]:
    """Which of the hypotheses with these p-values are rejected."""
    ordered = np.sort(np.asarray(ps, float))
    below = np.flatnonzero(ordered <= share * np.arange(1, ordered.size + 1) / max(1, ordered.size))
    limit = ordered[below[-1]] if below.size else -1.0
    return [p <= limit for p in ps]


FEWEST = 8
"""Fewer points show no period."""
MOST = 20_000
"""Points that are looked at, evenly over the run."""
FALSE_ALARM = 0.001
HIGHEST_HZ = 2000.0
LEAST_TURNS = 10
"""A period has passed so often in a run that shows it."""
_BINS = 1 << 21
"""Times are counted in at most so many bins for the free search."""
_NARROWEST, _WIDEST = 24, 2000
"""How many frequencies around one say how large z is there by chance: about an octave."""
_FINEST = 1e-4
"""How exactly a frequency is looked for, in parts of what a run can tell apart."""
TICK_SHARE = 0.1
"""Of timer interrupts, the share z / n at the tick's frequency: others are timers of their own."""
_HARMONICS = 0.3
"""The fundamental is the lowest frequency with this share of the largest z."""

KNOWN_HZ: tuple[tuple[float, str], ...] = (
    (1.0, "once a second, as vmstat and the scheduler's real-time period"),
    (0.5, "every 2 s, as old watchdogs"),
    (0.25, "every 4 s, as the watchdog of soft lockups"),
    (0.2, "every 5 s, as the writeback of dirty pages"),
    (0.1, "every 10 s, as khugepaged"),
)
"""Frequencies of the kernel's own timers."""
TICKS_HZ = (100.0, 250.0, 300.0, 1000.0)
"""What CONFIG_HZ can be, ascending."""


def tick(times_ns: Column) -> float | None:
    """The frequency of the tick, from the times of a core's timer interrupts; None without one."""
    if times_ns.size < FEWEST:
        return None
    times = (times_ns - times_ns[0]) / 1e9
    found = {hz: _rayleigh(times, hz) / times.size for hz in TICKS_HZ}
    enough = max(TICK_SHARE, _HARMONICS * max(found.values()))
    return next((hz for hz, share in found.items() if share >= enough), None)


def periods(
    times_ns: Column, span: tuple[int, int], packet_hz: float | None, tick_hz: float | None
) -> list[Period]:
    """The periods of points in time within `span`, the strongest first; at most three.

    `packet_hz` is the rate of packets that come at a constant rate, None for others; `tick_hz`
    that of the kernel's tick.
    """
    inside = (times_ns >= span[0]) & (times_ns < span[1])
    times = (times_ns[inside] - span[0]) / 1e9
    if times.size < FEWEST:
        return []
    if times.size > MOST:
        times = times[np.linspace(0, times.size - 1, MOST).astype(np.int64)]
    length = (span[1] - span[0]) / 1e9
    named = _candidates(packet_hz, tick_hz, length)
    spectrum = _Spectrum(times, length)
    found = []
    for hz, words in named:
        z, alarm = spectrum.strength(_refined(times, hz, length), len(named))
        if alarm < FALSE_ALARM:
            found.append(_period(hz, z, alarm, times.size, words))
    free = spectrum.strongest()
    if free is not None:
        hz, z, alarm = free
        words = next((words for known, words in named if abs(known - hz) * length < 1), "")
        found.append(_period(hz, z, alarm, times.size, words))
    return _distinct(found, length)


def _candidates(
    packet_hz: float | None, tick_hz: float | None, length: float
) -> list[tuple[float, str]]:
    """Frequencies with a name of which a run shows enough."""
    found = list(KNOWN_HZ)
    if tick_hz:
        found.append((tick_hz, f"the tick ({tick_hz:g} Hz)"))
    if tick_hz and packet_hz:
        beat = abs(packet_hz - tick_hz * round(packet_hz / tick_hz))
        found.append((beat, f"the beat of {packet_hz:,.2f} pkt/s with the tick ({tick_hz:g} Hz)"))
    # What one cannot tell from another is that: a packet rate that the tick divides has no beat.
    return [(hz, words) for hz, words in found if hz * length >= LEAST_TURNS]


def _rayleigh(times: npt.NDArray[np.float64], hz: float) -> float:
    phases = 2 * np.pi * ((times * hz) % 1.0)
    return float((np.cos(phases).sum() ** 2 + np.sin(phases).sum() ** 2) / times.size)


def _refined(times: npt.NDArray[np.float64], hz: float, length: float) -> float:
    """The strongest frequency that a run of this length cannot tell from `hz`."""
    near = hz + np.linspace(-0.25, 0.25, 5) / length
    return float(max(near, key=lambda one: _rayleigh(times, one)))


class _Spectrum:
    """z of all frequencies, at half the distance of independent ones, and what is usual there."""

    def __init__(self, times: npt.NDArray[np.float64], length: float) -> None:
        """The spectrum of times within `length`, both in seconds."""
        bins = min(_BINS, 1 << int(np.ceil(np.log2(2 * HIGHEST_HZ * length))))
        places = (times / length * bins).astype(np.int64).clip(0, bins - 1)
        counts = np.bincount(places, minlength=bins)
        self.times, self.length = times, length
        self.power = np.abs(np.fft.rfft(counts, 2 * bins)) ** 2 / times.size
        self.first = 2 * LEAST_TURNS
        self.last = min(self.power.size, int(2 * HIGHEST_HZ * length) + 1)
        self.around = np.ones(self.power.size)
        start = self.first
        while start < self.last:
            width = max(_NARROWEST, min(_WIDEST, start // 2))
            block = slice(start, min(start + width, self.last))
            # The median of an exponential distribution is log 2 of its mean.
            usual = float(np.median(self.power[block])) / np.log(2)
            self.around[block] = max(1.0, usual)
            start += width

    def strength(self, hz: float, tried: float) -> tuple[float, float]:
        """z at a frequency, and the probability of as much by chance among so many `tried`."""
        z = _rayleigh(self.times, hz)
        place = min(max(round(2 * hz * self.length), self.first), self.around.size - 1)
        over = z / float(self.around[place])
        return z, float(-np.expm1(tried * np.log1p(-np.exp(-over)))) if over > 0 else 1.0

    def strongest(self) -> tuple[float, float, float] | None:
        """The strongest period of all: frequency, z and false alarm probability."""
        if self.last <= self.first:
            return None
        strength = (self.power / self.around)[self.first : self.last]
        enough = np.flatnonzero(strength >= _HARMONICS * strength.max())
        lowest = self.first + int(enough[0])
        # The shoulder of a peak is not its top.
        peak = lowest + int(self.power[lowest : lowest + 4].argmax())
        hz, step = peak / (2 * self.length), 0.5 / self.length
        while step > _FINEST / self.length:
            near = np.linspace(hz - step, hz + step, 11)
            hz, step = max(near, key=lambda one: _rayleigh(self.times, one)), step / 5
        z, alarm = self.strength(float(hz), self.last - self.first)
        return (float(hz), z, alarm) if alarm < FALSE_ALARM else None


def _period(hz: float, z: float, alarm: float, points: int, words: str) -> Period:
    return Period(
        cause=None,
        detail=None,
        period_ns=round(1e9 / hz),
        z=z,
        false_alarm=alarm,
        sharpness=float(np.sqrt(z / points)),
        words=words,
    )


def _distinct(found: Sequence[Period], length: float) -> list[Period]:
    """The strongest three. What comes every 4 ms has power at all multiples of 250 Hz: these go."""
    kept: list[Period] = []
    for period in sorted(found, key=lambda one: (-one.period_ns, not one.words)):
        hz = 1e9 / period.period_ns

        def is_multiple(other: Period, hz: float = hz) -> bool:
            base = 1e9 / other.period_ns
            return abs(hz - base * max(1, round(hz / base))) * length < 1

        if not any(is_multiple(one) and one.z >= _HARMONICS * period.z for one in kept):
            kept.append(period)
    return sorted(kept, key=lambda one: -one.z)[:3]
