"""The numbers as a monitoring system reads them: OpenMetrics, the older text of Prometheus, or its
protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailtap.analysis.live.counting import BOUNDS_NS
from tailtap.records.live import LiveFlow, LiveRecord
from tailtap.show.live import protobuf

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECOND_NS = 1e9
COUNTS = (
    ("ingress", "Packets before the device."),
    ("egress", "Packets behind the device."),
    ("lost", "Packets that did not come within the window."),
    ("left_out", "Packets that could not be told from others, and copies."),
    ("tap_lost", "Stamps that found no room in a tap."),
)
"""Fields of a flow that count up, and what each is."""
INCIDENTS = (
    ("kept", "Incidents that were kept."),
    ("dropped", "Incidents that were not kept, for a limit or for a full disk."),
    ("late", "Packets above the threshold of incidents."),
)


def exposition(record: LiveRecord | None, accept: str) -> tuple[bytes, str]:
    """The numbers for who accepts this (RFC 9110, 12.5.1), and the type of the content.

    Needs `tailtap[metrics]`.
    """
    if protobuf.is_wanted(accept):
        families, flows = ((), ()) if record is None else (_metrics(record), record.flows)
        return protobuf.delimited(families, flows), protobuf.CONTENT_TYPE
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import CollectorRegistry

    encode, kind = choose_encoder(accept)
    registry = CollectorRegistry()
    registry.register(_Collected(record))
    return encode(registry), kind


class _Collected:
    """A collector of one record."""

    def __init__(self, record: LiveRecord | None) -> None:
        self._record = record

    def collect(self) -> Iterator[Metric]:
        """All metrics; none before there are numbers."""
        if self._record is not None:
            yield from _metrics(self._record)


def _metrics(record: LiveRecord) -> Iterator[Metric]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    run = [record.run]
    running = GaugeMetricFamily("tailtap_running", "Whether the run goes on.", labels=["run"])
    running.add_metric(run, float(record.running))
    yield running
    latency = HistogramMetricFamily(
        "tailtap_latency_seconds", "Latency of packets.", labels=["run", "flow"]
    )
    worst = GaugeMetricFamily(
        "tailtap_latency_max_seconds", "The largest latency so far.", labels=["run", "flow"]
    )
    rate = GaugeMetricFamily(
        "tailtap_packets_per_second", "Packets before the device, of late.", labels=["run", "flow"]
    )
    for flow in record.flows:
        at = [*run, flow.name]
        latency.add_metric(at, _buckets(flow), flow.sum_ns / SECOND_NS)
        rate.add_metric(at, flow.rate)
        if flow.max_ns is not None:
            worst.add_metric(at, flow.max_ns / SECOND_NS)
    yield from (latency, worst, rate)
    for name, what in COUNTS:
        counter = CounterMetricFamily(f"tailtap_{name}_packets", what, labels=["run", "flow"])
        for flow in record.flows:
            value = getattr(flow, name)
            if value is not None:
                counter.add_metric([*run, flow.name], value)
        yield counter
    if record.trace_lost is not None:
        lost = CounterMetricFamily(
            "tailtap_trace_lost_records", "Records that found no room.", labels=["run"]
        )
        lost.add_metric(run, record.trace_lost)
        yield lost
    for name, what in INCIDENTS if record.incidents is not None else ():
        counter = CounterMetricFamily(f"tailtap_incidents_{name}", what, labels=["run"])
        counter.add_metric(run, getattr(record.incidents, name))
        yield counter
    delay = CounterMetricFamily(
        "tailtap_cause_delay_seconds",
        "What a cause added to the latency of late packets that were explained.",
        labels=["run", "cause", "detail"],
    )
    for cause in record.causes:
        delay.add_metric([*run, cause.cause, cause.detail], cause.delay_ns / SECOND_NS)
    yield delay


def _buckets(flow: LiveFlow) -> list[tuple[str, float]]:
    """The cumulative buckets of a flow, by their upper bounds in s."""
    bounds = [str(bound / SECOND_NS) for bound in BOUNDS_NS]
    below = flow.below or [0] * len(bounds)
    return [*zip(bounds, map(float, below), strict=True), ("+Inf", float(flow.matched))]
