"""What the report and a comparison say of energy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from experiment_folders import write_run
from pages import texts

from tailtap.analysis.compare.resources import resources
from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report.readings import energy

SECOND = 1_000_000_000
ENERGY: list[dict[str, Any] | None] = [
    {
        "elapsed_ns": 2 * SECOND,
        "energy_uj": {
            "package-0": 170_000_000,
            "package-0/core": 90_000_000,
            "package-0/dram": 10_000_000,
            "psys": 500_000_000,
        },
        "platform_watts": {"before": 212, "after": None},
    },
    None,
    {"elapsed_ns": SECOND, "energy_uj": {}, "platform_watts": {"before": 100, "after": 120}},
    {"elapsed_ns": SECOND, "energy_uj": {"psys": 7_000_000}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, counted in enumerate(ENERGY, 1):
        run = write_run(
            tmp_path, number, {"dut.platform": "bare-metal"}, repeat=number, packets=100
        )
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "energy": counted}))
    return tmp_path


def test_power_beside_latency(folder: Path) -> None:
    groups = configurations(load_experiment(folder))
    table = energy(groups)
    assert [column.heading for column in table.columns[1:]] == [
        "p50", "p99.9", "max", "power", "package-0", "package-0/core", "package-0/dram", "psys",
        "energy", "machine (IPMI)",
    ]  # fmt: skip
    rows = [cells[1:] for cells in texts(table)]
    assert all(row[0].endswith("µs") and row[1] == "–" for row in rows)  # of 100 packets
    none = ["–"] * 5
    assert [row[3:] for row in rows] == [
        ["90.0 W", "85.0 W", "45.0 W", "5.0 W", "250.0 W", "180.0 J", "212 W before, – after"],
        [*none, "–", "100 W before, 120 W after"],
        ["–", "–", "–", "–", "7.0 W", "–", "–"],
    ]


def test_a_comparison_has_the_power_of_processors_and_memory(folder: Path) -> None:
    runs = load_experiment(folder).runs
    assert [resources([run]).watts for run in runs] == [90.0, None, None, None]
    assert resources(runs).watts == 90.0
