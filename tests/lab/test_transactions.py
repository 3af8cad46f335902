"""Requests to real servers and their answers: the waits are those that tshark finds.

Behind them are servers as the DuT, with requests and answers on one link.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import asking
import pytest
from labtools import (
    PATIENCE_SECONDS,
    own_machine,
    processes,
    ran,
    record,
    statuses,
    wait_for,
    was_made,
)
from namespaces import Lab, Namespace

from tailtap.analysis.evaluation import Evaluation, Transactions, evaluate_transactions

TLS_PORTS = (asking.TLS_1_2_PORT, asking.TLS_1_3_PORT)
SLOW_NS = int(asking.SLOW_SECONDS * 1e9)
DNSMASQ = (
    "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
    "--user=root", "--pid-file=", "--bind-interfaces", "--listen-address=127.0.0.1",
    "--address=/example.com/192.0.2.1",
)  # fmt: skip
CERTIFICATE = (
    "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tt",
    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem",
)  # fmt: skip


WEB_PORT, STREAMS_PORT, REQUESTS, STREAMS = 8081, 8082, 120, 400
NGINX = f"""
daemon off; user root; pid nginx.pid; error_log stderr crit; events {{}}
http {{
  access_log off; keepalive_requests 10000;
  server {{
    listen 127.0.0.1:{WEB_PORT}; listen 127.0.0.1:{STREAMS_PORT} http2;
    return 200 "answer of some length";
  }}
}}
"""
"""A server that keeps connections; curl asks it so many times."""
CURL = ("curl", "--silent", "--output", "/dev/null")
H2LOAD = ("h2load", "-n", str(STREAMS), "-c", "4", "-m", "5")
"""A client of HTTP/2 that has five streams open on each of four connections."""


@contextmanager
def running(namespace: Namespace, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        namespace.inside(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`lo.pcapng`, all packets of a client and its servers, and what belongs to it.

    `h2.pcapng` has those of HTTP/2.
    """
    folder = tmp_path_factory.mktemp("asked")
    subprocess.run(CERTIFICATE, cwd=folder, check=True, capture_output=True)
    lab = Lab()
    namespace = lab.namespace()
    capture = folder / "lo.pcapng"
    try:
        namespace.run("ip", "link", "set", "lo", "up")
        (folder / "nginx.conf").write_text(NGINX)
        web = ("nginx", "-p", str(folder), "-c", "nginx.conf")
        with running(namespace, *DNSMASQ), running(namespace, *web):
            for port in (53, WEB_PORT, STREAMS_PORT):
                wait_for(lambda: f":{port} " in namespace.run("ss", "-lnut").stdout, str(port))  # noqa: B023
            with running(namespace, "dumpcap", "-q", "-i", "lo", "-w", str(capture)):
                wait_for(capture.exists, "dumpcap")
                time.sleep(0.5)
                namespace.run(sys.executable, asking.__file__, str(folder))
                namespace.run(*CURL, f"http://127.0.0.1:{WEB_PORT}/[1-{REQUESTS}]")
                time.sleep(0.5)
            streams = folder / "h2.pcapng"
            with running(namespace, "dumpcap", "-q", "-i", "lo", "-w", str(streams)):
                wait_for(streams.exists, "dumpcap")
                time.sleep(0.5)
                namespace.run(*H2LOAD, f"http://127.0.0.1:{STREAMS_PORT}/")
                time.sleep(0.5)
        yield folder
    finally:
        for made in lab.namespaces:
            made.remove()


@pytest.fixture(scope="module")
def found(folder: Path) -> Transactions:
    return evaluate_transactions(folder / "lo.pcapng", key="42:4:be")


AT_ONCE = ("http.desegment_body:FALSE", "http.desegment_headers:FALSE")
"""Options by which tshark looks at the first byte of a response and waits for no more."""
STREAM = ("tcp.stream", "frame.time_epoch")
Rows = list[list[str]]


def tshark(
    folder: Path,
    wanted: str,
    *fields: str,
    options: tuple[str, ...] = (),
    name: str = "lo.pcapng",
) -> Rows:
    asked = [word for field in fields for word in ("-e", field)]
    told = [word for option in options for word in ("-o", option)]
    told += ["-d", f"tcp.port=={STREAMS_PORT},http2"]
    command = ["tshark", "-n", "-r", str(folder / name), *told, "-Y", wanted, "-T", "fields"]
    done = subprocess.run([*command, *asked], check=True, capture_output=True, text=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def nanoseconds(seconds: str) -> int:
    return int(Decimal(seconds) * 10**9)


def waits(found: Transactions, kind: str) -> list[int]:
    return sorted(packet.latency for packet in found[kind].worst())


def since(folder: Path, begin: str, end: str) -> list[int]:
    """From the first packet of each stream that one filter shows to the first of another."""
    times = []
    for wanted in (begin, end):
        rows = tshark(folder, wanted, *STREAM)
        times.append({stream: nanoseconds(told) for stream, told in reversed(rows)})
    return sorted(times[1][stream] - times[0][stream] for stream in times[1])


def test_datagrams(folder: Path, found: Transactions) -> None:
    rows = tshark(folder, "dns.time && udp", "dns.time")
    by_udp = [one.latency for one in found["dns"].worst() if " by TCP " not in one.key]
    assert sorted(by_udp) == sorted(nanoseconds(row[0]) for row in rows)
    rows = tshark(folder, "icmp.resptime", "icmp.resptime")
    assert waits(found, "icmp-echo") == sorted(nanoseconds(row[0]) // 1000 for row in rows)
    assert (len(by_udp), len(rows)) == (asking.QUESTIONS, asking.PINGS)


def test_handshakes(folder: Path, found: Transactions) -> None:
    begins = "tcp.flags.syn == 1 && tcp.flags.ack =="
    assert waits(found, "tcp-handshake") == since(folder, f"{begins} 0", f"{begins} 1")
    counts = next(kind.counts for kind in found.kinds if kind.kind == "tcp-handshake")
    assert (counts.refused, counts.half_open, counts.unanswered) == (1, 0, 0)


def test_tls(folder: Path, found: Transactions) -> None:
    hello = "tls.handshake.type == 1"
    assert len(waits(found, "tls-server-hello")) == 2 * asking.CONNECTIONS
    begun = {stream: nanoseconds(told) for stream, told in tshark(folder, hello, *STREAM)}
    data = "tls.record.content_type == 23 || tls.record.opaque_type == 23"
    asked: set[str] = set()
    expected: dict[str, int] = {}
    for stream, told, port in tshark(folder, data, *STREAM, "tcp.dstport"):
        if int(port) in TLS_PORTS:
            asked.add(stream)
        elif stream in asked:
            # Of TLS 1.3, tickets look like data; the server's handshake comes before.
            expected.setdefault(stream, nanoseconds(told) - begun[stream])
    assert waits(found, "tls-first-data") == sorted(expected.values())


def test_the_end_of_the_servers_first_flight(folder: Path, found: Transactions) -> None:
    ports = f"tcp.port in {{{TLS_PORTS[0]}, {TLS_PORTS[1]}}}"
    rows = tshark(
        folder, f"{ports} && tcp.len > 0", "tcp.stream", "frame.time_epoch", "tcp.dstport"
    )
    flights = {}
    for stream in {row[0] for row in rows}:
        own = [(nanoseconds(time), int(port) < 10_000) for one, time, port in rows if one == stream]
        first = next(place for place, (_, asks) in enumerate(own) if not asks)
        over = next(place for place, (_, asks) in enumerate(own) if asks and place > first)
        flights[stream] = own[over - 1][0] - own[0][0]
    assert waits(found, "tls-flight") == sorted(flights.values())


def test_an_id_at_a_place(found: Transactions) -> None:
    ids = found["field"].worst()
    own = [packet for packet in ids if packet.key.endswith(tuple(f" id {n}" for n in range(20)))]
    mine = [packet for packet in own if f":{asking.ID_PORT} " in packet.key]
    assert len(mine) == asking.IDS
    assert mine[0].key.endswith(" id 13")
    assert mine[0].latency >= SLOW_NS > mine[1].latency


Pairs = set[tuple[int, int]]
"""Time of each request, and how long it waited."""


def paired(folder: Path, wanted: str, *options: str) -> Pairs:
    """What tshark says of answers: when they came, and how long they took."""
    rows = tshark(folder, wanted, "frame.time_epoch", wanted, options=options)
    return {(nanoseconds(end) - nanoseconds(wait), nanoseconds(wait)) for end, wait in rows}


def of_streams(folder: Path) -> Pairs:
    """What tshark pairs of HTTP/2: the first HEADERS of each stream in both directions."""
    fields = (*STREAM, "tcp.srcport", "http2.streamid", "http2.type")
    asked: dict[tuple[str, str], int] = {}
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for connection, told, port, ids, kinds in tshark(folder, "http2", *fields, name="h2.pcapng"):
        for one, kind in zip(ids.split(","), kinds.split(","), strict=True):
            key, now = (connection, one), nanoseconds(told)
            if kind == "1" and int(port) != STREAMS_PORT:
                asked.setdefault(key, now)
            elif kind == "1" and key in asked:
                found.setdefault(key, (asked[key], now - asked[key]))
    return set(found.values())


def ours(found: Transactions, kind: str) -> Pairs:
    return {(packet.ingress_ns, packet.latency) for packet in found[kind].worst()}


def test_requests_on_connections_are_those_of_tshark(folder: Path, found: Transactions) -> None:
    truth = paired(folder, "http.time", *AT_ONCE)
    assert len(truth) >= REQUESTS and ours(found, "http") == truth
    assert ours(found, "dns") == paired(folder, "dns.time")
    hellos = since(folder, "tls.handshake.type == 1", "tls.handshake.type == 2")
    assert waits(found, "tls-server-hello") == hellos
    streams = of_streams(folder)
    assert len(streams) == STREAMS
    assert ours(evaluate_transactions(folder / "h2.pcapng"), "http") == streams


EXAMPLES = Path(__file__).parents[2] / "examples"
BY_HAND = f"{sys.executable} {Path(__file__).parents[1] / 'support/dns_by_hand.py'}"
SERVER = """\
name: by-hand
dut:
  forwarder: {{server: {{command: "{command}", listens: "udp:53", ready: {ready}}}}}
  cpus: [1]
traffic:
  generator: external
  external: {{command: "{client}"}}
  duration: 1 s
evaluation: {{match: transactions}}
"""


def made(folder: Path, text: str, *, status: str = "done") -> tuple[Path, str]:
    """The first run of an experiment that leaves nothing behind, and what was printed."""
    with own_machine() as machine:
        found = ran(folder, text, machine=machine)
        assert machine.cleaned() == []
    assert status != "done" or was_made(found.done), found.done.stderr
    assert statuses(found.out)[0] == status, found.done.stderr
    return found.runs[0], found.done.stderr


def by_hand(command: str, client: str, ready: str = "20 s") -> str:
    return SERVER.format(command=command, client=client, ready=ready)


def example(name: str, change: str = "") -> str:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    text = text.replace("$PWD/examples/", f"{EXAMPLES}/").replace("duration: 3 s", "duration: 1 s")
    return text + change


def test_each_query_to_a_dns_server_is_timed(tmp_path: Path) -> None:
    run, _ = made(tmp_path, example("dns-server"))
    found, evaluation = record(run), Evaluation.load(run / "evaluation")
    assert (evaluation.counts.matched, evaluation.counts.lost) == (5000, 0)
    assert evaluation.counts.ingress == evaluation.counts.egress == 5000
    assert {name: tap["file"] for name, tap in found["taps"].items()} == {
        "ingress": "ingress.pcap",
        "egress": "egress.pcap",
    }
    # The probe's packets are not in them, and nothing but queries and answers passes the link.
    assert {tap["seen"] for tap in found["taps"].values()} == {5000}
    assert {tap["late"] for tap in found["taps"].values()} == {0}
    assert found["forwarder"]["version"].startswith("Dnsmasq")
    assert found["forwarder"]["exit_status"] == 0
    assert found["flows"][0]["path"][0] == found["flows"][0]["path"][-1] == "gen:tt-gen"
    assert (
        processes(f"tt-{run.parent.parent}") == processes("--address=/example.org/192.0.2.7") == []
    )


@pytest.mark.parametrize(
    ("command", "ready", "said"),
    [
        (
            "sh -c 'echo cannot open its zone >&2; exit 3'",
            "20 s",
            "the server sh ended with status 3: cannot open its zone",
        ),
        (f"{BY_HAND} server 54 0 0", "500 ms", "nothing listens at udp:53 after 0.5 s"),
        ("tt-no-such-server", "20 s", "the program tt-no-such-server is missing"),
    ],
)
def test_a_server_that_does_not_start_fails_the_run(
    tmp_path: Path, command: str, ready: str, said: str
) -> None:
    run, printed = made(tmp_path, by_hand(command, "true {server}", ready), status="failed")
    assert said in record(run)["error"]
    assert said in " ".join(printed.split())
    assert processes("dns_by_hand.py server 54") == []


def test_a_server_that_ends_fails_the_run_at_once(tmp_path: Path) -> None:
    command = f"sh -c '(sleep 4; echo no memory >&2; kill $$) & exec {BY_HAND} server 53 0 0'"
    client = f"{BY_HAND} client {{server}} 53 100000 1 0.01"
    run, _ = made(tmp_path, by_hand(command, client), status="failed")
    assert record(run)["error"].startswith("the server sh ended with status 143: ")
    assert "no memory" in record(run)["error"]
    assert processes("dns_by_hand.py") == []


def test_packets_are_followed_through_address_translation(tmp_path: Path) -> None:
    run, _ = made(tmp_path, example("nat-router").replace("[kernel-route, nat]", "[nat]"))
    found: dict[str, Any] = json.loads((run / "evaluation/evaluation.json").read_text())
    assert found["key"] == "packet-nat"
    counts = found["counts"]
    assert counts["matched"] + counts["trimmed_ingress"] == 10_000
    assert counts["matched"] > 4_000
    changed = {row["what"]: row for row in found["device"]["changes"]}
    assert changed["source address"]["before"] == "10.0.0.1"
    assert changed["source address"]["after"] == record(run)["forwarder"]["source"] == "192.0.2.1"
    # 16 flows have one port, and one address behind the router.
    assert changed["source port"]["ways"] == 15
