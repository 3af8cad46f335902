"""A run whose late packets have two causes: hogs make the longest latencies, kworkers the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from traced import arrivals, hog, kworker, random_blocks, simulate, write_run

SECONDS, RATE = 2.0, 10_000
HOGS, KWORKERS = 14, 40


def write_told(folder: Path) -> Path:
    """An experiment folder with one traced run; returns the run's folder."""
    random = np.random.default_rng(5)
    blocks = [
        *random_blocks(hog, HOGS, (1_200_000, 1_500_000), SECONDS, random),
        *random_blocks(kworker, KWORKERS, (300_000, 500_000), SECONDS, random),
    ]
    found = simulate(arrivals(RATE, SECONDS, random), blocks, random)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text("name: told\n")
    return write_run(folder / "runs" / "001-told", found)
