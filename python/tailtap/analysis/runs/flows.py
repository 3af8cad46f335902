"""The tail of all runs of an experiment at a glance, and flows that were measured together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.analysis.runs.folder import EVALUATION, RunFolder
from tailtap.records.evaluation import EvaluationRecord, Percentile
from tailtap.records.experiment import ExperimentRecord, FlowsRow, LatencyOfFlow, LossOfFlow, RunRow
from tailtap.records.record import read

if TYPE_CHECKING:
    from tailtap.analysis.runs.run import Run


VARIABLES = ("flow", "direction")
"""The variables by which runs of one measurement differ."""


@dataclass(frozen=True)
class FlowRun:
    """A run, which may be that of a flow."""

    slug: str
    repeat: int
    variables: Mapping[str, Any]
    valid: bool
    """False when a generator did not send what was asked of it."""
    sent: int = 0
    """Packets that came to the tap before the DuT, without those that the evaluation trimmed; none
    where it did not end."""
    lost: int = 0
    """Those of them that did not come to the tap behind it."""
    percentiles: Iterable[Percentile] = ()

    @property
    def name(self) -> str:
        """What the flow is called."""
        return str(next((self.variables[key] for key in VARIABLES if key in self.variables), ""))

    @property
    def share(self) -> float:
        """The share of its packets that arrived."""
        return (self.sent - self.lost) / self.sent

    @property
    def shared(self) -> dict[str, Any]:
        """The variables that all flows of its measurement share."""
        return {key: value for key, value in self.variables.items() if key not in VARIABLES}


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all values are equal, 1/n when all but one of n are zero.

    (sum x)^2 / (n sum x^2), after Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", DEC
    TR-301, 1984. Values are not negative; of nothing but zeros it is 1.
    """
    squares = sum(value * value for value in values)
    return 1.0 if squares == 0 else sum(values) ** 2 / (len(values) * squares)


def together(runs: Iterable[FlowRun]) -> Iterator[FlowsRow]:
    """The measurements of several flows among these runs.

    Those that did not end, and those of which a flow sent nothing, are left out. Where a generator
    did not send what was asked of it, a measurement says nothing of the DuT: it is not `valid`.
    """
    groups: dict[str, list[FlowRun]] = {}
    for run in runs:
        if len(run.shared) < len(run.variables):
            groups.setdefault(repr((sorted(run.shared.items()), run.repeat)), []).append(run)
    for group in groups.values():
        if len(group) > 1 and all(flow.sent for flow in group):
            yield _row(group)


def _row(flows: Sequence[FlowRun]) -> FlowsRow:
    """The flows of one measurement."""
    lossiest = min(flows, key=lambda flow: flow.share)
    known = [{one.p: one.value for one in flow.percentiles if one.supported} for flow in flows]
    p = max(set.intersection(*(set(one) for one in known)), default=None)
    latencies = [
        LatencyOfFlow(flow=flow.name, latency_ns=values[p])
        for flow, values in zip(flows, known, strict=True)
        if p is not None
    ]
    return FlowsRow(
        run=flows[0].slug,
        flows=[flow.name for flow in flows],
        valid=all(flow.valid for flow in flows),
        delivery_fairness=jain([flow.share for flow in flows]),
        lossiest=LossOfFlow(flow=lossiest.name, lost=1 - lossiest.share),
        percentile=p,
        latency_fairness=jain([one.latency_ns for one in latencies]) if latencies else None,
        slowest=max(latencies, key=lambda one: one.latency_ns, default=None),
    )


def printed(row: RunRow) -> FlowRun:
    """One of the `runs` of ``tailtap run --json``."""
    found = FlowRun(row.slug, row.repeat, row.variables, row.valid is not False)
    if row.evaluation is None:
        return found
    counts, percentiles = row.evaluation.counts, row.evaluation.latency_ns.percentiles
    return replace(
        found, sent=counts.matched + counts.lost, lost=counts.lost, percentiles=percentiles
    )


def stored(run: Run) -> FlowRun:
    """A run of an experiment."""
    found = FlowRun(run.slug, run.repeat, run.variables, run.valid is not False)
    if run.packets is None or run.lost is None or run.evaluation is None:
        return found
    percentiles = run.evaluation.listed
    return replace(found, sent=run.packets + run.lost, lost=run.lost, percentiles=percentiles)


def summarize(folder: Path, runs: list[RunFolder]) -> ExperimentRecord:
    """What ``tailtap run --json`` prints: every run with its record and its evaluation."""
    rows = [
        summarize_run(
            run, read(run.evaluation / EVALUATION, EvaluationRecord) if run.done else None
        )
        for run in runs
    ]
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
