"""The tail of all runs of an experiment at a glance, and flows that were measured together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.analysis.runs.folder import RunFolder
from tailtap.records.evaluation import EvaluationRecord, Percentile
from tailtap.records.experiment import ExperimentRecord, FlowsRow, LatencyOfFlow, LossOfFlow, RunRow
from tailtap.records.record import read

if TYPE_CHECKING:
    from tailtap.analysis.runs.run import Run


VARIABLES = ("flow", "direction")
"""The variables by which runs of one measurement differ."""


@dataclass(frozen=True)
class FlowResult:
    """What came of one flow."""

    name: str
    sent: int
    """Packets that came to the tap before the DuT, without those that the evaluation trimmed."""
    arrived: int
    """Those of them that came to the tap behind it."""
    percentiles: Mapping[float, int]
    """Latencies in ns, of the percentiles that have enough packets above them."""

    @property
    def share(self) -> float:
        """The share of its packets that arrived."""
        return self.arrived / self.sent


@dataclass(frozen=True)
class FlowRun:
    """A run, which may be that of a flow."""

    slug: str
    repeat: int
    variables: Mapping[str, Any]
    result: FlowResult | None
    """None when it did not end."""
    valid: bool = True
    """False when a generator did not send what was asked of it."""

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
        found = [run.result for run in group if run.result is not None]
        if len(group) == len(found) > 1 and all(flow.sent for flow in found):
            yield _row(group[0].slug, found, valid=all(run.valid for run in group))


def _row(first: str, flows: Sequence[FlowResult], *, valid: bool) -> FlowsRow:
    """The flows of one measurement; `first` is the run of the first one."""
    lossiest = min(flows, key=lambda flow: flow.share)
    p = max(set.intersection(*(set(flow.percentiles) for flow in flows)), default=None)
    latencies = (
        []
        if p is None
        else [LatencyOfFlow(flow=flow.name, latency_ns=flow.percentiles[p]) for flow in flows]
    )
    return FlowsRow(
        run=first,
        flows=[flow.name for flow in flows],
        valid=valid,
        delivery_fairness=jain([flow.share for flow in flows]),
        lossiest=LossOfFlow(flow=lossiest.name, lost=1 - lossiest.share),
        percentile=p,
        latency_fairness=jain([one.latency_ns for one in latencies]) if latencies else None,
        slowest=max(latencies, key=lambda one: one.latency_ns, default=None),
    )


def printed(row: RunRow) -> FlowRun:
    """One of the `runs` of ``tailtap run --json``."""
    result, evaluation = None, row.evaluation
    if evaluation is not None:
        counts, percentiles = evaluation.counts, evaluation.latency_ns.percentiles
        result = _result(row.variables, counts.matched, counts.lost, percentiles)
    return FlowRun(row.slug, row.repeat, row.variables, result, row.valid is not False)


def stored(run: Run) -> FlowRun:
    """A run of an experiment."""
    result, evaluation = None, run.evaluation
    if evaluation is not None and {"lost", "matched"} <= set(evaluation.counted):
        counts = evaluation.counted
        result = _result(run.variables, counts["matched"], counts["lost"], evaluation.listed)
    return FlowRun(run.slug, run.repeat, run.variables, result, run.valid is not False)


def _result(
    variables: Mapping[str, Any], arrived: int, lost: int, percentiles: Iterable[Percentile]
) -> FlowResult:
    name = next((variables[key] for key in VARIABLES if key in variables), "")
    supported = {one.p: one.value for one in percentiles if one.supported}
    return FlowResult(str(name), arrived + lost, arrived, supported)


def summarize(folder: Path, runs: list[RunFolder]) -> ExperimentRecord:
    """What ``tailtap run --json`` prints: every run with its record and its evaluation."""
    rows = []
    for run in runs:
        file = run.evaluation / "evaluation.json"
        rows.append(summarize_run(run, read(file, EvaluationRecord) if run.done else None))
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
