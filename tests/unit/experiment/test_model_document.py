"""An experiment as a document: what a station is sent is what the measuring process has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
EVERYTHING = """
name: everything
dut: {platform: container, forwarder: {suricata: {rules: none}}, cpus: [1, 3], memory: 1.5 GiB}
traffic:
  rate: 12.5 kpkt/s
  size: [64 B, 1500 B]
  pattern: {kind: burst, packets: 32}
  duration: 1.5 s
  warm_up_packets: 10
  pause: 3 ms
  flows: {src: 10.0.0.1-10.0.0.9, dport: 50-59}
  vlan: 5
  bidirectional: true
  reverse_cpu: 2
  slip_limit: 1 ms
evaluation: {trim: 100 us, window: 1 s}
vary: {dut.boot: [nohz=off, ""]}
"""


def again(experiment: Experiment) -> Experiment:
    return Experiment.model_validate(json.loads(json.dumps(experiment.document())))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_survive_the_way(path: Path) -> None:
    for _, experiment in read_experiment(path).combinations:
        there = again(experiment)
        assert there == experiment
        assert there.parameters() == experiment.parameters()
        assert there.devices() == experiment.devices()


def test_every_kind_of_quantity_survives() -> None:
    experiment = Experiment.model_validate(yaml.safe_load(EVERYTHING))
    document = experiment.document()
    assert document["traffic"]["rate"] == "12500 pkt/s"
    assert document["traffic"]["size"] == ["64 B", "1500 B"]
    assert document["traffic"]["pause"] == "3000000 ns"
    assert document["dut"]["memory"] == f"{1536 * 2**20} B"
    assert again(experiment) == experiment
    assert again(experiment).traffic.reversed() == experiment.traffic.reversed()


def test_a_changed_copy_is_written_as_it_is() -> None:
    experiment = Experiment.model_validate({"name": "a", "traffic": {"rate": "1 kpkt/s"}})
    faster = experiment.traffic.model_copy(update={"rate": 2_000, "duration": 500_000_000})
    changed = experiment.model_copy(update={"traffic": faster})
    assert again(changed).traffic.packets == changed.traffic.packets == 1_000
