"""A pair of captures: each packet has one fate, each latency is the true one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tailtap import _core
from tailtap.analysis.evaluation import Captures, Evaluation, Settings, evaluate, evaluate_many
from tailtap.analysis.evaluation.executors import Threads
from tailtap.analysis.evaluation.many import evaluate_piece, merge, plan
from tailtap.base.errors import InputError, NotSplittableError
from tests.simulation.captures import (
    STRANGE,
    Files,
    Recorded,
    Row,
    both_in_one,
    in_order,
    overtaken,
    recorded,
    written,
)
from tests.simulation.draw import Draw
from tests.simulation.frames import Traffic, shows_router, strange, traffic
from tests.simulation.traffic import NEVER, Packets, packets
from tests.simulation.trial import Trial

SECOND, LATER_NS = 1_000_000_000, 1_000_000
Rows = dict[int, Row]
Both = dict[int, tuple[Row, Row]]


@dataclass(frozen=True)
class Pair:
    """Two captures of packets whose fates are known, and how they are evaluated."""

    made: Packets
    traffic: Traffic
    frames: bool
    """Whether the captures hold frames, and not ids alone."""
    before: Recorded
    behind: Recorded
    apart: dict[int, str]
    """Of packets that are none of the traffic's, and of which none leaves: what each counts as."""
    options: dict[str, Any]
    key: str = ""
    """What the program matches by, once that is known."""

    @property
    def sides(self) -> tuple[Recorded, Recorded]:
        return self.before, self.behind

    @cached_property
    def step(self) -> int:
        return max(side.step for side in self.sides)

    @property
    def in_one_file(self) -> bool:
        """Whether a file of two interfaces can say all that the captures do."""
        plain = [not side.told and side.shows and side.is_in_order for side in self.sides]
        return self.frames and all(plain)

    def keyed(self, side: Recorded) -> list[Row]:
        """The rows with a key, in the order of the file."""
        all_have_it = self.key.startswith(("packet", "signature"))
        return [row for row in side.rows if all_have_it or row.number not in self.apart]

    @cached_property
    def cuts(self) -> tuple[int, int]:
        """Until when packets are left out, before the device and behind it."""
        trim_ns = self.options["trim_ns"]
        if not trim_ns:
            return 0, 0
        before, behind = (min(row.stamp for row in self.keyed(side)) for side in self.sides)
        return before + trim_ns, behind + trim_ns

    @cached_property
    def both(self) -> Both:
        """The packets that are in both captures, by number: their first rows."""
        before, behind = self.before.first(), self.behind.first()
        return {number: (before[number], row) for number, row in behind.items() if number in before}

    @cached_property
    def pairs(self) -> Both:
        """Those that are not left out."""
        return {n: rows for n, rows in self.both.items() if rows[1].stamp >= self.cuts[1]}

    @cached_property
    def alone(self) -> Rows:
        """The packets before the device that are not in the other capture, and not left out."""
        rows = {row.number: row for row in self.keyed(self.before) if not row.copy}
        cut = self.cuts[0]
        return {n: row for n, row in rows.items() if n not in self.both and row.stamp >= cut}

    @cached_property
    def vague(self) -> set[int]:
        """Packets for a router and its own, where the first and the last alone pass it: these need
        not show where it is.
        """
        if len(self.both) > 2 or self.options["throughout"]:
            return set()
        fates = ((row, self.apart.get(row.number)) for row in self.before.rows)
        return {row.number for row, fate in fates if fate == "to_device" or shows_router(row.data)}

    @cached_property
    def overtaken(self) -> int:
        """By how much packets overtake each other, and what steps of the clocks hide of it."""
        apart = overtaken((came.stamp, left.stamp) for came, left in self.pairs.values())
        return apart + (self.step if self.step > 1 else 0)

    @cached_property
    def turns(self) -> tuple[int, int]:
        """When the first and the last of the packets in both captures came to the device."""
        stamps = [came.stamp for came, _ in self.pairs.values()]
        return min(stamps), max(stamps)

    @cached_property
    def longest(self) -> int:
        """The largest latency that surely shows."""
        took = max(left.stamp - came.stamp for came, left in self.pairs.values())
        return took - (self.step if self.step > 1 else 0)

    def is_surely_lost(self, row: Row) -> bool:
        """Whether its turn had come while both captures ran, for all that they show."""
        first, last = self.turns
        turn = first + self.overtaken < row.stamp < last - self.overtaken
        return turn or self.options["throughout"]

    def may_be_lost(self, number: int, row: Row) -> bool:
        """Whether it may be called so: a capture missed it, or nothing shows that it is outside."""
        if number in self.apart or number in self.behind.missed:
            return True
        left = self.made.left[number]
        late = bool(left == NEVER or left - row.at > self.longest)
        # The capture begins behind it, and has what left later of those that came before it.
        turn = row.stamp > self.turns[0] + self.overtaken
        late |= bool(left < self.behind.ran[0] and turn)
        return late or self.is_surely_lost(row)

    def may_be_unmatched(self, row: Row) -> bool:
        """The same of a packet behind the device."""
        came = self.made.sent[row.number]
        first = min(left.stamp for _, left in self.pairs.values())
        behind = row.stamp > first - self.step and came < self.before.ran[0]
        late = bool(row.at - came > self.longest) or behind
        return late or row.number in self.before.missed or self.options["throughout"]


def pair(draw: Draw) -> Pair:
    """Captures of some traffic through some device."""
    made, kind = packets(draw), traffic(draw)
    frames = kind.kind != "ids" or kind.device != "bridge" or draw.has("frames", 0.7)
    passing = [Row(int(at), n, kind.before(n)) for n, at in enumerate(made.sent)]
    leaving = [Row(int(made.left[n]), int(n), kind.behind(int(n))) for n in made.arrived]
    if draw.has("device repeats", 0.1) and leaving:
        again = draw.stream("device repeats")
        for at in again.integers(0, len(leaving), 5):
            row = leaving[at]
            later = int(again.integers(30_000, LATER_NS))
            leaving.append(Row(row.at + later, row.number, row.data))
        leaving = in_order(leaving, by_stamp=False)
    options: dict[str, Any] = {
        "key": draw.choice("key", kind.keys) if frames and draw.has("key", 0.5) else "auto",
        "throughout": draw.has("throughout", 0.5),
        "trim_ns": int(np.ptp(made.sent)) // 4 if draw.has("trim", 0.1) else 0,
        "flows": draw.has("by flow", 0.1),
        "window_ns": 5 * SECOND,
    }
    if draw.has("short window", 0.5) and made.arrived.size:
        longest = int((made.left - made.sent)[made.arrived].max())
        options["window_ns"] = longest + 4 * LATER_NS
    apart: dict[int, str] = {}
    # Other packets may have the numbers of the traffic's.
    by_number = set(options["key"]) & {":", "."}
    if frames and not by_number and draw.has("strange packets", 0.35):
        stream = draw.stream("strange packets")
        for number, (data, fate) in enumerate(strange(kind.device), STRANGE):
            at = int(stream.integers(made.sent[0], made.sent[-1] + 1))
            passing.append(Row(at, number, data))
            apart[number] = fate
        passing = in_order(passing, by_stamp=False)
    before = recorded(draw, "ingress", passing, frames=frames)
    behind = recorded(draw, "egress", leaving, frames=frames)
    if not any(shows_router(row.data) for row in before.rows):
        apart = {n: "lost" if fate == "to_device" else fate for n, fate in apart.items()}
    return Pair(made, kind, frames, before, behind, apart, options)


def run(draw: Draw, folder: Path) -> None:
    made = pair(draw)
    if made.in_one_file and draw.has("in one file", 0.2):
        files = both_in_one(folder, made.sides)
    else:
        files = [
            written(draw, side, folder, capture, frames=made.frames)
            for side, capture in zip(("ingress", "egress"), made.sides, strict=True)
        ]
    ingress, egress = (one.source for one in files)
    if not made.behind.rows or not made.pairs:
        fewest = min(len(side.rows) for side in made.sides)
        if fewest == 1 and made.options["key"] == "auto":  # a device may have changed that packet
            return
        with pytest.raises(InputError):
            evaluate(ingress, egress, **made.options)
        return
    found = evaluate(ingress, egress, **made.options)
    made = replace(made, key=found.key)
    told(made, files, found)
    conserved(made, found)
    followed(made, found)
    by_flow(made, found)
    named(made, found)
    counted(made, found)
    if draw.has("written", 0.3):
        found.write(folder / "stored")
        again = Evaluation.load(folder / "stored")
        assert again.as_json() == found.as_json()
        assert again.losses() == found.losses()
        lost = pq.read_table(folder / "stored/losses.parquet")
        assert lost["burst"].to_pylist() == [packet.burst for packet in found.losses()]
        tables = again.to_arrow()
        assert all(table.equals(tables[name]) for name, table in found.to_arrow().items())
    if draw.has("in pieces", 0.2):
        in_pieces(draw, folder, Captures(ingress, egress, Settings(**made.options)), found)


def told(made: Pair, files: list[Files], found: Evaluation) -> None:
    """What the captures do not hold, and what their clocks do not resolve, is said."""
    within = found.within_ns
    for side, file, capture in zip(found.inputs.both, files, made.sides, strict=True):
        assert side.format == file.format.split()[0]
        missing = side.unread.get("dropped", 0) + side.unread.get("tap-lost", 0)
        assert missing == capture.told
        if capture.step > 1:
            assert capture.shows or file.unit > 1
            assert side.resolution_ns >= capture.step
            assert within >= capture.step
    assert within == 0 or made.step > 1


def conserved(made: Pair, found: Evaluation) -> None:
    """Each packet is counted once, as what it is."""
    counts = found.counts
    assert (counts.noncausal, counts.noncausal_ingress, counts.duplicate_ingress) == (0, 0, 0)
    strip = [side.copies for side in found.inputs.both]
    assert strip[0] == made.before.copies and strip[1] in (0, made.behind.copies)
    came, left = (
        [row for row in made.keyed(side) if not (copies and row.copy)]
        for side, copies in zip(made.sides, strip, strict=True)
    )
    assert (counts.ingress, counts.egress) == (len(came), len(left))
    assert counts.unkeyed_ingress == len(made.before.rows) - len(came) - strip[0]
    assert (counts.matched, counts.unkeyed_egress) == (len(made.pairs), 0)
    gone = {name: getattr(counts, name) for name in ("lost", "not_forwarded", "to_device")}
    if "to_device" not in made.apart.values():  # nobody may know that it was for the router
        gone["lost"] += gone.pop("to_device")
    assert counts.outside_ingress + sum(gone.values()) == len(made.alone)
    assert counts.ingress == counts.matched + len(made.alone) + counts.trimmed_ingress
    for name, number in gone.items():
        rows = [(n, row) for n, row in made.alone.items() if made.apart.get(n, "lost") == name]
        least = sum(made.is_surely_lost(row) for n, row in rows if n not in made.vague)
        most = sum(made.may_be_lost(*one) for one in rows)
        most += len(made.vague) if name == "lost" else 0
        assert least <= number <= most, (name, least, number, most)
    kept = [row for row in left if row.stamp >= made.cuts[1]]
    firsts = {id(rows[1]) for rows in made.both.values()}
    further = sum(row.number in made.both and id(row) not in firsts for row in kept)
    strangers = [row for row in kept if row.number not in made.both]
    assert counts.trimmed_egress == len(left) - len(kept)
    assert counts.duplicate_egress == further
    assert counts.unmatched_egress + counts.outside_egress == len(strangers)
    assert counts.unmatched_egress <= sum(map(made.may_be_unmatched, strangers))


def followed(made: Pair, found: Evaluation) -> None:
    """Each packet in both captures is a pair, with the latency that it had."""
    worst = found.worst()
    truth = [(left.at - came.at, came.at, left.at) for came, left in made.pairs.values()]
    assert [packet[:3] for packet in worst] == sorted((p[:3] for p in worst), key=latest_first)
    if made.step == 1:
        assert [packet[:3] for packet in worst] == sorted(truth, key=latest_first)
    within = max(found.within_ns, made.step - 1)
    apart = np.sort([packet.latency for packet in worst]) - np.sort([took for took, *_ in truth])
    assert np.abs(apart).max() <= within
    if found.key == "moonsniff":
        assert {int(packet.key) for packet in worst} == set(made.pairs)
    left = [
        row for row in in_order(made.behind.rows) if made.pairs.get(row.number, ())[1:] == (row,)
    ]
    came = [made.pairs[row.number][0].stamp for row in left]
    if made.step == 1:
        assert found.counts.reordered == int((np.maximum.accumulate(came) > came).sum())


def latest_first(times: tuple[int, ...]) -> tuple[int, ...]:
    """The order of packets by latency, and of equal ones by when they came and left."""
    latency, *stamps = times
    return -latency, *stamps


def by_flow(made: Pair, found: Evaluation) -> None:
    """Each flow has the latencies of its packets."""
    if not made.options["flows"] or not made.frames or made.step > 1:
        return
    flows: dict[str, list[int]] = {}
    for number, (came, left) in made.pairs.items():
        flows.setdefault(made.traffic.name(number), []).append(left.at - came.at)
    rows = {row.flow: row for row in found.flows or [] if row.matched}
    assert rows.keys() == flows.keys()
    for name, took in flows.items():
        latency = rows[name].latency_ns
        assert latency is not None and rows[name].matched == len(took)
        assert (latency.min, latency.max) == (min(took), max(took))
        for row in latency.percentiles:
            assert row.value == np.quantile(took, row.p, method="inverted_cdf")
    assert sum(row.lost for row in found.flows or []) == found.counts.lost


def named(made: Pair, found: Evaluation) -> None:
    """The lost packets are those that were, each with its place and its burst."""
    came = [row for row in made.keyed(made.before) if not row.copy]
    lost = found.losses()
    rows = [came[packet.position] for packet in lost]
    has_lengths = found.inputs.ingress.format not in ("stamps", "mscap")
    assert len(rows) == found.counts.lost
    gone = {row.number for row in rows}
    assert gone <= made.alone.keys()
    for number, row in made.alone.items():
        if made.apart.get(number, "lost") == "lost":
            assert number in gone or not made.is_surely_lost(row)
            assert number not in gone or made.may_be_lost(number, row)
    for packet, row in zip(lost, rows, strict=True):
        assert packet.ingress_ns == row.stamp
        assert packet.length == (len(row.data) if has_lengths else None)
        if made.frames and row.number < STRANGE:
            assert packet.flow == made.traffic.name(row.number)
    stays = np.array([row.number not in gone for row in came])
    if all(row.number < STRANGE for row in came):
        run = np.cumsum(stays)
        sizes = np.bincount(run[~stays], minlength=1)
        assert [packet.burst for packet in lost] == sizes[run[~stays]].tolist()


def counted(made: Pair, found: Evaluation) -> None:
    """Statistics are those of the latencies; gaps and rates those of the captures."""
    latency = np.sort([packet.latency for packet in found.worst()])
    assert np.array_equal(np.repeat(*found.distribution), latency)
    assert (found.min, found.max) == (latency[0], latency[-1])
    assert found.mean == pytest.approx(latency.mean(), abs=1e-3 + found.within_ns)
    for row in found.percentiles():
        assert row.value == np.quantile(latency, row.p, method="inverted_cdf")
        assert row.low is None or row.low <= row.value
        assert row.high is None or row.high >= row.value
        assert row.supported == (row.above >= 10)
    for name, side, copies in zip(
        ("ingress", "egress"), made.sides, found.inputs.both, strict=True
    ):
        times = np.array([r.stamp for r in made.keyed(side) if not (copies.copies and r.copy)])
        times = np.sort(times)
        if made.options["trim_ns"] or made.step > 1:
            continue
        edges, counts = np.unique(np.diff(times) // 100 * 100, return_counts=True)
        gaps = found.gaps(name)
        assert np.array_equal(gaps.edges, edges) and np.array_equal(gaps.counts, counts)
        seconds, counts = np.unique((times - times[0]) // SECOND, return_counts=True)
        assert np.array_equal(found.rates(name)[0], times[0] + seconds * SECOND)
        assert np.array_equal(found.rates(name)[1], counts)


def in_pieces(draw: Draw, folder: Path, captures: Captures, whole: Evaluation) -> None:
    """However captures are cut, and on however many threads, the same bytes are written."""
    whole.write(folder / "whole")
    size = max(path.stat().st_size for path in captures.files(Threads(1)))
    chunk = size // draw.between("pieces", 1, 30) + 1
    with Threads(draw.choice("threads", (1, 8))) as threads:
        [(_, found)] = evaluate_many([captures], threads, chunk_bytes=chunk)
    assert isinstance(found, Evaluation), found
    found.write(folder / "pieces")
    for path in (folder / "whole").iterdir():
        assert path.read_bytes() == (folder / "pieces" / path.name).read_bytes(), path.name
    sides = captures.ingress, captures.egress
    try:
        parts = [evaluate_piece(piece) for piece in plan(*sides, captures.settings, chunk)]
    except NotSplittableError:
        return
    groups = draw.stream("groups")
    while len(parts) > 1:
        at = int(groups.integers(len(parts) - 1))
        parts[at : at + 2] = [merge(*parts[at : at + 2])]
    parts += [evaluate_piece(one) for one in plan(*sides, captures.settings, 0)]
    merged, alone = (_core.conclude(part, bucket_ns=100) for part in parts)
    assert merged == alone


TRIAL = Trial("pairs", run)
