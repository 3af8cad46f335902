"""A verdict as the record that `tailtap verdict --json` prints."""

from __future__ import annotations

from tailtap.analysis.verdict.judge import Finding
from tailtap.analysis.verdict.runs import Judged, Verdict, answers
from tailtap.records.verdict import RunFinding, RunNotice, VerdictRecord, VerdictRow


def record(verdict: Verdict) -> VerdictRecord:
    """What is printed. Latencies are in ns, shares from 0 to 1."""
    return VerdictRecord(
        answer=verdict.answer,
        answers=answers(verdict.rows),
        confidence=verdict.confidence,
        undisturbed=verdict.undisturbed,
        verdicts=[_row(row) for row in verdict.rows],
        warnings=[
            RunNotice(run=run, code=notice.code, message=notice.message)
            for run, notice in verdict.warnings
        ],
    )


def _row(row: Judged) -> VerdictRow:
    return VerdictRow(
        configuration=row.configuration,
        requirement=row.requirement.text,
        profile=row.requirement.profile,
        answer=row.answer,
        decided_by=row.worst.run,
        measured=row.worst.measured,
        reason=row.worst.reason,
        runs=[_finding(found) for found in row.findings],
    )


def _finding(found: Finding) -> RunFinding:
    return RunFinding(
        run=found.run,
        answer=found.answer,
        reason=found.reason,
        measured=found.measured,
        figures=dict(found.figures),
        doubts=list(found.doubts),
    )
