"""Experiments whose runs take turns, and what one value of a key costs against another one."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from program import TAILTAP
from scipy.stats import binom

from tailtap.analysis.evaluation import Evaluation

SHARES = {"median": 0.5, "p99": 0.99, "p99.9": 0.999}


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The median of `ratios`, and the bounds of a 95 % confidence interval of it.

    The smallest ranks that hold it, by the sign test: Conover, Practical Nonparametric Statistics,
    3.2.
    """
    ordered = sorted(ratios)
    rank = int(binom.ppf(0.025, len(ordered), 0.5))
    low, high = max(0, rank - 1), min(len(ordered) - 1, len(ordered) - rank)
    return statistics.median(ordered), ordered[low], ordered[high]


def experiment(folder: Path, content: dict[str, Any]) -> list[Path]:
    """The run folders of an experiment, in the order of its runs."""
    file, out = folder / "bench.yaml", folder / "out"
    file.write_text(yaml.safe_dump({"name": "bench", **content}), encoding="utf-8")
    command = [str(TAILTAP), "run", str(file), "--out", str(out), "--quiet"]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 3):  # invalid runs are rows that say so
        raise subprocess.CalledProcessError(done.returncode, command)
    return sorted((out / "runs").iterdir())


def compared(
    key: str, values: Sequence[str], rounds: int, content: dict[str, Any]
) -> Iterator[str]:
    """Rows of a table: percentiles with each value of a key, and what they are more than with the
    first one.

    The median of the ratios within each round, and a 95 % confidence interval of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        taken = experiment(Path(folder), {**content, "vary": {key: list(values)}, "repeat": rounds})
        runs = [Evaluation.load(run / "evaluation") for run in taken]
        for place, value in enumerate(values):
            columns = []
            for share in SHARES.values():
                mine = [run.percentile(share).value for run in runs[place :: len(values)]]
                first = [run.percentile(share).value for run in runs[:: len(values)]]
                columns.append(f"{statistics.median(mine) / 1000:.1f}")
                ratios = [one / other for one, other in zip(mine, first, strict=True)]
                middle, low, high = (100 * (ratio - 1) for ratio in interval(ratios))
                columns.append(f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})" if place else "")
            yield f"| {value} | {' | '.join(columns)} |"


def head(what: str) -> str:
    """The head of such a table."""
    columns = " | ".join(f"{name} | more" for name in SHARES)
    return f"| {what} | {columns} |\n|---|{'---|---|' * len(SHARES)}"
