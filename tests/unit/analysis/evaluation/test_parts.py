"""Parts of a run: hops between nodes, and what is around events."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from stamps import write_stamps

from tailtap.analysis.evaluation import Evaluation, Settings, evaluate
from tailtap.analysis.evaluation.hops import UNKNOWN, around, evaluate_hops, first_between
from tailtap.analysis.evaluation.values import NODE, QUEUE, HopCaptures
from tailtap.base.errors import InputError
from tailtap.records.run import Event

Integers = NDArray[np.int64]
START = 5_000_000_000
WIDE = Settings(throughout=True)


def line(folder: Path, times: Integers) -> list[HopCaptures]:
    """Stamp files of a line; `times` has a row for each packet, -1 where nobody saw it."""
    names = ["ingress", *(f"dut{number}" for number in range(2, times.shape[1])), "egress"]
    for name, column in zip(names, times.T, strict=True):
        ids = np.flatnonzero(column >= 0)
        ids = ids[np.argsort(column[ids], kind="stable")]
        write_stamps(folder / f"{name}.stamps", column[ids], ids)
    files = [folder / f"{name}.stamps" for name in names]
    return [
        HopCaptures(f"dut{number}", *pair, NODE if number % 2 else QUEUE)
        for number, pair in enumerate(pairwise(files), 1)
    ]


@pytest.mark.parametrize("content", [None, b"", b"no stamps", b"\x89TTSTMP\n\x02\x00\x10\x00"])
def test_what_is_no_stamp_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "dut2.stamps"
    if content is not None:
        path.write_bytes(content)
    one = np.array([1])
    with pytest.raises(InputError, match=r"dut2\.stamps: "):
        first_between(path, one, one, one, UNKNOWN)


def test_hops_are_told_where_no_packet_is_kept(tmp_path: Path) -> None:
    captures = line(tmp_path, np.array([[1, 2, 3], [11, 13, 15]]) + START)
    whole = evaluate(captures[0].ingress, captures[-1].egress, worst=0)
    evaluate_hops(whole, captures, WIDE).write(tmp_path / "evaluation")
    again = Evaluation.load(tmp_path / "evaluation")
    assert again.hops is not None
    assert (again.hops.worst.shape, again.hops.slowest.tolist()) == ((0, 2), [0, 0])
    assert [row.max for row in again.hops.rows] == [2, 2]
    assert [row.name for row in again.hops.rows] == ["dut1", "dut2 queue"]


MS = 1_000_000
BEGAN = 7_000_000_000
GAP = MS // 10
LATENCY = 5000
PACKETS = 5000


def event(begin: int, *, end: int | None = 0, window: int = 20 * MS, name: str = "it") -> Event:
    at = BEGAN + begin
    ended = None if end is None else at + end
    return Event(name=name, where="dut", command=["true"], at_ns=begin, window_ns=window,
                 begin_ns=at, end_ns=ended, status=0)  # fmt: skip


def outage(
    folder: Path,
    began: int,
    lasted: int,
    *,
    kept: bool,
) -> tuple[Path, Path]:
    """Captures of a device that forwards nothing for a time: it keeps packets, or drops them."""
    into = BEGAN + np.arange(PACKETS) * GAP
    out = into + LATENCY
    hit = (into >= BEGAN + began) & (into < BEGAN + began + lasted)
    if kept:
        out[hit] = BEGAN + began + lasted + np.arange(int(hit.sum()))
    there = np.ones(PACKETS, bool) if kept else ~hit
    files = folder / "in.stamps", folder / "out.stamps"
    write_stamps(files[0], into, np.arange(PACKETS))
    write_stamps(files[1], out[there], np.arange(PACKETS)[there])
    return files


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("shift", [0, 1, 33_333, 99_999])
@pytest.mark.parametrize("lasted", [50 * MS, 7 * MS + 12_345])
def test_an_outage_lies_within_its_bounds(
    tmp_path: Path, shift: int, lasted: int, *, kept: bool
) -> None:
    began = 100 * MS + shift
    files = outage(tmp_path, began, lasted, kept=kept)
    [told], other = around([event(100 * MS)], *files, trim_ns=0, window_ns=5_000 * MS)
    assert told.after_ns == 100 * MS
    block = told.blocked
    assert block is not None and block.ns is not None and block.most_ns is not None
    # What went in right before still comes out: by its latency later than the outage begins.
    assert block.least_ns <= lasted <= block.most_ns + LATENCY
    assert block.most_ns - block.least_ns <= 3 * GAP + 5000
    assert block.least_ns <= block.ns <= block.most_ns
    assert block.begin_ns == BEGAN + math.ceil(began / GAP) * GAP
    hit = math.ceil((began + lasted) / GAP) - math.ceil(began / GAP)
    assert told.around is not None
    # A packet is of the event by when it goes in: those behind the window are not.
    inside = min(hit, 200 - (math.ceil(shift / GAP)))
    assert told.around.lost == (0 if kept else inside)
    assert (told.around.packets, told.around.time_ns) == (200, 20 * MS)
    assert other.packets == 5000 - 200
    assert other.time_ns == 4999 * GAP - 20 * MS


@pytest.mark.parametrize("off", [-5 * MS, 0, 5 * MS])
def test_a_begin_that_is_not_known_exactly_hides_no_outage(tmp_path: Path, off: int) -> None:
    """It happened somewhere within the bounds of another machine's clock."""
    files = outage(tmp_path, 100 * MS, 7 * MS, kept=False)
    told = replace(event(100 * MS + off, window=MS), within_ns=5 * MS)
    later = replace(event(115 * MS), within_ns=2 * MS)
    [found, _], _ = around([told, later], *files, trim_ns=0, window_ns=MS)
    assert found.after_ns == 100 * MS + off
    assert found.blocked is not None and found.blocked.begin_ns == BEGAN + 100 * MS
    # Until a millisecond behind the latest end, or until the next one may begin.
    assert found.around is not None
    assert found.around.time_ns == min(11 * MS, 113 * MS - (95 * MS + off))
    assert found.around.packets == found.around.time_ns // GAP


def test_latencies_are_of_the_packets_within_the_window(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    packets = 20_000
    into = BEGAN + np.cumsum(generator.integers(1, 2 * GAP, packets))
    latency = generator.integers(1, 30_000, packets)
    there = generator.random(packets) > 0.01
    mixed = generator.permutation(packets)
    write_stamps(tmp_path / "in.stamps", into[mixed], mixed)
    write_stamps(tmp_path / "out.stamps", (into + latency)[there], np.arange(packets)[there])
    events = [event(300 * MS, window=50 * MS), event(320 * MS, end=None, window=10 * MS)]
    found, other = around(
        events, tmp_path / "in.stamps", tmp_path / "out.stamps", trim_ns=100 * MS,
        window_ns=5_000 * MS,
    )  # fmt: skip
    used = np.zeros(packets, bool)
    for told, (low, high) in zip(found, [(300, 320), (320, 330)], strict=True):
        part = (into >= BEGAN + low * MS) & (into < BEGAN + high * MS)
        used |= part
        assert told.around is not None
        arrived = np.sort(latency[part & there])
        assert (told.around.packets, told.around.lost) == (part.sum(), (part & ~there).sum())
        assert told.around.max_ns == arrived[-1]
        for row in told.around.percentiles:
            rank = math.ceil(row.p * len(arrived))
            assert (row.value, row.above) == (arrived[rank - 1], len(arrived) - rank)
            assert row.supported == (row.above >= 10)
    rest = ~used & (into >= into[0] + 100 * MS)
    assert (other.packets, other.lost) == (rest.sum(), (rest & ~there).sum())


def test_silence_before_the_device_blocks_nothing(tmp_path: Path) -> None:
    into = BEGAN + np.r_[np.arange(100), 10_000 + np.arange(100)] * GAP
    write_stamps(tmp_path / "in.stamps", into, np.arange(200))
    write_stamps(tmp_path / "out.stamps", into + 5000, np.arange(200))
    files = tmp_path / "in.stamps", tmp_path / "out.stamps"
    [told], _ = around([event(5 * MS, window=2_000 * MS)], *files, trim_ns=0, window_ns=MS)
    assert told.blocked is not None
    assert told.blocked.ns == 5000


def test_a_device_that_never_comes_back_is_blocked_to_the_end(tmp_path: Path) -> None:
    files = outage(tmp_path, 100 * MS, 10_000 * MS, kept=False)
    [told], other = around([event(100 * MS)], *files, trim_ns=0, window_ns=MS)
    assert told.blocked is not None
    assert (told.blocked.ns, told.blocked.most_ns) == (None, None)
    assert told.blocked.least_ns == 3999 * GAP
    assert other.lost == 3800


def test_captures_without_packets_tell_nothing(tmp_path: Path) -> None:
    for name in ("in", "out"):
        write_stamps(tmp_path / f"{name}.stamps", [], [])
    files = tmp_path / "in.stamps", tmp_path / "out.stamps"
    [told], other = around([event(MS)], *files, trim_ns=0, window_ns=MS)
    assert told.blocked is None
    assert told.around is not None
    assert (told.around.packets, other.packets) == (0, 0)
