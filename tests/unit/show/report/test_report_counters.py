"""What the report says of counts of processors: when and where they were counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiment_folders import write_run
from pages import texts

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report.page import by_packet
from tailtap.show.report.readings import counters as counted


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
    rows = [cells[1:] for cells in texts(counted(groups))]
    sent = "while packets were sent"
    life = "from before the device was built until it was gone"
    assert rows == [
        [sent, "the device's CPUs: 1", "about 70", "120"],
        [life, "all CPUs: 0, 1", "70", "340"],
        [sent, "the device's CPUs: 1", "70", "–"],
        [life, "the device's CPUs: 1", "70", "5"],
    ]


def test_what_a_packet_takes_stands_beside_the_first(tmp_path: Path) -> None:
    for number in range(1, 9):
        platform, repeat = ("bare-metal", "container")[number > 4], (number - 1) % 4 + 1
        run = write_run(tmp_path, number, {"dut.platform": platform}, repeat=repeat, packets=400)
        record = json.loads((run / "run.json").read_text())
        record["taps"]["ingress"] |= {"seen": 90, "other": 10}
        counted = window(100 * number, kinds={"LOC": 5})
        (run / "run.json").write_text(json.dumps({**record, "counters": {"run": counted}}))
    experiment = load_experiment(tmp_path)
    table = by_packet(experiment, configurations(experiment))
    rows = [[cells[0].partition(" ")[0], *cells[1:]] for cells in texts(table)]
    none, three = ["–", "–"], ["0", "4"]
    assert rows == [
        ["bare-metal", "branches", "0.7", *three, *none],
        ["container", "branches", "0.7", *three, "+0 (+0 to +0)", "1"],
        ["bare-metal", "context-switches", "2.5", "1.3", "4", *none],
        ["container", "context-switches", "6.5", "1.3", "4", "+4 (+1 to +7)", "1"],
        ["bare-metal", "LOC", "0.05", *three, *none],
        ["container", "LOC", "0.05", *three, "+0 (+0 to +0)", "1"],
    ]
    looks = [row.cells[5].look for row in table.rows]
    assert looks == ["", "zero", "", "zero", "", "zero"]  # two events need a fifth repeat
