"""Flows that were measured at the same time: the worst of them, and how fairly they were served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtap.records.evaluation import Percentile
from tailtap.records.experiment import FlowsRow, LatencyOfFlow, LossOfFlow, RunRow

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


@dataclass(frozen=True)
class Together:
    """The flows of one measurement."""

    first: FlowRun
    """The run of the first one."""
    flows: tuple[FlowResult, ...]
    valid: bool = True
    """False when a generator did not send what was asked of it: then it says nothing of the DuT."""

    @property
    def percentile(self) -> float | None:
        """The highest percentile that all of them support."""
        common = set.intersection(*(set(flow.percentiles) for flow in self.flows))
        return max(common, default=None)

    @property
    def slowest(self) -> FlowResult | None:
        """The flow with the highest latency there."""
        p = self.percentile
        return None if p is None else max(self.flows, key=lambda flow: flow.percentiles[p])

    @property
    def lossiest(self) -> FlowResult:
        """The flow that lost the largest share of its packets."""
        return min(self.flows, key=lambda flow: flow.share)

    @property
    def delivery_fairness(self) -> float:
        """Jain's index of the shares of packets that arrived."""
        return jain([flow.share for flow in self.flows])

    @property
    def latency_fairness(self) -> float | None:
        """Jain's index of the latencies at `percentile`."""
        p = self.percentile
        return None if p is None else jain([flow.percentiles[p] for flow in self.flows])

    def record(self) -> FlowsRow:
        """The row of ``tailtap run --json``."""
        slowest, p = self.slowest, self.percentile
        return FlowsRow(
            run=self.first.slug,
            flows=[flow.name for flow in self.flows],
            valid=self.valid,
            delivery_fairness=self.delivery_fairness,
            lossiest=LossOfFlow(flow=self.lossiest.name, lost=1 - self.lossiest.share),
            percentile=p,
            latency_fairness=self.latency_fairness,
            slowest=None
            if slowest is None or p is None
            else LatencyOfFlow(flow=slowest.name, latency_ns=slowest.percentiles[p]),
        )


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all values are equal, 1/n when all but one of n are zero.

    (sum x)^2 / (n sum x^2), after Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", DEC
    TR-301, 1984. Values are not negative; of nothing but zeros it is 1.
    """
    squares = sum(value * value for value in values)
    return 1.0 if squares == 0 else sum(values) ** 2 / (len(values) * squares)


def together(runs: Iterable[FlowRun]) -> Iterator[Together]:
    """The measurements of several flows among these runs.

    Those that did not end, and those of which a flow sent nothing, are left out.
    """
    groups: dict[str, list[FlowRun]] = {}
    for run in runs:
        if len(run.shared) < len(run.variables):
            groups.setdefault(repr((sorted(run.shared.items()), run.repeat)), []).append(run)
    for group in groups.values():
        found = [run.result for run in group if run.result is not None]
        if len(group) == len(found) > 1 and all(flow.sent for flow in found):
            yield Together(group[0], tuple(found), all(run.valid for run in group))


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
    if evaluation is not None and {"lost", "matched"} <= set(evaluation.counts):
        counts = evaluation.counts
        result = _result(run.variables, counts["matched"], counts["lost"], evaluation.percentiles)
    return FlowRun(run.slug, run.repeat, run.variables, result, run.valid is not False)


def _result(
    variables: Mapping[str, Any], arrived: int, lost: int, percentiles: Iterable[Percentile]
) -> FlowResult:
    name = next((variables[key] for key in VARIABLES if key in variables), "")
    supported = {one.p: one.value for one in percentiles if one.supported}
    return FlowResult(str(name), arrived + lost, arrived, supported)
