"""Runs to compare, read from wherever they lie: run folders, evaluations, imported results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tailtap.analysis.runs.reader import home_of, read_runs
from tailtap.analysis.runs.run import Run
from tailtap.analysis.verdict.runs import required_by
from tailtap.base.errors import InputError


def read(
    sources: Sequence[tuple[str, Path]], progress: Callable[[str], None] = lambda _: None
) -> list[Run]:
    """The runs of all `sources`, each a name (or "") and a path; none is read twice.

    Raises `InputError` when a path holds no runs, or some that cannot be read.
    """
    found: dict[object, Run] = {}
    for name, path in sources:
        progress(f"reading {path}")
        experiment = read_runs(path)
        if experiment.warnings:
            raise InputError(experiment.warnings[0].message)
        for run in experiment.runs:
            found.setdefault(_identity(run), replace(run, alias=name))
    return list(found.values())


def required_percentiles(paths: Iterable[Path]) -> set[float]:
    """The percentiles (0 to 1; 1 is the maximum) that the experiment files of runs require.

    The share of packets that must be in time is one, too. Raises `InputError` with the line of a
    file that was changed into one that cannot be read.
    """
    found: set[float] = set()
    for home in {home_of(path) for path in paths}:
        for wanted in required_by(home):
            match wanted.quantity:
                case "percentile" if wanted.argument is not None:
                    found.add(float(wanted.argument))
                case "reliability":
                    found.add(float(wanted.limit))
                case "max":
                    found.add(1.0)
    return found


def _identity(run: Run) -> object:
    if run.folder is not None:
        return run.folder.resolve()
    return run.root, run.slug, run.origin.source if run.origin else ""
