"""Packets that are equal: what is claimed is true, and all is claimed where none is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from captures import pcap
from pairs import in_pieces

from tailtap.analysis.evaluation import Settings
from tailtap.analysis.evaluation.evaluate import evaluate_by
from tailtap.base.errors import InputError
from tests.simulation.captures import SHORT
from tests.simulation.draw import Draw
from tests.simulation.frames import Traffic
from tests.simulation.trial import Trial

START_NS = 1_000_000_000_000


def run(draw: Draw, folder: Path) -> None:
    """A device keeps their order, and may lose some; they are no copies of a mirror port."""
    number = draw.count("packets", 3, 400)
    stream = draw.stream("packets")
    step = draw.magnitude("step", 3 * SHORT, 1_000_000)
    came = START_NS + np.cumsum(stream.choice([step, 30 * step, 70 * step], number))
    left = came + stream.integers(1, 9 * step, number)
    apart = 2 * SHORT * np.arange(number)
    left = np.maximum.accumulate(left - apart) + apart
    gone = np.zeros(number, bool)
    if draw.has("device drops", 0.6):
        gone = draw.stream("device drops").random(number) < 0.05
    frame = Traffic("payloads", "bridge", 1, (0,), ()).before(0)
    (folder / "in").write_bytes(pcap([(int(time), frame) for time in came]))
    (folder / "out").write_bytes(pcap([(int(time), frame) for time in left[~gone]]))
    settings = Settings(key="packet", window_ns=50 * step, throughout=True)
    try:
        found = evaluate_by(settings, folder / "in", folder / "out")
    except InputError:
        assert gone.any(), "none is lost"
        return
    if draw.has("in pieces", 0.2):
        again = in_pieces(folder / "in", folder / "out", settings, chunk_bytes=2_000)
        assert again.as_json() == found.as_json()
    counts = found.counts
    truth = set(zip(came[~gone].tolist(), left[~gone].tolist(), strict=True))
    claimed = {packet[1:3] for packet in found.worst()}
    assert claimed <= truth
    assert {packet.ingress_ns for packet in found.losses()} <= set(came[gone].tolist())
    assert counts.lost <= gone.sum()
    assert counts.matched + counts.lost + counts.duplicate_ingress == number
    assert counts.matched_in_order <= counts.matched == len(claimed)
    if not gone.any():
        assert claimed == truth


TRIAL = Trial("equals", run)
