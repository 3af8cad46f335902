"""The ends of an observation: what only one tap could see is left out, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from marks import RECORD, read_marks, write_marks

from tailtap.analysis.evaluation import evaluate
from tailtap.base.errors import InputError
from tailtap.measure.observe import cut
from tailtap.records.stamps import MARK as OWN
from tailtap.records.stamps import read_marks as read_own
from tailtap.records.stamps import write

SINCE, UNTIL = 1_000_000_000, 2_000_000_000
LATENCY = 40_000_000


def marks(path: Path, packets: list[tuple[int, int]]) -> Path:
    records = np.zeros(len(packets), RECORD)
    records["time"], records["key"] = zip(*packets, strict=True)
    write_marks(path, records)
    return path


def keys(path: Path) -> list[int]:
    return read_marks(path).records["key"].tolist()  # type: ignore[no-any-return]


def test_packets_count_by_when_they_came(tmp_path: Path) -> None:
    """One tap was there earlier than the other, and went earlier."""
    came = {1: 900_000_000, 2: 970_000_000, 3: 1_000_000_001, 4: 1_500_000_000,
            5: 1_999_999_999, 6: 2_000_000_001, 7: 2_030_000_000}  # fmt: skip
    left = {key: time + LATENCY for key, time in came.items()} | {8: 2_060_000_000}
    ingress = marks(tmp_path / "ingress.marks", [(time, key) for key, time in came.items()])
    egress = marks(tmp_path / "egress.marks", [(time, key) for key, time in left.items()])
    cut(ingress, egress, SINCE, UNTIL, below=tmp_path)
    assert keys(ingress) == keys(egress) == [3, 4, 5]
    for path in (ingress, egress):
        found = read_marks(path)
        assert found.seen == found.stored == 3 and found.lost == 0


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


def test_many_marks_are_kept_in_their_order(tmp_path: Path) -> None:
    """More than are held in memory at once."""
    times = np.linspace(SINCE - 1000, UNTIL + 1000, 600_001).astype(np.int64)
    packets = list(zip(times.tolist(), range(len(times)), strict=True))
    ingress, egress = marks(tmp_path / "i.marks", packets), marks(tmp_path / "e.marks", packets)
    cut(ingress, egress, SINCE, UNTIL, below=tmp_path)
    inside = np.flatnonzero((times >= SINCE) & (times <= UNTIL)).tolist()
    assert keys(ingress) == keys(egress) == inside


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
