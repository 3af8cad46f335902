"""What an evaluation says of flows, and of what lost packets have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.values import (
    HEAVY_LOSS,
    KEPT_LOSSES,
    RawPair,
    latency_record,
    pair,
    percentiles_of,
    view,
)
from tailtap.base.units import format_count
from tailtap.records.evaluation import FlowRecord, LossPattern
from tailtap.records.record import Notice

PERCENTILES = (0.5, 0.99)
"""Those of each flow."""
SHOWN = 20
"""So many flows are in tables; the JSON has all."""
OTHERS = "other flows"
Row = tuple[str, int, int, RawPair]
"""Name, packets and lost packets of a flow, and its latencies as a distribution."""
Arrivals = tuple[Sequence[Row], Row, Mapping[int, int], int, RawPair]
"""The parameters of `with_arrivals` in their order."""


def with_arrivals(
    evaluation: Evaluation,
    flows: Sequence[Row],
    others: Row,
    lengths: Mapping[int, int],
    width_ns: int,
    blocks: RawPair,
    *,
    by_flow: bool,
) -> Evaluation:
    """The evaluation with what all packets before the device say of the lost ones, and of flows."""
    patterns = None
    kept = len(evaluation.columns("losses")[-1])
    # Where flows were asked for, all packets were read, and not all of so many losses are at hand.
    if kept and not (by_flow and kept == KEPT_LOSSES):
        from tailtap.analysis.evaluation.loss_patterns import Arrivals, loss_patterns

        packets = {name: count for name, count, *_ in flows}
        arrivals = Arrivals(packets, lengths, width_ns, pair(blocks))
        patterns = loss_patterns(evaluation.lost_packets, arrivals, evaluation.exceedances)
    if not by_flow:
        return replace(evaluation, loss_patterns=patterns)
    rows = [_flow(row, evaluation.within_ns) for row in flows]
    rows.sort(key=lambda row: (-row.lost, -row.packets))
    if others[1]:
        rows.append(_flow((OTHERS, *others[1:]), evaluation.within_ns))
    return replace(evaluation, loss_patterns=patterns, flows=rows)


def _flow(row: Row, within_ns: int) -> FlowRecord:
    flow, packets, lost, distribution = row
    values, counts = map(view, distribution)
    matched = sum(counts)
    latency = None
    if matched:
        mean = sum(value * count for value, count in zip(values, counts, strict=True)) / matched
        percentiles = percentiles_of(distribution, PERCENTILES, within_ns)
        latency = latency_record(values[0], mean, values[-1], percentiles, within_ns)
    return FlowRecord(flow=flow, packets=packets, matched=matched, lost=lost, latency_ns=latency)


CODES = frozenset(("heavy-loss", "overload"))
"""Of the warnings about it: any, and that which comes with load."""


def heavy_loss(
    lost: int,
    offered: int,
    patterns: Sequence[LossPattern] | None,
    *,
    generated: bool,
    has_dut: bool = True,
    dropped: int = 0,
) -> Notice | None:
    """The warning about `lost` of `offered` packets; None for no more than `HEAVY_LOSS`.

    `patterns` are what the lost packets have in common, None where nobody looked. Where the traffic
    was `generated` for the measurement, a lower rate may be advised. The kernel `dropped` so many
    packets in full queues.
    """
    if lost <= HEAVY_LOSS * offered:
        return None
    kinds = {one.kind for one in patterns or ()}
    text = f"more than {100 * HEAVY_LOSS:g} % of the packets were lost, with unknown latency"
    if not has_dut:
        text = f"{text}; there is no device: links or taps lost them"
    if patterns is not None:
        told = [one.text for one in patterns] or ["the lost packets have nothing in common"]
        text = f"{text}: {'; '.join(told)}"
    if dropped:
        text += f"; the kernel dropped {format_count(dropped, 'packet')} in full queues"
    if generated and "load" in kinds:
        text += "; lower traffic.rate, or let `tailtap search` find the highest rate without loss"
    elif generated and not kinds & {"flow", "length", "period"}:
        text += "; a lower traffic.rate, or `tailtap search`, shows whether the rate is the cause"
    return Notice("overload" if "load" in kinds else "heavy-loss", text)
