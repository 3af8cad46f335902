"""What the report says of counts of processors: when and where they were counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiment_folders import write_run

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.output.report.counters import counter_heads, counter_rows


def window(switches: int | None, **more: Any) -> dict[str, Any]:
    events = {"branches": 70, "context-switches": switches}
    least = {"scope": "dut.cpus", "cpus": [1], "estimated": [], "by_cpu": {}}
    return {"elapsed_ns": 1, "events": events, **least, **more}


def test_each_window_names_its_scope(tmp_path: Path) -> None:
    runs = [
        {
            "run": window(120, scope="dut.cpus", cpus=[1], estimated=["branches"]),
            "lifetime": window(340, scope="machine", cpus=[0, 1], estimated=[]),
        },
        {"run": window(None), "lifetime": window(5)},
        None,
    ]
    for number, counters in enumerate(runs, 1):
        run = write_run(
            tmp_path, number, {"dut.platform": "bare-metal"}, repeat=number, packets=100
        )
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "counters": counters}))
    groups = configurations(load_experiment(tmp_path))
    assert counter_heads(groups) == ["branches", "context-switches"]
    rows = [[cell.text for cell in row.cells] for row in counter_rows(groups)]
    sent = "while packets were sent"
    life = "from before the device was built until it was gone"
    assert rows == [
        [sent, "the device's CPUs: 1", "about 70", "120"],
        [life, "all CPUs: 0, 1", "70", "340"],
        [sent, "the device's CPUs: 1", "70", "–"],
        [life, "the device's CPUs: 1", "70", "5"],
    ]
