"""What came of the runs of an experiment: what ``tailtap run --json`` prints."""

from __future__ import annotations

from typing import Annotated

from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.record import (
    Anything,
    Notice,
    Number,
    Record,
    Share,
    Texts,
    Whole,
    says,
)
from tailtap.records.run import Row, Status
from tailtap.records.verdict import ClaimRow, VerdictRecord


class RunRow(Row, kw_only=True):
    """A run, and its evaluation."""

    status: Status
    error: str | None
    parameters: Annotated[Anything, says("All of them, as in `run.json`")]
    warnings: list[Notice]
    valid: Annotated[
        bool | None, says("False when the generator did not send what was asked of it")
    ]
    folder: str
    evaluation: EvaluationRecord | None


class LossOfFlow(Record, kw_only=True):
    """The share of its packets that a flow lost."""

    flow: str
    lost: Number


class LatencyOfFlow(Record, kw_only=True):
    """The latency of a flow at a percentile."""

    flow: str
    latency_ns: Whole


class FlowsRow(Record, kw_only=True):
    """Flows that were measured at the same time."""

    run: str
    flows: Texts
    valid: bool
    delivery_fairness: Annotated[Number, says("Jain's index of the shares of packets that arrived")]
    lossiest: LossOfFlow
    percentile: Annotated[Share | None, says("The highest one that all of them support")]
    latency_fairness: Annotated[Number | None, says("Jain's index of the latencies")]
    slowest: LatencyOfFlow | None


class ExperimentRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.experiment/1"):
    """``tailtap run --json``."""

    folder: str
    database: str
    runs: list[RunRow]
    flows: list[FlowsRow]
    verdict: Annotated[
        VerdictRecord | None, says("Null where nothing is required, or no run is done")
    ] = None
    claims: Annotated[list[ClaimRow], says("What the runs show of the file's")] = []


class EvaluationsRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.evaluations/1"):
    """``tailtap evaluate --json`` of runs that were made before."""

    folder: str
    database: Annotated[str | None, says("Null where the runs are no experiment's")]
    runs: Annotated[list[RunRow], says("A run that was not evaluated now has no evaluation here")]
