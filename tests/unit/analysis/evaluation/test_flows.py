"""Losses and latencies by flow: packets that the test counted itself, through a NAT and without."""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from captures import frame, pcap

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.evaluate import evaluate, evaluate_by
from tailtap.analysis.evaluation.executors import Threads
from tailtap.analysis.evaluation.many import Captures, evaluate_many
from tailtap.analysis.evaluation.settings import Settings

START = 1_700_000_000_000_000_000
SOURCE, SOURCE_PORT = slice(26, 30), slice(34, 36)
"""Where they stand in a frame of UDP."""


def packet(number: int, flow: int, *, nat: bool = False) -> bytes:
    """A packet of a flow, whose source a NAT may have changed."""
    made = bytearray(frame(number))
    made[SOURCE] = bytes((192, 0, 2, 1)) if nat else bytes((10, 0, 0, flow % 7))
    made[SOURCE_PORT] = struct.pack(">H", (50_000 if nat else 1_000) + flow)
    return bytes(made)


def name(flow: int) -> str:
    """How the flow is called, by what it is before the device."""
    return f"udp 10.0.0.{flow % 7}:{1000 + flow} > 10.1.0.1:53"


def passage(
    folder: Path, *, nat: bool, packets: int = 3_000, flows: int = 9
) -> dict[str, list[int | None]]:
    """Captures before and after a device, and the latencies by flow, None where it was lost."""
    rng = random.Random(5)
    before, after = [], []
    expected: dict[str, list[int | None]] = defaultdict(list)
    for number in range(packets):
        flow = number if flows == packets else rng.randrange(flows)
        time, latency = START + number * 50_000, rng.randrange(20_000, 400_000)
        lost = rng.random() < (0.3 if flow == 4 else 0.01)
        before.append((time, packet(number, flow)))
        if not lost:
            after.append((time + latency, packet(number, flow, nat=nat)))
        expected[name(flow)].append(None if lost else latency)
    (folder / "in.pcap").write_bytes(pcap(before))
    (folder / "out.pcap").write_bytes(pcap(sorted(after)))
    return expected


def require(found: Evaluation, expected: dict[str, list[int | None]]) -> None:
    """Every flow has the numbers that were counted, and all together those of the evaluation."""
    assert found.flows is not None
    assert {row.flow for row in found.flows} == set(expected)
    for row in found.flows:
        took = np.sort([one for one in expected[row.flow] if one is not None])
        counts = (len(expected[row.flow]), len(took), len(expected[row.flow]) - len(took))
        assert (row.packets, row.matched, row.lost) == counts
        latency = row.latency_ns
        assert latency is not None
        assert (latency.min, latency.max) == (took[0], took[-1])
        assert latency.mean == pytest.approx(took.mean())
        ranks = [int(np.ceil(p * len(took))) - 1 for p in (0.5, 0.99)]
        assert [one.value for one in latency.percentiles] == [took[rank] for rank in ranks]
    assert [row.lost for row in found.flows] == sorted((r.lost for r in found.flows), reverse=True)
    assert found.counts.matched == sum(row.matched for row in found.flows)
    assert found.counts.lost == sum(row.lost for row in found.flows)


@pytest.mark.parametrize(
    ("key", "nat"),
    [
        ("auto", False),
        ("auto", True),
        ("moonsniff", True),
        ("ip.id", False),
        ("packet-stream", False),
    ],
)
def test_each_flow_has_its_own_numbers(tmp_path: Path, key: str, *, nat: bool) -> None:
    expected = passage(tmp_path, nat=nat)
    found = evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap", key=key, flows=True)
    require(found, expected)
    found.write(tmp_path / "kept")
    assert Evaluation.load(tmp_path / "kept").flows == found.flows


def test_pieces_have_the_same_flows(tmp_path: Path) -> None:
    expected = passage(tmp_path, nat=False)
    pair = tmp_path / "in.pcap", tmp_path / "out.pcap"
    settings = Settings(key="moonsniff", window_ns=1_000_000, flows=True)
    captures = Captures(*pair, settings)
    with Threads(2) as executor:
        [(_, found)] = evaluate_many([captures], executor, chunk_bytes=40_000)
    assert isinstance(found, Evaluation)
    require(found, expected)
    assert found.flows == evaluate_by(settings, *pair).flows


def test_flows_beyond_the_bound_are_one(tmp_path: Path) -> None:
    expected = passage(tmp_path, nat=False, packets=17_000, flows=17_000)
    found = evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap", flows=True)
    assert found.flows is not None and len(found.flows) == 16_385
    others = found.flows[-1]
    lost = [latencies == [None] for latencies in expected.values()]
    assert (others.flow, others.packets, others.lost) == ("other flows", 616, sum(lost[16_384:]))


def test_nothing_is_told_of_flows_unless_asked(tmp_path: Path) -> None:
    passage(tmp_path, nat=False)
    assert evaluate(tmp_path / "in.pcap", tmp_path / "out.pcap").flows is None
