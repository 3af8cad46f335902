"""A run whose late packets have two causes: hogs make the longest latencies, kworkers the rest."""

from __future__ import annotations

from pathlib import Path

from traced import hog, kworker, traffic, write_run

SECONDS, RATE = 2.0, 10_000
HOGS, KWORKERS = 14, 40


def write_two_causes(folder: Path) -> Path:
    """An experiment folder with one traced run; returns the run's folder."""
    found = traffic(
        5, SECONDS, (hog, HOGS, (1_200_000, 1_500_000)), (kworker, KWORKERS, (300_000, 500_000)),
        rate=RATE,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text("name: told\n")
    return write_run(folder / "runs" / "001-told", found)
