"""Files of marks: hashes of keys in place of packets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from captures import frame, pcap
from marks import RECORD, write_marks

from tailtap.analysis.evaluation import evaluate as evaluate_captures
from tailtap.base.errors import InputError

#: Both captures run all the time.
evaluate = partial(evaluate_captures, throughout=True)

PACKETS = 20_000
GAP_NS = 10_000
SECOND = 1_000_000_000
LATER_NS = 3_000_000


def _records(levels: bool = False) -> np.ndarray:
    """Packets one after the other, each with a key of its own."""
    records = np.zeros(PACKETS, RECORD)
    records["time"] = SECOND + np.arange(PACKETS) * GAP_NS
    records["key"] = np.random.default_rng(7).integers(0, 2**63, PACKETS, dtype=np.uint64)
    records["len"] = 60 + np.arange(PACKETS) % 1400
    if levels:
        # As of a hash: half of all are of level 0, a quarter of level 1, ...
        zeros = np.random.default_rng(8).geometric(0.5, PACKETS) - 1
        records["level"] = np.minimum(zeros, 16)
    return records


def _behind(records: np.ndarray, latency_ns: np.ndarray | int) -> np.ndarray:
    behind = records.copy()
    behind["time"] += np.asarray(latency_ns, np.uint64)
    return np.sort(behind, order="time")


def test_marks_are_matched_as_packets_are(tmp_path: Path) -> None:
    before = _records()
    lost = np.zeros(PACKETS, bool)
    lost[[5, 600, 601]] = True
    latency = np.random.default_rng(3).integers(1_000, LATER_NS, PACKETS)
    behind = _behind(before[~lost], latency[~lost])
    write_marks(tmp_path / "in.marks", before, key="packet-nat")
    write_marks(tmp_path / "out.marks", behind, key="packet-nat")
    found = evaluate(tmp_path / "in.marks", tmp_path / "out.marks")
    assert found.key == "packet-nat"
    counts = found.counts
    assert (counts.matched, counts.lost, counts.unmatched_egress) == (PACKETS - 3, 3, 0)
    expected = np.sort(latency[~lost])
    assert found.max == expected[-1]
    assert found.percentile(0.5).value == expected[(len(expected) + 1) // 2 - 1]


def test_marks_meet_a_capture_of_the_same_packets(tmp_path: Path) -> None:
    """Of which a tap keeps the ids."""
    frames = [frame(number) for number in range(300)]
    packets = [(SECOND + place * GAP_NS, data) for place, data in enumerate(frames)]
    (tmp_path / "in.pcap").write_bytes(pcap(packets))
    records = np.zeros(300, RECORD)
    records["key"] = np.arange(300)
    records["time"] = [time + 500 for time, _ in packets]
    write_marks(tmp_path / "out.marks", records, key="moonsniff")
    counts = evaluate(tmp_path / "in.pcap", tmp_path / "out.marks").counts
    assert (counts.matched, counts.lost) == (300, 0)


def test_keys_that_differ_are_refused(tmp_path: Path) -> None:
    write_marks(tmp_path / "in.marks", _records(), key="packet-nat")
    write_marks(tmp_path / "out.marks", _records(), key="packet-flow")
    with pytest.raises(InputError, match="hashes of packet-flow with 160 B"):
        evaluate(tmp_path / "in.marks", tmp_path / "out.marks")
    with pytest.raises(InputError, match="nobody can make packet:"):
        evaluate(tmp_path / "in.marks", tmp_path / "in.marks", key="packet")


def test_the_thinner_of_two_samples_counts(tmp_path: Path) -> None:
    records = _records(levels=True)
    write_marks(tmp_path / "in.marks", records[records["level"] >= 2], samples=((0, 2),))
    thin = records[records["level"] >= 4]
    write_marks(tmp_path / "out.marks", _behind(thin, 700), samples=((0, 4),))
    found = evaluate(tmp_path / "in.marks", tmp_path / "out.marks")
    counts = found.counts
    assert (counts.matched, counts.lost, counts.unmatched_egress) == (len(thin), 0, 0)
    said = [warning for warning in found.warnings if warning.code == "sampled"]
    assert len(said) == 2
    assert "were left out, as the other side has a thinner sample" in said[0].message


@pytest.mark.parametrize(("first", "second"), [(0, 3), (3, 0)])
def test_packets_under_way_while_the_sample_changes_are_not_lost(
    first: int, second: int, tmp_path: Path
) -> None:
    """Thinner before the device first and behind it later; denser behind it first."""
    records = _records(levels=True)
    latency = np.random.default_rng(3).integers(1_000, LATER_NS, PACKETS)
    change = SECOND + PACKETS // 2 * GAP_NS
    before = records["time"] < np.uint64(change)
    chosen = records["level"] >= np.where(before, first, second)
    behind = records.copy()
    behind["time"] += latency.astype(np.uint64)
    # A real tap takes five seconds; the last packets are behind the device long before.
    until = change + 5 * SECOND if second > first else change
    level = np.where(behind["time"] < np.uint64(until), first, second)
    passed = np.sort(behind[behind["level"] >= level], order="time")
    samples = ((0, first), (change, second))
    write_marks(tmp_path / "in.marks", records[chosen], samples=samples)
    write_marks(tmp_path / "out.marks", passed, samples=samples)
    counts = evaluate(tmp_path / "in.marks", tmp_path / "out.marks").counts
    assert (counts.lost, counts.unmatched_egress) == (0, 0)
    assert counts.matched == np.count_nonzero(chosen)
    assert counts.trimmed_egress == len(passed) - counts.matched > 0
