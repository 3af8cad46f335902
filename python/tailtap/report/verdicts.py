"""What the page says of the experiment file's `require`."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.report.tables import Cell
from tailtap.report.text import with_micro_sign
from tailtap.report.values import Experiment
from tailtap.verdict.runs import judge_experiment, required_by

LOOKS = {"holds": "", "not shown": "unshown", "violated": "alarm"}


@dataclass(frozen=True)
class VerdictRow:
    """One requirement of one configuration."""

    configuration: str
    cells: tuple[Cell, ...]


def verdict_rows(experiment: Experiment) -> list[VerdictRow]:
    """The verdict over one's own runs; empty where nothing is required.

    Raises `InputError` when the experiment file was changed into one that cannot be read.
    """
    required = required_by(experiment.folder / "experiment.yaml")
    own = Experiment(experiment.name, experiment.folder, experiment.own)
    if not required or not own.runs:
        return []
    rows = []
    for row in judge_experiment(own, required).rows:
        cells = (
            Cell(row.requirement.text),
            Cell(row.answer, LOOKS[row.answer]),
            Cell(row.worst.run if row.findings[1:] else ""),
            Cell(with_micro_sign(row.worst.measured)),
            Cell(with_micro_sign(row.worst.reason), "why"),
        )
        rows.append(VerdictRow(row.configuration, cells))
    return rows
