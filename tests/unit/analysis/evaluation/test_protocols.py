"""Each frame of many protocols is found again or refused: none is taken for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from captures import pcap
from protocols import REFUSED, frames, kinds

from tailtap.analysis.evaluation import evaluate

EACH = 5
START_NS, STEP_NS, LEAST_NS = 10**12, 10_000, 7_000
FRAMES = list(frames(EACH))


def tagged(frame: bytes) -> bytes:
    return frame[:12] + b"\x81\x00\xe0\x07" + frame[12:]


@pytest.mark.parametrize("device", [bytes, tagged])
def test_frames_of_all_protocols_are_found_again(
    device: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Each took a time of its own: one that is taken for another shows."""
    assert len(FRAMES) > 500
    before, after, took = [], [], {}
    for place, (name, frame) in enumerate(FRAMES):
        entered, latency = START_NS + STEP_NS * place, LEAST_NS + 3 * place
        before.append((entered, frame))
        after.append((entered + latency, device(frame)))
        if name not in REFUSED:
            took[entered] = latency
    for path, rows in (("in", before), ("out", after)):
        (tmp_path / path).write_bytes(pcap(rows))
    found = evaluate(tmp_path / "in", tmp_path / "out")
    assert found.key == "packet"
    assert {packet.ingress_ns: packet.latency for packet in found.worst()} == took
    refused = EACH * len(REFUSED)
    assert found.counts.matched == EACH * len(kinds()) == len(FRAMES) - refused
    assert found.counts.unkeyed_ingress == found.counts.unkeyed_egress == refused
    for side in found.inputs.both:
        assert side.unread == {"foreign": refused}
