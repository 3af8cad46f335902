"""What a trace lacks is said."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tailtap.base.check import Findings
from tailtap.lab.instruments.tracer import (
    FULL,
    LEAST,
    RECORD_BYTES,
    SHARE,
    SPARE,
    STEERED,
    THIN,
    USED,
    Room,
    foresee,
    room_of,
    spare_cpu,
    warnings_of,
    written,
)
from tailtap.records.trace import Taken


def trace(**changes: Any) -> Taken:
    """What is said of a trace that lacks nothing."""
    whole: dict[str, Any] = {"lost": {"1": 0, "2": 0}, "kinds": {}, "hooks": {}}
    times = {"started_ns": 1, "ended_ns": 2}
    return Taken(**whole | times | {"cpus": [1, 2], "served": None} | changes)


def test_a_whole_trace_has_no_warnings() -> None:
    """None at all."""
    assert list(warnings_of(trace())) == []


def test_lost_records_are_told_by_cpu() -> None:
    """Those that lost none are not named."""
    [warning] = warnings_of(trace(lost={"1": 7, "2": 0}))
    assert warning["code"] == "trace-lost"
    assert "7 of CPU 1:" in warning["message"]
    assert "CPU 2" not in warning["message"]


def test_what_a_kernel_does_not_tell_is_named_with_its_substitute() -> None:
    """Both, in one sentence."""
    lacking = trace(missing=["nmi_handler: gone"], substitutes=["a: by b"])
    [warning] = warnings_of(lacking)
    assert warning["code"] == "trace-incomplete"
    assert "lacks nmi_handler: gone; instead: a: by b" in warning["message"]


def test_a_trace_that_was_written_where_packets_are_sent_says_so() -> None:
    """Not one that was held in memory, nor one that another CPU wrote."""
    nowhere, somewhere = Room(1 << 16, False, None), Room(1 << 16, False, 3)
    [warning] = written(trace(writes=2), nowhere)
    assert warning["code"] == "trace-written"
    assert "written 2 times while packets were sent: more than 32,768 records" in warning["message"]
    assert list(written(trace(writes=0), nowhere)) == []
    assert list(written(trace(writes=2), somewhere)) == []


@pytest.mark.parametrize(
    ("lacks", "notes"),
    [(([], []), []), ((["x: none"], []), ["trace: it lacks x: none"])],
)
def test_a_check_notes_what_a_trace_would_lack(
    monkeypatch: pytest.MonkeyPatch, lacks: tuple[list[str], list[str]], notes: list[str]
) -> None:
    """A note, as the rest is recorded."""
    monkeypatch.setattr("tailtap._core.trace_lacks", lambda mode: lacks)
    findings = Findings()
    room = Room(1 << 16, whole=True, cpu=None)
    foresee("thin", room, 1, findings)
    assert findings.notes == [room.sentence(1), *notes]
    assert not findings.problems


GIB = 1 << 30


def test_a_run_is_held_whole_below_the_part_that_is_written() -> None:
    """Half of the room is more than all that the packets make, whatever the mode."""
    modes = [("thin", True, STEERED), ("thin", False, THIN), ("full", True, FULL)]
    for (mode, steered, each), packets in itertools.product(modes, (1, 10_000, 3_000_000)):
        room = room_of(packets, mode, steered=steered, cpus=1, spare=None, memory=64 * GIB)
        assert room.whole
        assert USED * (packets * each + SPARE) <= room.records
        assert room.records < 2 * USED * (packets * each + SPARE)
        assert room.records & (room.records - 1) == 0


def test_rings_take_a_part_of_the_memory_at_most() -> None:
    """All CPUs' together; what does not fit is said."""
    for cpus in (1, 2, 3, 7):
        room = room_of(10**9, "full", steered=False, cpus=cpus, spare=3, memory=8 * GIB)
        assert not room.whole
        assert room.bytes(cpus) <= 8 * GIB // SHARE < 4 * room.bytes(cpus)
    assert room_of(10**9, "thin", steered=True, cpus=1, spare=None, memory=1).records == LEAST


def test_a_check_says_where_the_trace_is_kept() -> None:
    """Whole, written beside the measurement, or in its way."""
    assert "nothing is written before the last packet" in Room(LEAST, True, None).sentence(1)
    assert "meanwhile on CPU 5" in Room(LEAST, False, 5).sentence(2)
    in_the_way = Room(LEAST, False, None).sentence(2)
    assert "on a CPU that sends or serves" in in_the_way
    assert f"{LEAST * RECORD_BYTES * 2 >> 20} MiB" in in_the_way


def test_a_spare_cpu_neither_sends_nor_serves() -> None:
    """None where there is none."""
    assert spare_cpu(range(4), (0, 3)) == 2
    assert spare_cpu((0, 1), (0, 1)) is None
