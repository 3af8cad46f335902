"""The sections of the page about the experiment file's `require` and `claims`."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.analysis.claims.reading import claims_shown
from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.runs.text import with_micro_sign
from tailtap.analysis.verdict.runs import judge_experiment, required_by
from tailtap.show.report.tables import Cell

LOOKS = {"holds": "", "not shown": "unshown", "violated": "alarm"}
LOOKS_OF_CLAIMS = {"held": "", "not shown": "unshown", "contradicted": "alarm"}


@dataclass(frozen=True)
class VerdictRow:
    """One requirement of one configuration."""

    configuration: str
    cells: tuple[Cell, ...]


def verdict_rows(experiment: Experiment) -> list[VerdictRow]:
    """The verdict on own runs; empty where the file requires nothing.

    Raises `InputError` when the experiment file was changed into one that cannot be read.
    """
    required = required_by(experiment.folder)
    own = Experiment(experiment.name, experiment.folder, experiment.own)
    if not required or not own.runs:
        return []
    rows = []
    for row in judge_experiment(own, required).verdicts:
        cells = (
            Cell(row.requirement),
            Cell(row.answer, LOOKS[row.answer]),
            Cell(row.decided_by if row.runs[1:] else ""),
            Cell(with_micro_sign(row.measured)),
            Cell(with_micro_sign(row.reason), "why"),
        )
        rows.append(VerdictRow(row.configuration, cells))
    return rows


@dataclass(frozen=True)
class ClaimCells:
    """One claim."""

    says: str
    cells: tuple[Cell, ...]


def claim_rows(experiment: Experiment) -> list[ClaimCells]:
    """What own runs show of the file's claims. Raises as `verdict_rows` does."""
    return [
        ClaimCells(
            row.says,
            (
                Cell(row.test),
                Cell(row.answer, LOOKS_OF_CLAIMS[row.answer]),
                Cell(with_micro_sign(row.reason), "why"),
            ),
        )
        for row in claims_shown(experiment)
    ]
