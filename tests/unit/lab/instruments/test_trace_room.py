"""How much of a trace is kept in memory, and who writes the rest."""

from __future__ import annotations

import itertools

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
    room_of,
    spare_cpu,
)

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
