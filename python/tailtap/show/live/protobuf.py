"""The numbers in Prometheus' protobuf, which alone has native histograms.

The messages are those of `metrics.proto` of the Prometheus client model (io.prometheus.client),
as far as they are used here. A content is messages of families, each behind its length as a varint.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tailtap.analysis.live.counting import SCHEMA
from tailtap.records.live import LiveBucket, LiveFlow

if TYPE_CHECKING:
    from prometheus_client.core import Metric

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
