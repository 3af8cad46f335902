"""Captures to measure with, and what every way must find in them.

The traffic is that of a fast device: 1 Mpkt/s, latencies around 3.4 us with a tail, a little
reordering. The percentiles are counted from the latencies that were drawn, not from the files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from captures import write_many
from numpy.typing import NDArray

from tailtap.analysis.evaluation.values import papers

SECOND_NS = 1_000_000_000
START_NS = 15 * SECOND_NS
GAP_NS = 1_000
#: One packet in this many is late by up to `STALL_NS` more.
STALLED = 5_000
STALL_NS = 20_000
#: Packets that are out of order are late by up to this much: 2,000 others may overtake them.
SHUFFLE_NS = 2_000_000
#: Stamps that are not in order are so within as many packets.
MIXED = 64
#: A second copy leaves the device this much later.
COPY_NS = 40_000
#: Every way computes these percentiles.
PERCENTILES = papers()

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pair:
    """Two captures, the packets in the first and in both, the true `PERCENTILES` in ns."""

    ingress: Path
    egress: Path
    sent: int
    packets: int
    percentiles: list[int]


def ranks(count: int) -> Integers:
    """The ranks, from 1, of `PERCENTILES` among `count` values: nearest rank."""
    return np.array([max(1, math.ceil(p * count)) for p in PERCENTILES])


def percentiles(counts: Integers) -> list[int]:
    """`PERCENTILES` of the values 0, 1, 2… that occur as often as `counts` says."""
    upto = np.cumsum(counts)
    return [int(value) for value in np.searchsorted(upto, ranks(int(upto[-1])))]


def draw(rng: np.random.Generator, pairs: int) -> tuple[Integers, Integers]:
    """Ingress stamps from zero on, ascending, and latencies; both in nanoseconds."""
    times = np.arange(pairs) * GAP_NS + rng.integers(0, GAP_NS // 5, pairs)
    latency = (3_000 + rng.gamma(2, 200, pairs)).astype(np.int64)
    stalled = rng.integers(0, pairs, pairs // STALLED)
    latency[stalled] += rng.integers(0, STALL_NS, len(stalled))
    return times, latency


@dataclass(frozen=True)
class Sent:
    """What went into the device: a capture of `times`, with `ids` counted from zero."""

    capture: Path
    times: Integers
    ids: Integers

    def leaving(self, name: str, latency: Integers, kept: Integers, twice: Integers) -> Pair:
        """The packets `kept` leave after `latency`, and `twice` of them 40 us later once more."""
        late = np.concatenate([latency[kept], latency[twice] + COPY_NS])
        left = np.concatenate([kept, twice])
        leave = self.times[left] + late
        order = np.argsort(leave, kind="stable")
        return self.written(name, leave[order], left[order], latency[kept])

    def mixed(self, latency: Integers) -> Pair:
        """All packets leave after `latency`; the file mixes `MIXED` of them at a time."""
        leave = self.times + latency
        order = np.argsort(leave, kind="stable")
        whole = len(order) // MIXED * MIXED
        blocks = np.random.default_rng(3).permuted(order[:whole].reshape(-1, MIXED), axis=1)
        order = np.concatenate([blocks.ravel(), order[whole:]])
        return self.written("mixed", leave[order], self.ids[order], latency)

    def written(self, name: str, leave: Integers, ids: Integers, latency: Integers) -> Pair:
        """The capture after the device, as it is in the file; `latency` is that of the matched."""
        path = self.capture.with_name(f"{name}.pcap")
        write_many(path, leave, ids)
        truth = percentiles(np.bincount(latency))
        return Pair(self.capture, path, len(self.ids), len(self.ids) + len(ids), truth)


def send(folder: Path, pairs: int) -> tuple[Sent, Integers]:
    """A capture before the device, in `folder`, and the latencies that its packets will have."""
    times, latency = draw(np.random.default_rng(1), pairs)
    sent = Sent(folder / "ingress.pcap", START_NS + times, np.arange(pairs))
    write_many(sent.capture, sent.times, sent.ids)
    return sent, latency


def plain(folder: Path, pairs: int) -> Pair:
    """Captures of a device that loses nothing and does nothing twice."""
    sent, latency = send(folder, pairs)
    return sent.leaving("plain", latency, sent.ids, sent.ids[:0])


def variants(folder: Path, pairs: int) -> dict[str, Pair]:
    """The same packets before the device, and several fates after it; the first is `plain`."""
    rng = np.random.default_rng(2)
    sent, latency = send(folder, pairs)
    everyone, nobody = sent.ids, sent.ids[:0]
    tenth = rng.permutation(pairs)[: pairs // 10]
    shuffled = latency + rng.integers(0, SHUFFLE_NS, pairs)
    return {
        "plain": sent.leaving("plain", latency, everyone, nobody),
        "out of order": sent.leaving("shuffled", shuffled, everyone, nobody),
        "stamps not in order": sent.mixed(latency),
        "10 % lost": sent.leaving("lossy", latency, np.delete(everyone, tenth), nobody),
        "10 % duplicated": sent.leaving("duplicated", latency, everyone, tenth),
    }
