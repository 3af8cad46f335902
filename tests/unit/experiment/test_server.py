"""An experiment whose DuT answers: what it must say, and what does not go with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.base.errors import InputError
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment

SERVER = "{server: {command: dnsmasq, listens: 'udp:53'}}"
TRAFFIC = "{generator: external, external: {command: 'dnsperf -s {server}'}}"
MATCH = "{match: transactions}"


def written(
    dut: str = f"forwarder: {SERVER}",
    traffic: str = TRAFFIC,
    evaluation: str = MATCH,
    more: str = "",
) -> str:
    return (
        f"name: a\ndut: {{{dut}, cpus: [1]}}\ntraffic: {traffic}\nevaluation: {evaluation}\n{more}"
    )


def experiment(folder: Path, text: str) -> Experiment:
    path = folder / "a.yaml"
    path.write_text(text)
    [(_, found)] = read_experiment(path).combinations
    return found


def test_packets_are_kept(tmp_path: Path) -> None:
    found = experiment(tmp_path, written())
    assert found.answers
    assert found.snap == 512
    assert found.graph().flow("forward").answered
    parameters = found.parameters()
    assert parameters["tap"]["format"] == "pcap"
    assert parameters["traffic"]["rate"] is None
    assert parameters["evaluation"]["match"] == "transactions"
    asked = TRAFFIC.replace("external,", "external, rate: 5 kpkt/s,")
    assert experiment(tmp_path, written(traffic=asked)).parameters()["traffic"]["rate"] == 5000


def test_pcaps_take_any_key(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {warm_up: 0 s}\ntap: {format: pcap, snap_length: 200 B}\n"
    found = experiment(tmp_path, f"{text}evaluation: {{key: packet-nat}}\n")
    assert (found.snap, found.answers) == (200, False)
    assert found.parameters()["tap"]["format"] == "pcap"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (written(evaluation="{}"), "evaluation.match: no packet passes server: take transactions"),
        (written(traffic="{}"), "traffic.generator: tailtap's own packets ask server nothing"),
        (
            written(dut=f"forwarder: {SERVER}, platform: wire"),
            "dut.forwarder: platform wire has no DuT that could answer",
        ),
        (written(dut=f"forwarder: {SERVER}, line: 2"), "dut.line: server has one port"),
        (
            written(dut=f"line: [a, b], nodes: {{a: {{forwarder: {SERVER}}}, b: {{}}}}"),
            "dut.nodes: server is no node of a line",
        ),
        (
            written(dut="forwarder: tc-mirred"),
            "evaluation.match: the DuT hands packets on and answers none",
        ),
        (written(more="tap: {format: stamps}\n"), "tap.format: stamps do not tell requests"),
        (written(more="tap: {kind: passive}\n"), "tap.kind: only inline taps stamp both ways"),
        (written(more="trace: thin\n"), "trace: a trace is joined with stamps"),
        (
            written(evaluation="{match: transactions, transaction: dsn}"),
            "evaluation.transaction: there is no kind 'dsn': did you mean 'dns'?",
        ),
        (
            "name: a\ntraffic: {}\nevaluation: {transaction: dns}\n",
            "evaluation.transaction: this is for evaluation.match: transactions",
        ),
        (
            "name: a\ntraffic: {}\ntap: {format: pcap}\n",
            "traffic.warm_up: a pcap has the packets of the warm-up as well",
        ),
        (
            "name: a\ntraffic: {warm_up: 0 s}\ntap: {format: pcap}\nevaluation: {key: packt}\n",
            "evaluation.key: 'packt' is not a key",
        ),
        ("name: a\ntraffic: {}\ntap: {snap_length: 20 B}\n", "tap.snap_length: a pcap keeps 64 B"),
    ],
)
def test_what_does_not_go_together_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        experiment(tmp_path, text)
    assert said in str(raised.value)
