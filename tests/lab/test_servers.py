"""A server as the DuT: requests and answers on one link, and how long requests wait."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from labtools import own_machine, processes, record, statuses, was_made, write_experiment

from tailtap.analysis.evaluation import Evaluation

EXAMPLES = Path(__file__).parents[2] / "examples"
BY_HAND = f"{sys.executable} {Path(__file__).parents[1] / 'support/dns_by_hand.py'}"
MILLISECOND_NS = 1_000_000
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
    path, out = write_experiment(folder, text), folder / "out"
    with own_machine() as machine:
        done = machine.tailtap("run", str(path), "--out", str(out))
        assert machine.namespaces() == []
        assert machine.tailtap("clean", "--json").returncode == 0
    assert status != "done" or was_made(done), done.stderr
    assert statuses(out)[0] == status, done.stderr
    return next((out / "runs").iterdir()), done.stderr


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


@pytest.mark.slow
def test_each_request_to_a_web_server_is_timed(tmp_path: Path) -> None:
    run, _ = made(tmp_path, example("http-server"))
    found, evaluation = record(run), Evaluation.load(run / "evaluation")
    assert evaluation.counts.matched > 100
    # What wrk still waits for at its end.
    assert evaluation.counts.lost <= 8
    assert found["parameters"]["traffic"]["rate"] is None
    if "bpf_cast_to_kern_ctx" in Path("/proc/kallsyms").read_text(encoding="ascii"):
        assert found["taps"]["egress"]["late"] == 0
    assert found["forwarder"]["cpu_ns"]["system"] > 0  # that of the worker as well
    assert processes("nginx: ") == []


@pytest.mark.alone
@pytest.mark.timed
def test_what_a_server_takes_for_an_answer_is_found(tmp_path: Path) -> None:
    run, _ = made(
        tmp_path,
        by_hand(f"{BY_HAND} server 53 10 0.02", f"{BY_HAND} client {{server}} 53 500 1 0.001"),
    )
    evaluation = Evaluation.load(run / "evaluation")
    assert evaluation.counts.matched == 500
    latency, packets = evaluation.distribution
    late = packets[latency >= 20 * MILLISECOND_NS].sum()
    assert 50 <= late <= 55
    assert evaluation.percentile(0.5).value < 5 * MILLISECOND_NS


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_what_delays_answers_in_the_servers_namespace_is_found(tmp_path: Path) -> None:
    """A token bucket (tc-tbf(8)) of 120 B lets one answer of 76 B pass, the next 11 ms later."""
    slow = "tc qdisc add dev {interface} root tbf rate 24kbit burst 120 limit 10000"
    run, _ = made(
        tmp_path,
        by_hand(
            f"sh -c '{slow} && exec {BY_HAND} server 53 0 0'",
            f"{BY_HAND} client {{server}} 53 100 2 0.05",
        ),
    )
    evaluation = Evaluation.load(run / "evaluation")
    assert evaluation.counts.matched == 100
    latency, packets = evaluation.distribution
    assert 50 <= packets[latency >= 8 * MILLISECOND_NS].sum() <= 55
    assert packets[latency < 5 * MILLISECOND_NS].sum() >= 45


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
