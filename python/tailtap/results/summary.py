"""The tail of all runs of an experiment at a glance, for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailtap.files import read_json
from tailtap.results.flows import printed, together
from tailtap.results.folder import RunFolder

SCHEMA = "tailtap.experiment/1"


def summarize(folder: Path, runs: list[RunFolder]) -> dict[str, Any]:
    """What ``tailtap run --json`` prints: every run with its record and its evaluation."""
    rows = [summarize_run(run, _evaluation(run)) for run in runs]
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "database": str(folder / "results.duckdb"),
        "runs": rows,
        "flows": [found.as_json() for found in together(map(printed, rows))],
    }


def summarize_run(run: RunFolder, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    """The row of one run, with this content of its ``evaluation.json``."""
    record = run.read()
    kept = ("number", "slug", "repeat", "status", "error", "variables", "parameters", "warnings")
    return {
        **{key: record[key] for key in kept},
        "valid": record.get("valid"),
        "folder": str(run.path),
        "evaluation": evaluation,
    }


def _evaluation(run: RunFolder) -> dict[str, Any] | None:
    return read_json(run.evaluation / "evaluation.json") if run.done else None
