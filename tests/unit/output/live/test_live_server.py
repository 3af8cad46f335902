"""The page and the metrics of a measurement that runs."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest
from live_numbers import numbers
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_text

from tailtap.analysis.live.histogram import BOUNDS_NS
from tailtap.analysis.live.numbers import Board
from tailtap.output.live.metrics import exposition
from tailtap.output.live.server import LOOPBACK, Address, Server
from tailtap.records.errors import InputError, MachineError
from tailtap.records.live import LiveCause, LiveIncidents
from tailtap.records.record import as_json

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


def test_a_monitoring_system_gets_metrics_and_nothing_else(board: Board) -> None:
    with Server(Address(LOOPBACK, 0), board, page=False) as server:
        board.hang(numbers())
        status, headers, content = ask(server, "/metrics", "elsewhere.example:9400")
        assert status == 200 and "text/plain" in headers["content-type"]
        assert list(older_text(content.decode()))
        assert ask(server, "/")[0] == ask(server, "/numbers.json")[0] == 404


def test_metrics_are_those_of_the_numbers() -> None:
    record = numbers(lost=3)
    record.incidents = LiveIncidents(kept=2, dropped=1, late=77)
    record.causes = [LiveCause(cause="task", detail='a "b"\\c', packets=5, delay_ns=1_500_000)]
    record.trace_lost = 4
    content, kind = exposition(record, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    found = {}
    for family in text_string_to_metric_families(content.decode()):
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "run"))
            assert sample.labels["run"] == record.run
            found[sample.name, labels] = sample.value
    [flow] = record.flows
    at = (("flow", flow.name),)
    for bound, below in zip(BOUNDS_NS, flow.below, strict=True):
        labels = (*at, ("le", str(bound / 1e9)))
        assert found["tailtap_latency_seconds_bucket", labels] == below
    assert found["tailtap_latency_seconds_bucket", (*at, ("le", "+Inf"))] == flow.matched
    assert found["tailtap_latency_seconds_sum", at] == flow.sum_ns / 1e9
    assert found["tailtap_lost_packets_total", at] == 3
    assert found["tailtap_running", ()] == 1
    assert found["tailtap_trace_lost_records_total", ()] == 4
    assert found["tailtap_incidents_kept_total", ()] == 2
    assert found["tailtap_incidents_dropped_total", ()] == 1
    delay = (("cause", "task"), ("detail", 'a "b"\\c'))
    assert found["tailtap_cause_delay_seconds_total", delay] == pytest.approx(0.0015)
    assert not [name for name, _ in found if name.startswith("tailtap_tap_lost")]


def test_before_there_are_numbers_there_are_no_metrics() -> None:
    assert exposition(None, OPENMETRICS)[0] == b"# EOF\n"


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


def test_an_address_that_is_taken_is_told(page: Server, board: Board) -> None:
    with pytest.raises(MachineError, match=f"cannot listen on {LOOPBACK}"):
        Server(page.address, board, page=True)


def test_whoever_answers_keeps_to_its_cpus(board: Board) -> None:
    settled = []

    def settle() -> None:
        settled.append(threading.current_thread().name)

    with Server(Address(LOOPBACK, 0), board, page=True, settle=settle) as server:
        ask(server, "/")
    assert settled == ["tt-serve"]


def test_numbers_are_a_record_that_can_be_read() -> None:
    content = as_json(numbers())
    assert content["schema"] == "tailtap.live/1"
    assert "tap_lost" not in content["flows"][0]
