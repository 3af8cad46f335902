"""Flows that were measured at the same time as a table: a row for each measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailtap.analysis.evaluation.percentiles import label as percentile_label
from tailtap.analysis.runs.flows import VARIABLES, Together, stored, together
from tailtap.analysis.runs.groups import INVALID_MARK, configuration_label
from tailtap.analysis.runs.run import Experiment
from tailtap.analysis.runs.text import count_text, share_text, time_text
from tailtap.show.report.tables import DASH, Cell

HEADS = (
    ("flows", "How many flows were measured at the same time"),
    ("most lost", "The flow that lost the largest share of its packets"),
    ("fairness of delivery", "Jain's index of the shares of packets that arrived"),
    ("slowest", "The flow with the highest latency at the highest percentile that all support"),
    ("fairness of latency", "Jain's index of the latencies at that percentile"),
)


@dataclass(frozen=True)
class FlowsRow:
    """The flows of one measurement."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class FlowTable:
    """The measurements of several flows."""

    heads: Sequence[tuple[str, str]]
    """Each with what a pointer resting on it reads."""
    rows: Sequence[FlowsRow]


def flow_table(experiment: Experiment) -> FlowTable:
    """The table of the measurements of several flows; without rows where there are none."""
    return FlowTable(HEADS, flow_rows(experiment))


def flow_rows(experiment: Experiment) -> list[FlowsRow]:
    """The measurements of several flows, in the order of their runs."""
    runs = {run.slug: run for run in experiment.runs if run.origin is None}
    found = list(together(map(stored, runs.values())))
    repeated = any(one.first.repeat > 1 for one in found)

    def title(one: Together) -> str:
        label = configuration_label(runs[one.first.slug], experiment.name, VARIABLES)
        label += f" #{one.first.repeat}" if repeated else ""
        return label if one.valid else f"{label} ({INVALID_MARK})"

    return [FlowsRow(title(one), _cells(one)) for one in found]


def _cells(one: Together) -> tuple[Cell, ...]:
    lost = 1 - one.lossiest.share
    told = f"{one.lossiest.name}: {share_text(lost)}" if lost else "none"
    slowest, percentile = one.slowest, one.percentile
    latency = (Cell(DASH, "", "the flows support no percentile in common"), Cell(DASH))
    if slowest is not None and percentile is not None:
        value = f"{percentile_label(percentile)} {time_text(slowest.percentiles[percentile])}"
        latency = (Cell(f"{slowest.name}: {value}"), Cell(f"{one.latency_fairness:.3f}"))
    return (
        Cell(count_text(len(one.flows))),
        Cell(told, "alarm" if lost else "zero"),
        Cell(f"{one.delivery_fairness:.3f}"),
        *latency,
    )
