"""The section of the page about the experiment file's `require`."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.runs.text import with_micro_sign
from tailtap.analysis.verdict.record import record
from tailtap.analysis.verdict.runs import judge_experiment, required_by
from tailtap.output.report.tables import Cell

LOOKS = {"holds": "", "not shown": "unshown", "violated": "alarm"}


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
    for row in record(judge_experiment(own, required)).verdicts:
        cells = (
            Cell(row.requirement),
            Cell(row.answer, LOOKS[row.answer]),
            Cell(row.decided_by if row.runs[1:] else ""),
            Cell(with_micro_sign(row.measured)),
            Cell(with_micro_sign(row.reason), "why"),
        )
        rows.append(VerdictRow(row.configuration, cells))
    return rows
