"""Simulates the critical values of the goodness-of-fit tests in `tailtap.analysis.tail.gpd`.

Writes python/tailtap/analysis/tail/anderson.csv, the quantiles of Anderson-Darling's statistic of
samples from a generalised Pareto distribution against the one fitted to them, and prints the
quantile of the majorant's distance for uniform samples. Only to be run again when the fit changes.
Usage: python -m benches.anderson [SAMPLES]
"""

from __future__ import annotations

import csv
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from tailtap.analysis.tail.gpd import Excesses, anderson_darling, majorant_distance

TABLE = Path(__file__).parents[1] / "python/tailtap/analysis/tail/anderson.csv"
XIS = np.arange(-5, 11) / 10
LEVELS = (0.999, 0.9, 0.75, 0.5, 0.25, 0.15, 0.1, 0.05, 0.025, 0.01, 0.005, 0.001)
#: Excesses in a sample: the quantiles hardly change from a few dozen on.
SIZE = 200


def row(xi: float, samples: int) -> list[float]:
    """The quantiles of A^2 for one xi."""
    random = np.random.default_rng(round(1000 * xi) + 1000)
    found: list[float] = []
    while len(found) < samples:
        excesses = Excesses(stats.genpareto.rvs(xi, size=SIZE, random_state=random))
        fit = excesses.fit()
        if fit.interior:
            found.append(anderson_darling(excesses.values, fit))
    return [float(q) for q in np.quantile(found, [1 - level for level in LEVELS])]


def majorant(samples: int) -> None:
    """Prints the quantiles of the majorant's distance."""
    random = np.random.default_rng(1)
    for size in (20, 50, 200, 1000):
        distances = [
            np.sqrt(size) * majorant_distance(np.sort(random.random(size)))[0]
            for _ in range(samples)
        ]
        print(f"{size:5} uniform values: 0.14 % lie {np.quantile(distances, 1 - 0.01 / 7):.3f} off")


def main() -> None:
    """Writes the table."""
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(partial(row, samples=samples), XIS.tolist()))
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["xi", *LEVELS])
        for xi, quantiles in zip(XIS, rows, strict=True):
            writer.writerow([f"{xi:g}", *(f"{q:.4f}" for q in quantiles)])
    majorant(samples)


if __name__ == "__main__":
    main()
