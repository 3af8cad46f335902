"""The page and the metrics of a measurement that runs."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import threading
from collections.abc import Iterator
from functools import partial
from math import isinf
from pathlib import Path

import pytest
from google.protobuf.proto import parse_length_prefixed
from live_numbers import numbers
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_text

from tailtap.analysis.live.counting import BOUNDS_NS
from tailtap.analysis.live.numbers import Board
from tailtap.base.errors import InputError, MachineError
from tailtap.records.live import LiveCause, LiveIncidents, LiveRecord
from tailtap.show.live.metrics import CONTENT_TYPE, TYPES, exposition, messages
from tailtap.show.live.server import LOOPBACK, MOST_CONNECTIONS, Address, Server

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def ask(server: Server, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, server.address.port, timeout=10)
    headers = {} if host is None else {"Host": host}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def page(board: Board) -> Iterator[Server]:
    with Server(Address(LOOPBACK, 0), board, page=True) as server:
        yield server


def test_a_browser_gets_the_page_and_the_latest_numbers(page: Server, board: Board) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "javascript"), ("/page.css", "text/css")):
        status, headers, content = ask(page, path)
        assert status == 200 and kind in headers["content-type"] and content
        assert "default-src 'none'" in headers["content-security-policy"]
    assert ask(page, "/numbers.json")[0] == 204
    for lost in (1, 2):
        board.hang(numbers(lost=lost))
        status, _, content = ask(page, "/numbers.json?x")
        assert status == 200
        assert json.loads(content)["flows"][0]["lost"] == lost
    assert ask(page, "/metrics")[0] == ask(page, "/../server.py")[0] == 404


def test_a_page_is_for_browsers_of_this_machine(page: Server, board: Board) -> None:
    board.hang(numbers())
    port = page.address.port
    for host in (f"localhost:{port}", f"{LOOPBACK}:{port}"):
        assert ask(page, "/numbers.json", host)[0] == 200
    for host in (f"evil.example:{port}", "evil.example", ""):
        assert ask(page, "/numbers.json", host)[0] == 403


def test_half_requests_take_no_more_than_a_few_connections(
    page: Server, board: Board, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of very many the oldest go, so that others are answered, and nobody hears of it."""
    board.hang(numbers())
    before = len(list(Path("/proc/self/fd").iterdir()))
    place = (LOOPBACK, page.address.port)
    with contextlib.ExitStack() as stack:
        for number in range(4 * MOST_CONNECTIONS):
            one = stack.enter_context(socket.create_connection(place))
            one.sendall(b"GET /numbers.json HTTP/1.1\r\nHost: localhost\r\nX: ")
            if not number % MOST_CONNECTIONS:
                assert ask(page, "/numbers.json")[0] == 200
        theirs = len(list(Path("/proc/self/fd").iterdir())) - before - 4 * MOST_CONNECTIONS
        assert theirs <= MOST_CONNECTIONS + 2
        assert ask(page, "/numbers.json")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_monitoring_system_gets_metrics_and_nothing_else(board: Board) -> None:
    with Server(Address(LOOPBACK, 0), board, page=False) as server:
        board.hang(numbers())
        status, headers, content = ask(server, "/metrics", "elsewhere.example:9400")
        assert status == 200 and "text/plain" in headers["content-type"]
        assert list(older_text(content.decode()))
        assert ask(server, "/")[0] == ask(server, "/numbers.json")[0] == 404


def samples(record: LiveRecord) -> dict[tuple[object, ...], float]:
    """What the text says, by names and labels."""
    content, kind = exposition(record, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }


def test_metrics_are_those_of_the_numbers() -> None:
    record = numbers(lost=3)
    record.incidents = LiveIncidents(kept=2, dropped=1, late=77)
    record.causes = [LiveCause(cause="task", detail='a "b"\\c', packets=5, delay_ns=1_500_000)]
    record.trace_lost = 4
    found = samples(record)

    def value(name: str, **labels: str) -> float:
        return found[name, *sorted({"run": record.run, **labels}.items())]

    [flow] = record.flows
    bucket = partial(value, "tailtap_latency_seconds_bucket", flow=flow.name)
    for bound, below in zip(BOUNDS_NS, flow.below, strict=True):
        assert bucket(le=str(bound / 1e9)) == below
    assert bucket(le="+Inf") == flow.matched
    assert value("tailtap_latency_seconds_sum", flow=flow.name) == flow.sum_ns / 1e9
    assert value("tailtap_lost_packets_total", flow=flow.name) == 3
    assert value("tailtap_running") == 1
    assert value("tailtap_trace_lost_records_total") == 4
    assert value("tailtap_incidents_kept_total") == 2
    assert value("tailtap_incidents_dropped_total") == 1
    delay = value("tailtap_cause_delay_seconds_total", cause="task", detail='a "b"\\c')
    assert delay == pytest.approx(0.0015)
    assert not [name for name, *_ in found if str(name).startswith("tailtap_tap_lost")]


PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"
)
"""What Prometheus asks for that knows native histograms."""


def test_protobuf_says_what_text_says_and_has_native_histograms() -> None:
    record = numbers(lost=3, flows=("forward", "back"))
    text = samples(record)
    content, kind = exposition(record, PROTOBUF)
    assert kind == CONTENT_TYPE
    stream, histograms = io.BytesIO(content), []
    while family := parse_length_prefixed(messages()["MetricFamily"], stream):
        for metric in family.metric:
            labels = sorted((label.name, label.value) for label in metric.label)
            if family.type == TYPES["histogram"]:
                one = metric.histogram
                histograms.append(one)
                for bucket in one.bucket:
                    bound = "+Inf" if isinf(bucket.upper_bound) else str(bucket.upper_bound)
                    at = (f"{family.name}_bucket", *sorted([*labels, ("le", bound)]))
                    assert text.pop(at) == bucket.cumulative_count
                assert text.pop((f"{family.name}_sum", *labels)) == one.sample_sum
                assert text.pop((f"{family.name}_count", *labels)) == one.sample_count
            else:
                value = (metric.counter if family.type == TYPES["counter"] else metric.gauge).value
                assert text.pop((family.name, *labels)) == value
    assert not text
    for flow, one in zip(record.flows, histograms, strict=True):
        index, count, found = 0, 0, []
        deltas = iter(one.positive_delta)
        for span in one.positive_span:
            index += span.offset
            for _ in range(span.length):
                count += next(deltas)
                found.append((index, count))
                index += 1
        assert found == [(bucket.index, bucket.count) for bucket in flow.exponential]
        assert one.zero_count + sum(count for _, count in found) == one.sample_count


@pytest.mark.parametrize("accept", ["", OPENMETRICS, f"{OPENMETRICS},{PROTOBUF}", "*/*"])
def test_text_is_for_whoever_wants_it(accept: str) -> None:
    assert exposition(numbers(), accept)[0].startswith(b"# HELP")


def test_before_there_are_numbers_there_are_no_metrics() -> None:
    assert exposition(None, OPENMETRICS)[0] == b"# EOF\n"
    assert exposition(None, PROTOBUF) == (b"", CONTENT_TYPE)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9400", "127.0.0.1", 9400), (":0", "", 0), ("[::1]:80", "::1", 80)],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == (host, port)


@pytest.mark.parametrize("text", ["9400", "host:", "host:x", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no address"):
        Address.parse(text)


def test_an_address_that_is_taken_is_named_and_its_server_keeps_to_its_cpus(board: Board) -> None:
    settled = []

    def settle() -> None:
        settled.append(threading.current_thread().name)

    with Server(Address(LOOPBACK, 0), board, page=True, settle=settle) as server:
        ask(server, "/")
        with pytest.raises(MachineError, match=f"cannot listen on {LOOPBACK}"):
            Server(server.address, board, page=True)
    assert settled == ["tt-serve"]
