"""Pieces of stamps, marks and traces as one, and where an observation begins and ends in them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from growing import START, taps, write_trace
from marks import RECORD, read_marks, write_marks

from tailtap.analysis.evaluation.evaluate import evaluate
from tailtap.analysis.live.written import Row
from tailtap.base.errors import InputError
from tailtap.base.files import write_json
from tailtap.measure.observe import cut
from tailtap.measure.observe.segments import (
    TraceRow,
    join_captures,
    join_traces,
    row_of,
)
from tailtap.records.record import as_json, read
from tailtap.records.stamps import MARK as OWN
from tailtap.records.stamps import read_marks as read_own
from tailtap.records.stamps import write
from tailtap.records.trace import TraceNames, TraceRecord, UsualPasses
from tests.simulation.growing import SECOND


def joined(row: Row, target: Path, begin: int, end: int) -> dict[str, int]:
    return join_captures(row.between(begin, end), target, below=target.parent)


def test_pieces_joined_are_the_capture_of_that_time(tmp_path: Path) -> None:
    (memory := tmp_path / "memory").mkdir()
    (run := tmp_path / "run").mkdir()
    for tap in taps(memory, 6, late={2500: 4_000_000}, lost=(2600,), every_ns=SECOND):
        tap.write(START + 6 * SECOND)
    for side in ("ingress", "egress"):
        row = row_of(memory, side)
        assert row is not None
        counts = joined(row, run / f"{side}.stamps", START + 2 * SECOND, START + 4 * SECOND)
        assert counts["seen"] == counts["stored"] and counts["lost"] == 0
    found = evaluate(run / "ingress.stamps", run / "egress.stamps", window_ns=SECOND)
    assert 1990 <= found.counts.ingress <= 3000 and found.counts.lost == 1
    assert found.max > 4_000_000
    assert not [one for one in found.warnings if "clos" in one.message]


def test_a_piece_that_is_still_written_makes_the_whole_one_too(tmp_path: Path) -> None:
    for tap in taps(tmp_path, 3, every_ns=SECOND):
        tap.write(START + 3 * SECOND)
    row = row_of(tmp_path, "ingress")
    assert row is not None
    target = tmp_path / "whole.stamps"
    assert joined(row, target, START, START + 9 * SECOND) == {}
    assert target.stat().st_size == 64 + 16 * 3000


def sampled(path: Path, times: list[int], level_at: int, level: int) -> None:
    """A closed file of marks, sampled since a time."""
    head = struct.pack("<8sHHI6QII24s32sQB7x", b"\x89TTMARK\n", 1, 24, 1, len(times), len(times), 0,
                       0, 5, 6, 128, 1, b"in", b"packet", level_at, level)  # fmt: skip
    rows = (struct.pack("<QQIBBH", time, time, 60, 0, 16, 0) for time in times)
    path.write_bytes(head.ljust(4096, b"\0") + b"".join(rows))


def test_pieces_of_marks_keep_their_samples(tmp_path: Path) -> None:
    sampled(tmp_path / "in-00001.marks", [5, 6], 0, 0)
    sampled(tmp_path / "in-00002.marks", [7], 0, 0)
    sampled(tmp_path / "in-00003.marks", [8, 9], 8, 3)
    row = row_of(tmp_path, "in")
    assert row is not None and (row.first_ns(), row.last_ns()) == (5, 9)
    target = tmp_path / "whole.marks"
    counts = join_captures(row.files(), target, below=tmp_path)
    assert counts == {
        "seen": 5,
        "stored": 5,
        "lost": 0,
        "other": 0,
        "filtered": 15,
        "unsampled": 18,
    }
    content = target.read_bytes()
    assert struct.unpack_from("<I", content, 68) == (2,)
    assert struct.unpack_from("<QB7xQB7x", content, 128) == (0, 0, 8, 3)
    assert len(content) == 4096 + 5 * 24


def test_a_side_without_a_file_has_no_row(tmp_path: Path) -> None:
    assert row_of(tmp_path, "ingress") is None


def trace(folder: Path, number: int, begin: int, names: dict[str, str], lost: int = 0) -> None:
    write_trace(folder, number, [(begin * SECOND, 5, 6, 1, 0, number)])
    told = TraceRecord(
        cpus=[1], started_ns=begin * SECOND, ended_ns=(begin + 1) * SECOND, served=None, records=1,
        lost={"1": lost}, names=TraceNames(pids=names),
        usual={"1": UsualPasses(passes=10, half_ns=number)},
    )  # fmt: skip
    write_json(folder / f"trace-{number:05}.json", as_json(told))


def test_traces_joined_tell_of_all_their_time(tmp_path: Path) -> None:
    (run := tmp_path / "run").mkdir()
    for number in range(1, 5):
        trace(tmp_path, number, number, {str(number): f"task {number}"}, lost=number)
    (tmp_path / "trace-00005.events").write_bytes(b"TTTRACE1")  # not complete yet
    row = TraceRow(tmp_path)
    assert row.until_ns == 5 * SECOND
    files = row.between(2 * SECOND, 4 * SECOND)
    told = join_traces(files, run, below=run)
    assert told == read(run / "trace.json", TraceRecord)
    assert (told.started_ns, told.ended_ns, told.records) == (2 * SECOND, 4 * SECOND, 2)
    assert (told.lost, told.names.pids) == ({"1": 5}, {"2": "task 2", "3": "task 3"})
    assert told.usual == {"1": UsualPasses(passes=20, half_ns=3)}
    assert (run / "trace.events").stat().st_size == 8 + 2 * 32
    assert row.lost == 10
    assert [one.record.started_ns // SECOND for one in row.drop(4 * SECOND)] == [1, 2, 3]
    assert sorted(path.name for path in tmp_path.glob("trace-*")) == [
        "trace-00004.events", "trace-00004.json", "trace-00005.events"]  # fmt: skip
    assert row.lost == 10  # what was dropped was told
    with pytest.raises(InputError, match="nothing was traced"):
        join_traces([], run, below=run)


SINCE, UNTIL = 1_000_000_000, 2_000_000_000
LATENCY = 40_000_000


def marks(path: Path, packets: list[tuple[int, int]]) -> Path:
    records = np.zeros(len(packets), RECORD)
    records["time"], records["key"] = zip(*packets, strict=True)
    write_marks(path, records)
    return path


def keys(path: Path) -> list[int]:
    return read_marks(path).records["key"].tolist()  # type: ignore[no-any-return]


def test_a_lost_packet_stays_lost_and_an_equal_one_stays(tmp_path: Path) -> None:
    """The key of a packet that came too early is also that of one that counts."""
    ingress = marks(
        tmp_path / "ingress.marks",
        [(990_000_000, 1), (1_000_000_002, 1), (1_200_000_000, 2), (1_300_000_000, 3)],
    )
    egress = marks(
        tmp_path / "egress.marks", [(1_000_000_001, 1), (1_000_000_005, 1), (1_300_000_001, 3)]
    )
    cut(ingress, egress, SINCE, UNTIL, below=tmp_path)
    assert keys(ingress) == [1, 2, 3]
    assert keys(egress) == [1, 1, 3]


def test_many_packets_count_by_when_they_came_and_keep_their_order(tmp_path: Path) -> None:
    """More than are held in memory at once. One tap was there earlier, and went earlier."""
    times = np.linspace(SINCE - 2 * LATENCY, UNTIL + 2 * LATENCY, 600_001).astype(np.int64)
    came = list(zip(times.tolist(), range(len(times)), strict=True))
    left = list(zip((times + LATENCY).tolist(), range(len(times)), strict=True))
    ingress, egress = marks(tmp_path / "i.marks", came[:-9]), marks(tmp_path / "e.marks", left)
    cut(ingress, egress, SINCE, UNTIL, below=tmp_path)
    inside = np.flatnonzero((times >= SINCE) & (times <= UNTIL)).tolist()
    for path in (ingress, egress):
        found = read_marks(path)
        assert found.records["key"].tolist() == inside
        assert found.seen == found.stored == len(inside) and found.lost == 0


def test_marks_that_no_tap_took_are_a_capture(tmp_path: Path) -> None:
    """In the order of time, whatever order they were given in."""
    rows = np.zeros(3, OWN)
    rows["time_ns"], rows["key"], rows["cpu"] = (30, 10, 20), (3, 1, 2), (0, 2, 1)
    path = tmp_path / "ingress.marks"
    write(path, rows, link="ingress", key="packet", below=tmp_path)
    found = read_marks(path)
    assert (found.seen, found.stored, found.key) == (3, 3, "packet")
    assert found.records["key"].tolist() == [1, 2, 3]
    rows["time_ns"] += 5
    write(tmp_path / "egress.marks", rows, link="egress", key="packet", below=tmp_path)
    evaluation = evaluate(path, tmp_path / "egress.marks")
    assert evaluation.counts.matched == 3 and evaluation.max == 5
    assert evaluation.inputs.ingress.clock == "monotonic"


def test_other_files_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "x.marks"
    with pytest.raises(InputError, match="cannot read it"):
        read_own(other)
    other.write_bytes(b"nothing of ours")
    with pytest.raises(InputError, match="no file of marks"):
        read_own(other)
