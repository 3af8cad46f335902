"""The tail of all runs of an experiment at a glance, for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailtap.analysis.runs.flows import printed, together
from tailtap.analysis.runs.folder import RunFolder
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import as_json, checked_file

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
    record = as_json(run.read())
    kept = ("number", "slug", "repeat", "status", "error", "variables", "parameters", "warnings")
    return {
        **{key: record[key] for key in kept},
        "valid": record["valid"],
        "folder": str(run.path),
        "evaluation": evaluation,
    }


def _evaluation(run: RunFolder) -> dict[str, Any] | None:
    return checked_file(run.evaluation / "evaluation.json", EvaluationRecord) if run.done else None
