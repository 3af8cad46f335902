"""Runs to compare, read from wherever they lie: run folders, evaluations, imported results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tailtap.errors import InputError
from tailtap.results.reader import read_runs
from tailtap.results.run import Run


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


def _identity(run: Run) -> object:
    if run.folder is not None:
        return run.folder.resolve()
    return run.root, run.slug, run.origin.source if run.origin else ""
