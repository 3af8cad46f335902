"""Pieces of captures and of traces as one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from growing import SECOND, Traffic, write_trace

from tailtap.analysis.evaluation.evaluate import evaluate
from tailtap.analysis.live.written import Row
from tailtap.base.errors import InputError
from tailtap.base.files import write_json
from tailtap.measure.observe.segments import (
    TraceRow,
    bytes_in,
    join_captures,
    join_traces,
    row_of,
)
from tailtap.records.record import as_json, read
from tailtap.records.trace import TraceNames, TraceRecord, UsualPasses

START = 1000 * SECOND


def joined(row: Row, target: Path, begin: int, end: int) -> dict[str, int]:
    return join_captures(row.between(begin, end), target, below=target.parent)


def test_pieces_joined_are_the_capture_of_that_time(tmp_path: Path) -> None:
    (memory := tmp_path / "memory").mkdir()
    (run := tmp_path / "run").mkdir()
    traffic = Traffic.made(6, late={2500: 4_000_000}, lost=(2600,))
    traffic.rotate(memory, START + 6 * SECOND)
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
    traffic = Traffic.made(3)
    traffic.rotate(tmp_path, START + 3 * SECOND)
    row = row_of(tmp_path, "ingress")
    assert row is not None
    target = tmp_path / "whole.stamps"
    assert joined(row, target, START, START + 9 * SECOND) == {}
    assert target.stat().st_size == 64 + 16 * 3000


def marks(path: Path, times: list[int], level_at: int, level: int) -> None:
    """A closed file of marks, sampled since a time."""
    head = struct.pack("<8sHHI6QII24s32sQB7x", b"\x89TTMARK\n", 1, 24, 1, len(times), len(times), 0,
                       0, 5, 6, 128, 1, b"in", b"packet", level_at, level)  # fmt: skip
    rows = (struct.pack("<QQIBBH", time, time, 60, 0, 16, 0) for time in times)
    path.write_bytes(head.ljust(4096, b"\0") + b"".join(rows))


def test_pieces_of_marks_keep_their_samples(tmp_path: Path) -> None:
    marks(tmp_path / "in-00001.marks", [5, 6], 0, 0)
    marks(tmp_path / "in-00002.marks", [7], 0, 0)
    marks(tmp_path / "in-00003.marks", [8, 9], 8, 3)
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


def test_memory_is_measured(tmp_path: Path) -> None:
    assert bytes_in(tmp_path) == 0
    (tmp_path / "x").write_bytes(b"x" * 10_000)
    assert 8192 < bytes_in(tmp_path) < 30_000
