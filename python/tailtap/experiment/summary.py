"""The tail of all runs of an experiment at a glance, for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tailtap.experiment.folder import RunFolder, read_json

SCHEMA = "tailtap.experiment/1"


def summarize(folder: Path, runs: list[RunFolder]) -> dict[str, Any]:
    """What ``tailtap run --json`` prints: every run with its record and its evaluation."""
    return {
        "schema": SCHEMA,
        "folder": str(folder),
        "database": str(folder / "results.duckdb"),
        "runs": [_summarize_run(run) for run in runs],
    }


def _summarize_run(run: RunFolder) -> dict[str, Any]:
    record = run.read()
    kept = ("number", "slug", "repeat", "status", "error", "variables", "parameters", "warnings")
    done = record["status"] == "done"
    return {
        **{key: record[key] for key in kept},
        "folder": str(run.path),
        "evaluation": read_json(run.evaluation / "evaluation.json") if done else None,
    }
