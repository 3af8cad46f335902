"""Records as lanes and as causes of a host; what tasks and late packets are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stamps import write_stamps
from traced import START, Record, trace_of
from traces import FUNCTION, IDLE, IRQ, LOST, SOFTIRQ, TASK, VECTOR, WORK

from tailtap.analysis.causes.lanes import Slice, rows, slices
from tailtap.analysis.causes.taxonomy import SERVED, Names, Served, sort
from tailtap.analysis.causes.trace import merged, read_events
from tailtap.base.errors import InputError
from tailtap.records.evaluation import packet_name
from tailtap.records.record import parsed
from tailtap.records.trace import Task
from tests.simulation.device import FLUSH, HOG, SERVES, VMSTAT

ACCUMULATED = 1
NET_RX = 3
CAUSES = {"flush_tlb_func": "tlb-flush", "BLOCK": "softirq", "forwarder": "serving",
          "idle, state 2": "idle"}  # fmt: skip


def drawn(folder: Path, records: Sequence[Record]) -> list[Slice]:
    trace = trace_of(folder, records)
    return slices(read_events(trace), trace)


def told(ones: Sequence[Slice]) -> list[tuple[str, str, int, int, int]]:
    """Lane, name, start, end and depth; times since START."""
    return [(one.lane, one.name, one.start - START, one.end - START, one.depth) for one in ones]


LONGEST = 0xFFFFFFFF
DRAWN: dict[str, tuple[list[Record], list[tuple[str, str, int, int, int]]]] = {
    "each context has a lane, and what it did lies in it": (
        [
            Record(START, 100_000, TASK, SERVES, 1 << 48),
            Record(START + 10_000, 40_000, SOFTIRQ, 4),
            Record(START + 20_000, 5_000, IRQ, 24),
            Record(START + 60_000, 6_000, VECTOR, 3),
            Record(START + 61_000, 3_000, FUNCTION, 0, FLUSH),
            Record(START + 100_000, 50_000, TASK, 77, 1 << 40),
            Record(START + 101_000, 70_000, WORK, 77, VMSTAT),  # cut where its thread leaves
            Record(START + 150_000, 20_000, IDLE, 2),
        ],
        [
            ("interrupt", "virtio0-input.0", 20_000, 25_000, 0),
            ("interrupt", "function-call-ipi", 60_000, 66_000, 0),
            ("interrupt", "flush_tlb_func", 61_000, 64_000, 1),
            ("softirq", "BLOCK", 10_000, 50_000, 0),
            ("task", "forwarder", 0, 100_000, 0),
            ("task", "kworker/1:2", 100_000, 150_000, 0),
            ("task", "kworker: vmstat_update", 101_000, 150_000, 1),
            ("task", "idle, state 2", 150_000, 170_000, 0),
        ],
    ),
    "steal ends where the next record begins": (
        [
            Record(START + 50_000, 5_000, VECTOR, 1),
            Record(START + 90_000, 5_000, VECTOR, 1, steal=30_000),
            Record(START + 96_000, 4_000, VECTOR, 1, steal=20_000),  # there is room for 5 us only
        ],
        [
            ("interrupt", "local timer", 50_000, 55_000, 0),
            ("interrupt", "local timer", 90_000, 95_000, 0),
            ("interrupt", "local timer", 96_000, 100_000, 0),
            ("steal", "steal", 60_000, 90_000, 0),
            ("steal", "steal", 95_000, 100_000, 0),
        ],
    ),
    "short ones are a window of their own": (
        [
            Record(START + 10_000, 5_000, VECTOR, 1),
            Record(START, 3_000, VECTOR, 2, 900_000 << 32 | 7, flags=ACCUMULATED),
        ],
        [
            ("interrupt", "reschedule-ipi ×7", 0, 900_000, 0),
            ("interrupt", "local timer", 10_000, 15_000, 0),
        ],
    ),
    "a task beyond the longest record ends with the next one": (
        [Record(START, LONGEST, TASK, HOG), Record(START + LONGEST + 9_000, 1_000, IDLE, 1)],
        [
            ("task", "hog", 0, LONGEST + 9_000, 0),
            ("task", "idle, state 1", LONGEST + 9_000, LONGEST + 10_000, 0),
        ],
    ),
}


@pytest.mark.parametrize("case", DRAWN)
def test_records_lie_in_lanes(tmp_path: Path, case: str) -> None:
    records, expected = DRAWN[case]
    found = drawn(tmp_path, records)
    assert told(found) == expected
    for one in found:
        assert (one.number == 7) == ("×7" in one.name)
        assert one.cause == CAUSES.get(one.name, one.cause)


def test_softirqs_without_a_packet_of_the_run_are_those_of_others(tmp_path: Path) -> None:
    records = [
        Record(START, 10_000, SOFTIRQ, NET_RX),
        Record(START + 20_000, 10_000, SOFTIRQ, NET_RX),
    ]
    trace = trace_of(tmp_path, records, by="softirq")
    write_stamps(tmp_path / "egress.stamps", [START + 25_000], [0])
    found = slices(read_events(trace, [tmp_path / "egress.stamps"]), trace)
    assert [one.cause for one in found] == ["foreign-net-rx", "serving"]


def test_lost_records_and_damage(tmp_path: Path) -> None:
    records = [Record(START, 10, LOST, aux=3), Record(START + 10, 10, LOST)]
    trace = trace_of(tmp_path, [*records, Record(START + 20, 5, VECTOR, 1)])
    found = slices(read_events(trace), trace)
    lanes = [(one.lane, one.cause) for one in found]
    assert sorted(lanes) == [("interrupt", "timer"), ("lost", "unseen"), ("lost", "unseen")]
    assert {one.name for one in found if one.lane == "lost"} == {"3 records lost", "not traced"}
    content = trace.events.read_bytes()
    trace.events.write_bytes(content[:40] + bytes(32) + content[40:])
    assert read_events(replace(trace)).records.size == 1  # what stands behind damage is not read
    trace.events.write_bytes(b"something else")
    with pytest.raises(InputError, match="this is no trace"):
        read_events(replace(trace))


INTERVALS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), max_size=20)


@given(INTERVALS, st.lists(st.tuples(st.integers(0, 250), st.integers(1, 30)), min_size=1))
def test_near_keeps_what_overlaps_a_window(
    tmp_path_factory: pytest.TempPathFactory,
    intervals: list[tuple[int, int]],
    windows: list[tuple[int, int]],
) -> None:
    records = [Record(START + start, dur, VECTOR, 1) for start, dur in intervals]
    events = read_events(trace_of(tmp_path_factory.mktemp("near"), records))
    spans = merged((START + start, START + start + dur) for start, dur in windows)
    assert all(a[1] < b[0] for a, b in pairwise(spans))
    expected = sorted(
        (start, dur)
        for start, dur in intervals
        if any(START + start <= until and START + start + dur >= begun for begun, until in spans)
    )
    kept = events.near(spans).records
    assert (
        sorted(zip((kept["start"] - START).tolist(), kept["dur"].tolist(), strict=True)) == expected
    )


@given(INTERVALS, st.data())
def test_lanes_nest_whatever_the_records(
    tmp_path_factory: pytest.TempPathFactory,
    intervals: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    kinds = (VECTOR, SOFTIRQ, TASK, FUNCTION, WORK)
    records = [
        Record(START + start, dur, data.draw(st.sampled_from(kinds)), 1, aux=FLUSH,
               steal=data.draw(st.integers(0, 20)))
        for start, dur in intervals
    ]  # fmt: skip
    open_: dict[str, list[Slice]] = {}
    for one in drawn(tmp_path_factory.mktemp("nest"), records):
        above = open_.setdefault(one.lane, [])
        while above and above[-1].end <= one.start:
            above.pop()
        assert not above or (above[-1].start <= one.start and one.end <= above[-1].end)
        assert one.depth == len(above)
        if one.end > one.start:
            above.append(one)


@given(INTERVALS)
def test_rows_hold_no_two_at_once(intervals: list[tuple[int, int]]) -> None:
    ordered = sorted((start, start + dur) for start, dur in intervals)
    last: dict[int, int] = {}
    for (start, end), row in zip(ordered, rows(ordered), strict=True):
        assert last.get(row, -1) <= start
        last[row] = end
    busiest = max((sum(s <= start < e for s, e in ordered) for start, _ in ordered), default=0)
    assert len(last) >= busiest


VCPU = 77
OWNERS = [(6, HOG, 0), (9, 1, 0), (6, VCPU, SERVED), (255, 0, 0), (0, 0, 0)]


def test_what_the_host_did_is_named_so() -> None:
    rows = sort(OWNERS, Names({HOG: "hog"}), Served("vcpu"))
    assert [rows.names[row] for row in rows.of_owners] == [
        ("task", "host: hog"), ("waiting", "host: its thread slept"), ("serving", ""),
        ("steal", "host"), ("unexplained", ""),
    ]  # fmt: skip


CONTAINER, POD = "a" * 64, "pod12345678_1234_1234_1234_123456789012"
CALLED: dict[str, dict[str, Any]] = {
    "py": {"cgroup": "/"},
    "py, nice 5, cron.service": {"cgroup": "/system.slice/cron.service", "priority": 5},
    "py, BATCH, /a/x": {"cgroup": "/a/x", "policy": "BATCH"},
    "py, RR 9, /b/x": {"cgroup": "/b/x", "policy": "RR", "priority": 9},
    "py, FIFO 50": {"policy": "FIFO", "priority": 50, "cgroup": None},
    "py, BATCH, nice -3, 0e931f5a7630": {
        "cgroup": "/x/0e931f5a7630a3d52f6687fe2ea70775",
        "policy": "BATCH",
        "priority": -3,
    },
    "py, container aaaaaaaaaaaa": {"cgroup": f"/docker-{CONTAINER}.scope"},
    "py, pod 12345678, container aaaaaaaaaaaa": {
        "cgroup": f"/kubepods.slice/kubepods-{POD}.slice/cri-containerd-{CONTAINER}.scope"
    },
    "py, tailtap's generator": {"command": "python3 -P -m tailtap generate eth0", "own": True},
    "py, tailtap's neighbour": {"command": "python3 -P -m tailtap load cpu", "own": True},
    "py, tailtap's run": {"command": "/bin/tailtap run x", "own": True, "cgroup": "/x"},
    "py, started by tailtap": {"command": "trafgen", "own": True, "policy": "FIFO"},
}


def test_tasks_are_called_by_what_tells_them_from_others() -> None:
    """Those that ended before anybody looked are one with others of their name and policy."""
    facts = {"policy": "OTHER", "priority": 0, "cgroup": "/"}
    tasks = {pid: parsed("", facts | {"pid": pid} | told, Task)
             for pid, told in enumerate(CALLED.values())}  # fmt: skip
    ended = parsed("", facts | {"pid": 78, "own": True}, Task)
    assert ended.words("tt-generate", "") == "tt-generate, tailtap's generator"
    tasks[77] = parsed("", facts | {"pid": 77, **CALLED["py, RR 9, /b/x"], "cgroup": None}, Task)
    names = Names(dict.fromkeys(tasks, "py"), tasks=tasks)
    assert list(map(names.thread, tasks)) == [*CALLED, "py, RR 9, /b/x"]
    assert names.thread(99) == "pid 99"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("4711", "packet 4711"),
        ("292b0782a4c6b408", "packet"),
        ("", "packet"),
        ("udp 10.0.0.1:5 > 10.0.0.2:9 id 12345678", "udp 10.0.0.1:5 > 10.0.0.2:9 id 12345678"),
        ("tcp [fd00::1]:5 > [fd00::2]:9 deadbeef", "tcp [fd00::1]:5 > [fd00::2]:9"),
        ("0x88cc 0123456789abcdef", "0x88cc"),
    ],
)
def test_a_packet_is_called_by_flow_id_and_time(key: str, name: str) -> None:
    assert packet_name(key, 3_214_567_890) == f"{name} at 3.214568 s"
