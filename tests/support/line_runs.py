"""The run of a line whose packets were stamped between its nodes, as `tailtap run` leaves it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from runs import write_run
from stamps import write_stamps

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.hops import evaluate_hops
from tailtap.analysis.evaluation.settings import Settings
from tailtap.analysis.evaluation.values import HopCaptures

PACKETS = 20_000
STALLED, LOST = 777, 4_000
STALL_NS = 3_900_000


def write_line_run(folder: Path, nodes: int = 3, number: int = 1) -> Path:
    """A run folder in `folder`: the third node held up one packet, the second lost one.

    Every hop takes from 5 us to 60 us.
    """
    run = write_run(folder, number, packets=PACKETS)
    random = np.random.default_rng(7)
    took = random.integers(5_000, 60_000, (PACKETS, nodes))
    took[STALLED, 2] = STALL_NS
    sent = 9_000_000_000 + np.arange(PACKETS) * 100_000
    times = np.column_stack((sent, sent[:, None] + np.cumsum(took, axis=1)))
    names = ["ingress", *(f"dut{node}" for node in range(2, nodes + 1)), "egress"]
    for place, name in enumerate(names):
        ids = np.arange(PACKETS) if place < 2 else np.delete(np.arange(PACKETS), LOST)
        ids = ids[np.argsort(times[ids, place], kind="stable")]
        write_stamps(run / f"{name}.stamps", times[ids, place], ids)
    before = [*(f"dut{node}" for node in range(1, nodes + 1)), None]
    record = json.loads((run / "run.json").read_text())
    points = [
        {"name": name, "port": f"{name}:tt-in", "file": f"{name}.stamps", "before": node}
        for name, node in zip(names, before, strict=True)
    ]
    record["instruments"] = {"taps": {"facts": [], "files": [], "points": points}}
    (run / "run.json").write_text(json.dumps(record))
    evaluated(run, names).write(run / "evaluation")
    return run


def evaluated(run: Path, names: list[str]) -> Evaluation:
    """The evaluation of a line with these captures."""
    files = [run / f"{name}.stamps" for name in names]
    captures = [HopCaptures(f"dut{n}", *pair) for n, pair in enumerate(pairwise(files), 1)]
    return evaluate_hops(evaluate(files[0], files[-1]), captures, Settings())
