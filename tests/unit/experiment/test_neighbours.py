"""`dut.neighbours`: what may be asked for, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiment_files import complaint

from tailtap.experiment.model import Experiment
from tailtap.lab.neighbours import NEIGHBOURS, too_little
from tailtap.records.run import Load, Neighbour

EVERY = {
    "batch": {"cpu": {"cpus": [1, 0], "busy": 20}},
    "db": {"cache": {"cpus": [1], "size": "1 MiB", "period": "20 ms"}},
    "backup": {"memory": {"cpus": [0], "rate": 500}},
    "clock": {"interrupts": {"cpus": [1], "rate": 1000}},
    "tenant": {"packets": {"cpus": [1], "rate": 50_000, "burst": 16}},
}


def test_each_kind_says_what_it_asks_for() -> None:
    experiment = Experiment.model_validate(
        {"name": "n", "dut": {"neighbours": EVERY}, "traffic": {}}
    )
    rows = {
        one.name: (
            one.options.cpus,
            list(NEIGHBOURS[one.kind].arguments(one.options)),
            NEIGHBOURS[one.kind].asked(one.options),
        )
        for one in experiment.neighbours
    }
    assert rows == {
        "batch": ((0, 1), ["--busy", "20", "--period", "10000000 ns"], 0.2),
        "db": ((1,), ["--busy", "50", "--period", "20000000 ns", "--size", "1048576 B"], 0.5),
        "backup": ((0,), ["--per-second", "500000000"], 500_000_000),
        "clock": ((1,), ["--per-second", "1000"], 1000),
        "tenant": ((1,), ["--per-second", "50000", "--burst", "16"], 50_000),
    }
    assert experiment.parameters()["dut"]["neighbours"] == EVERY


@pytest.mark.parametrize(
    ("dut", "alone"),
    [
        ({"cpus": [1]}, [True]),
        ({"cpus": [1], "neighbours": {"batch": {"cpu": {"cpus": [0, 1]}}}}, [False]),
        ({"cpus": [1], "neighbours": {"batch": {"cpu": {"cpus": [0]}}}}, [True]),
        ({"line": 2, "cpus": [1]}, [False, False]),
        ({"line": 2, "cpus": [1, 2]}, [True, True]),
    ],
)
def test_a_node_knows_whether_it_shares_its_cpus(dut: dict[str, Any], alone: list[bool]) -> None:
    experiment = Experiment.model_validate(
        {"name": "n", "dut": {"forwarder": "kernel-route", **dut}, "traffic": {"cpu": 0}}
    )
    assert [spec.alone for _, spec in experiment.devices()] == alone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{x: cpu}", "dut.neighbours.x: a neighbour is one kind with its options"),
        ("{x: {cpuu: {}}}", "there is no neighbour 'cpuu': did you mean 'cpu'"),
        ("{x: {cpu: 3}}", "the options of cpu are a mapping"),
        ("{x: {cpu: {busy: 20}}}", "dut.neighbours.x.cpu.cpus: this key is missing"),
        ("{x: {cpu: {cpus: [1], busi: 3}}}", "cpu.busi: unknown key: did you mean 'busy'"),
        ("{x: {cpu: {cpus: [1, 1]}}}", "a CPU is named twice in [1, 1]"),
        ("{x: {cpu: {cpus: [1], busy: 101}}}", "cpu.busy"),
        ("{x: {cpu: {cpus: [1], period: 1 us}}}", "a period lasts from 100 us to 10 s"),
        ("{x: {cache: {cpus: [1], size: 8 B}}}", "it reads from 4 KiB to 4 GiB"),
        ("{x: {packets: {cpus: [1], rate: 9, burst: 65}}}", "packets.burst"),
        ("{Xx: {cpu: {cpus: [1]}}}", "dut.neighbours.Xx"),
    ],
)
def test_anything_else_is_one_line(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, f"dut: {{neighbours: {text}}}")


def test_a_node_has_none_of_its_own(tmp_path: Path) -> None:
    text = "dut: {line: [a, b], nodes: {a: {neighbours: {}}, b: {}}}"
    assert "a node does not have this key" in complaint(tmp_path, text)


def test_what_reached_less_is_told() -> None:
    def did(asked: float, **reached: float) -> Neighbour:
        cpus = {
            cpu.removeprefix("cpu"): Load(reached=one, done=1, cpu_ns=1, elapsed_ns=1)
            for cpu, one in reached.items()
        }
        return Neighbour(kind="cpu", unit="work", asked=asked, cpus=cpus)

    told = {"batch": did(0.5, cpu0=0.5, cpu1=0.3), "db": did(100, cpu1=95.0)}
    [warning] = too_little(told)
    assert warning["code"] == "neighbour-short"
    assert warning["message"].endswith("batch reached less than it was asked for: 60% on CPU 1")
