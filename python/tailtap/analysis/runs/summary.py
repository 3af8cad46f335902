"""The tail of all runs of an experiment at a glance, for programs."""

from __future__ import annotations

from pathlib import Path

from tailtap.analysis.runs.flows import printed, together
from tailtap.analysis.runs.folder import RunFolder
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import ExperimentRecord, RunRow
from tailtap.records.record import read


def summarize(folder: Path, runs: list[RunFolder]) -> ExperimentRecord:
    """What ``tailtap run --json`` prints: every run with its record and its evaluation."""
    rows = [summarize_run(run, _evaluation(run)) for run in runs]
    return ExperimentRecord(
        folder=str(folder),
        database=str(folder / "results.duckdb"),
        runs=rows,
        flows=list(together(map(printed, rows))),
    )


def summarize_run(run: RunFolder, evaluation: EvaluationRecord | None) -> RunRow:
    """The row of one run, with this evaluation."""
    record = run.read()
    return RunRow(
        number=record.number,
        slug=record.slug,
        repeat=record.repeat,
        status=record.status,
        error=record.error,
        variables=record.variables,
        parameters=dict(record.parameters.whole),
        warnings=record.warnings,
        valid=record.valid,
        folder=str(run.path),
        evaluation=evaluation,
    )


def _evaluation(run: RunFolder) -> EvaluationRecord | None:
    return read(run.evaluation / "evaluation.json", EvaluationRecord) if run.done else None
