"""A verdict as the JSON object that `tailtap verdict --json` prints; docs/files.md describes it."""

from __future__ import annotations

from typing import Any

from tailtap.verdict.judge import Finding
from tailtap.verdict.runs import Judged, Verdict, answers

SCHEMA = "tailtap.verdict/1"


def record(verdict: Verdict) -> dict[str, Any]:
    """The object. Latencies are in ns, shares from 0 to 1."""
    return {
        "schema": SCHEMA,
        "answer": verdict.answer,
        "answers": answers(verdict.rows),
        "confidence": verdict.confidence,
        "verdicts": [_row(row) for row in verdict.rows],
        "warnings": [{"run": run, **warning._asdict()} for run, warning in verdict.warnings],
    }


def _row(row: Judged) -> dict[str, Any]:
    return {
        "configuration": row.configuration,
        "requirement": row.requirement.text,
        "profile": row.requirement.profile,
        "answer": row.answer,
        "decided_by": row.worst.run,
        "measured": row.worst.measured,
        "reason": row.worst.reason,
        "runs": [_finding(found) for found in row.findings],
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "run": found.run,
        "answer": found.answer,
        "reason": found.reason,
        "measured": found.measured,
        "figures": dict(found.figures),
        "doubts": list(found.doubts),
    }
