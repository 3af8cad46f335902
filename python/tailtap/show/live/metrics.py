"""The numbers as a monitoring system reads them: OpenMetrics, older text of Prometheus, or"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tailtap.analysis.live.counting import BOUNDS_NS, SCHEMA
from tailtap.records.live import LiveBucket, LiveFlow, LiveRecord

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
    if is_wanted(accept):
        families, flows = ((), ()) if record is None else (_metrics(record), record.flows)
        return delimited(families, flows), CONTENT_TYPE
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


PACKAGE = "io.prometheus.client"
MEDIA_TYPE = "application/vnd.google.protobuf"
CONTENT_TYPE = f"{MEDIA_TYPE}; proto={PACKAGE}.MetricFamily; encoding=delimited"
TYPES = {"counter": 0, "gauge": 1, "histogram": 4}
ZERO_THRESHOLD = 2.0**-128
"""Values up to this are in the bucket of zeros; no time that is not 0 is that short."""
MANY = "*"
MESSAGES: Mapping[str, Sequence[tuple[int, str, str]]] = {
    "LabelPair": ((1, "name", "string"), (2, "value", "string")),
    "Gauge": ((1, "value", "double"),),
    "Counter": ((1, "value", "double"),),
    "Bucket": ((1, "cumulative_count", "uint64"), (2, "upper_bound", "double")),
    "BucketSpan": ((1, "offset", "sint32"), (2, "length", "uint32")),
    "Histogram": (
        (1, "sample_count", "uint64"), (2, "sample_sum", "double"), (3, "bucket", "Bucket*"),
        (5, "schema", "sint32"), (6, "zero_threshold", "double"), (7, "zero_count", "uint64"),
        (12, "positive_span", "BucketSpan*"), (13, "positive_delta", "sint64*"),
    ),
    "Metric": (
        (1, "label", "LabelPair*"), (2, "gauge", "Gauge"), (3, "counter", "Counter"),
        (7, "histogram", "Histogram"),
    ),
    "MetricFamily": (
        (1, "name", "string"), (2, "help", "string"), (3, "type", "int32"),
        (4, "metric", "Metric*"),
    ),
}  # fmt: skip
"""Number, name and type of each field, of which there may be many. On the wire an enumeration, as
`type` is one, and an int32 are the same."""


def is_wanted(accept: str) -> bool:
    """Whether who accepts this names protobuf before all that else could be given."""
    first = accept.split(",", 1)[0].replace(" ", "")
    kind, *parameters = first.split(";")
    return kind == MEDIA_TYPE and f"proto={PACKAGE}.MetricFamily" in parameters


def delimited(families: Iterable[Metric], flows: Sequence[LiveFlow]) -> bytes:
    """The families, and of their histograms also the native form, by the label `flow`."""
    from google.protobuf.proto import serialize_length_prefixed

    by_name = {flow.name: flow for flow in flows}
    content = io.BytesIO()
    for family in families:
        if family.samples:
            serialize_length_prefixed(_message(family, by_name), content)
    return content.getvalue()


class Spans(NamedTuple):
    """Buckets as Prometheus has them."""

    spans: list[tuple[int, int]]
    """How many buckets are empty before so many in a row that are not; of the first the index."""
    deltas: list[int]
    """The first count, then by how much each one is larger than the one before it."""


def spans_of(buckets: Sequence[LiveBucket]) -> Spans:
    """Buckets in the order of their indices."""
    spans: list[tuple[int, int]] = []
    deltas: list[int] = []
    following = last = 0
    for bucket in buckets:
        if spans and bucket.index == following:
            spans[-1] = (spans[-1][0], spans[-1][1] + 1)
        else:
            spans.append((bucket.index - following, 1))
        deltas.append(bucket.count - last)
        following, last = bucket.index + 1, bucket.count
    return Spans(spans, deltas)


def _message(family: Metric, flows: Mapping[str, LiveFlow]) -> Any:
    """The message of a family. A histogram's samples are several for each of its metrics."""
    classes = messages()
    found = classes["MetricFamily"](help=family.documentation, type=TYPES[family.type])
    found.name = family.name if family.type == "histogram" else family.samples[0].name
    metrics: dict[tuple[tuple[str, str], ...], Any] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        metric = metrics.get(labels)
        if metric is None:
            metric = metrics[labels] = found.metric.add()
            for name, value in labels:
                metric.label.add(name=name, value=value)
            if family.type == "histogram":
                _make_native(metric.histogram, flows[dict(labels)["flow"]])
        if family.type != "histogram":
            getattr(metric, family.type).value = sample.value
        elif "le" in sample.labels:
            metric.histogram.bucket.add(
                cumulative_count=int(sample.value), upper_bound=float(sample.labels["le"])
            )
        elif sample.name.endswith("_sum"):
            metric.histogram.sample_sum = sample.value
    return found


def _make_native(histogram: Any, flow: LiveFlow) -> None:
    """What a histogram has beside its classic buckets."""
    spans, deltas = spans_of(flow.exponential)
    histogram.sample_count = flow.matched
    histogram.schema, histogram.zero_threshold = SCHEMA, ZERO_THRESHOLD
    histogram.zero_count = flow.matched - sum(bucket.count for bucket in flow.exponential)
    for offset, length in spans:
        histogram.positive_span.add(offset=offset, length=length)
    histogram.positive_delta.extend(deltas)


@cache
def messages() -> Mapping[str, Any]:
    """The classes of the messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=PACKAGE)
    of = descriptor_pb2.FieldDescriptorProto
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for number, name, kind in fields:
            label = of.LABEL_REPEATED if kind.endswith(MANY) else of.LABEL_OPTIONAL
            field = described.field.add(number=number, name=name, label=label)
            if kind.rstrip(MANY) in MESSAGES:
                field.type, field.type_name = (
                    of.TYPE_MESSAGE,
                    f".{PACKAGE}.{kind.rstrip(MANY)}",
                )
            else:
                field.type = of.Type.Value(f"TYPE_{kind.rstrip(MANY).upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in MESSAGES
    }
