"""A pair of captures: each packet has one fate, each latency is the true one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from stamps import write_sides

from tailtap.analysis.evaluation import evaluate
from tests.simulation.draw import Draw
from tests.simulation.traffic import NEVER, packets
from tests.simulation.trial import Trial


def run(draw: Draw, folder: Path) -> None:
    """Both taps run all the time, on one clock."""
    made = packets(draw)
    write_sides(folder, made.sent, made.left, *np.flatnonzero(made.left == NEVER))
    found = evaluate(folder / "ingress.stamps", folder / "egress.stamps", throughout=True)
    latency = np.sort((made.left - made.sent)[made.arrived])
    assert np.array_equal(np.repeat(*found.distribution), latency)
    assert found.counts.lost == made.sent.size - latency.size


TRIAL = Trial("pairs", run)
