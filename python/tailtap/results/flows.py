"""Flows that were measured at the same time: the worst of them, and how fairly they were served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

VARIABLES = ("flow", "direction")
"""The variables by which runs of one measurement differ."""


@dataclass(frozen=True)
class FlowResult:
    """What came of one flow."""

    name: str
    sent: int
    """Packets that came to the tap before the DuT."""
    arrived: int
    """Those of them that came to the tap behind it."""
    percentiles: Mapping[float, int]
    """Latencies in ns, of the percentiles that have enough packets above them."""

    @property
    def share(self) -> float:
        """The share of its packets that arrived."""
        return self.arrived / self.sent


@dataclass(frozen=True)
class Together:
    """The flows of one measurement."""

    run: str
    """The name of the first one's run."""
    flows: tuple[FlowResult, ...]

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

    def as_json(self) -> dict[str, Any]:
        """The row of ``tailtap run --json``."""
        slowest, p = self.slowest, self.percentile
        return {
            "run": self.run,
            "flows": [flow.name for flow in self.flows],
            "delivery_fairness": self.delivery_fairness,
            "lossiest": {"flow": self.lossiest.name, "lost": 1 - self.lossiest.share},
            "percentile": p,
            "latency_fairness": self.latency_fairness,
            "slowest": None if slowest is None or p is None
            else {"flow": slowest.name, "latency_ns": slowest.percentiles[p]},
        }  # fmt: skip


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 when all values are equal, 1/n when all but one of n are zero.

    (sum x)^2 / (n sum x^2), after Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", DEC
    TR-301, 1984. Values are not negative; of nothing but zeros it is 1.
    """
    squares = sum(value * value for value in values)
    return 1.0 if squares == 0 else sum(values) ** 2 / (len(values) * squares)


def together(rows: Iterable[Mapping[str, Any]]) -> Iterator[Together]:
    """The measurements of several flows among the `runs` of ``tailtap run --json``.

    Those that did not end, and those of which a flow sent nothing, are left out.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        others = {key: value for key, value in row["variables"].items() if key not in VARIABLES}
        if len(others) < len(row["variables"]):
            groups.setdefault(repr((sorted(others.items()), row["repeat"])), []).append(row)
    for group in groups.values():
        found = [_result(row) for row in group if row["evaluation"] is not None]
        if len(group) == len(found) > 1 and all(flow.sent for flow in found):
            yield Together(group[0]["slug"], tuple(found))


def _result(row: Mapping[str, Any]) -> FlowResult:
    name = next(row["variables"][key] for key in VARIABLES if key in row["variables"])
    counts, latency = row["evaluation"]["counts"], row["evaluation"]["latency_ns"]
    supported = (one for one in latency["percentiles"] if one["supported"])
    return FlowResult(
        str(name),
        counts["ingress"],
        counts["matched"],
        {one["p"]: one["value"] for one in supported},
    )
