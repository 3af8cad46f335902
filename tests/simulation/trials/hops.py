"""Lines of nodes with a tap between each two: the hops of a packet add up to its latency."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from stamps import write_stamps

from tailtap.analysis.evaluation import Evaluation, Settings, evaluate
from tailtap.analysis.evaluation.hops import UNKNOWN, evaluate_hops
from tailtap.analysis.evaluation.values import NODE, QUEUE, HopCaptures, pair
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.traffic import NEVER, START_NS
from tests.simulation.trial import Trial

WINDOW_NS = 50_000_000


@dataclass(frozen=True)
class Line:
    """Packets at the taps of a line."""

    at: Integers
    """When each passes each tap, `NEVER` once a node lost it: rows are packets."""
    seen: Integers
    """The same, also `NEVER` where the tap lost the stamp."""
    ids: Integers


def line(draw: Draw) -> Line:
    taps = draw.between("taps", 3, 7)
    number = draw.count("packets", 4, 2_000)
    random = draw.stream("line")
    sent = START_NS + np.sort(
        random.integers(0, number * draw.magnitude("gap", 1_000, 10**6), number)
    )
    took = 200 + random.exponential(draw.magnitude("mean", 100, 100_000), (number, taps - 1))
    took = took.astype(np.int64)
    if draw.has("late", 0.6):
        late = draw.stream("late")
        took += (late.random(took.shape) < 0.01) * late.integers(0, 3_000_000, took.shape)
    at = sent[:, None] + np.column_stack([np.zeros(number, np.int64), took.cumsum(axis=1)])
    if not draw.has("overtaking", 0.3):
        for tap in range(1, taps):
            at[:, tap] = np.maximum.accumulate(at[:, tap] + np.arange(number))
            at[:, tap] = np.maximum(at[:, tap], at[:, tap - 1])
    if draw.has("nodes drop", 0.6):
        dropped = draw.stream("nodes drop").random(took.shape) < 0.02
        at[:, 1:][np.logical_or.accumulate(dropped, axis=1)] = NEVER
    seen = at.copy()
    if draw.has("taps lose", 0.3):
        inner = seen[:, 1:-1]
        inner[draw.stream("taps lose").random(inner.shape) < 0.02] = NEVER
    ids = np.arange(number)
    if draw.has("ids repeat", 0.3):
        near = np.searchsorted(sent, sent + 4 * WINDOW_NS) - ids
        ids = ids % max(int(near.max()), 1)
    return Line(at, seen, ids)


def run(draw: Draw, folder: Path) -> None:
    made = line(draw)
    taps = made.at.shape[1]
    files = [folder / f"tap{tap}.stamps" for tap in range(taps)]
    for file, times in zip(files, made.seen.T, strict=True):
        there = np.flatnonzero(times != NEVER)
        there = there[np.argsort(times[there], kind="stable")]
        write_stamps(file, times[there], made.ids[there])
    if not (made.seen != NEVER).all(axis=1).any():
        return
    settings = Settings(window_ns=WINDOW_NS, throughout=True)
    parts = draw.has("queues", 0.3)
    hops = [
        HopCaptures(f"dut{place}", *ends, QUEUE if parts and place % 2 else NODE)
        for place, ends in enumerate(pairwise(files), 1)
    ]
    whole = evaluate(files[0], files[-1], window_ns=WINDOW_NS, throughout=True)
    found = evaluate_hops(whole, hops, settings)
    holds_truth(found, made)
    adds_up(found, made)
    if draw.has("written", 0.2):
        found.write(folder / "stored")
        again, asked = Evaluation.load(folder / "stored"), (0.5, 0.9371)
        assert again.hops is not None and found.hops is not None
        assert np.array_equal(again.hops.worst, found.hops.worst)
        assert again.as_json(asked) == found.as_json(asked)


def pairs(made: Line) -> list[Integers]:
    """What the taps at both ends of each hop saw of each packet."""
    return [made.seen[:, [tap, tap + 1]] for tap in range(made.seen.shape[1] - 1)]


def holds_truth(found: Evaluation, made: Line) -> None:
    """Each hop has the packets and the times that it had, and lost what it lost."""
    assert found.hops is not None
    for hop, both in zip(found.hops.rows, pairs(made), strict=True):
        before, after = (both != NEVER).T
        took = np.sort((both[:, 1] - both[:, 0])[before & after])
        assert np.array_equal(np.repeat(*pair(hop.distribution)), took)
        counts = hop.counts
        told = (counts.ingress, counts.egress, counts.matched, counts.lost, counts.unmatched_egress)
        assert told == (
            before.sum(), after.sum(), took.size, (before & ~after).sum(), (after & ~before).sum()
        ), hop.name  # fmt: skip
        assert (hop.min, hop.max) == (took[0], took[-1])
        assert hop.mean == pytest.approx(took.mean())
    lost = sum(hop.counts.lost - hop.counts.unmatched_egress for hop in found.hops.rows)
    assert lost == found.counts.lost == (made.at[:, -1] == NEVER).sum()


def adds_up(found: Evaluation, made: Line) -> None:
    """What a late packet took for each hop is the truth, and adds up to its latency."""
    assert found.hops is not None
    rows = {(int(row[0]), int(key)): row for row, key in zip(made.seen, made.ids, strict=True)}
    slowest = np.zeros(len(found.hops.rows), np.int64)
    for place, packet in enumerate(found.worst()):
        row = rows[packet.ingress_ns, int(packet.key)]
        known = (row[1:] != NEVER) & (row[:-1] != NEVER)
        took = np.where(known, np.diff(row), UNKNOWN)
        assert found.hops.worst[place].tolist() == took.tolist(), packet
        told = [ns if seen else None for ns, seen in zip(took.tolist(), known, strict=True)]
        assert found.hops.of_packet(place) == told
        if known.all():
            assert took.sum() == packet.latency
            slowest[took.argmax()] += 1
    assert found.hops.slowest.tolist() == slowest.tolist()
    assert len(found.worst()) == found.counts.matched


TRIAL = Trial("hops", run)
