"""An experiment with cases, exclusions and differences: from the check to the comparison."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from labtools import own_machine, record, statuses, was_made, write_experiment
from program import tailtap

TEXT = """\
name: cases
dut: {cpus: [1]}
traffic: {duration: 500 ms, warm_up: 0 s, cpu: 0, slip_limit: 10 s}
differs: [It is smaller than the paper's.]
cases:
  - {dut.platform: wire, traffic.rate: 1 kpkt/s}
  - {dut.platform: bare-metal, traffic.rate: 1 kpkt/s}
vary:
  dut.forwarder: [tc-mirred, fault]
exclude:
  - {dut.platform: wire, dut.forwarder: fault}
scales:
  fast: {cases: [{dut.platform: wire, traffic.rate: 9 kpkt/s}], exclude: []}
"""
SLUGS = [
    "001-wire-1kpkt-s-tc-mirred",
    "002-bare-metal-1kpkt-s-tc-mirred",
    "003-bare-metal-1kpkt-s-fault",
]


def test_cases_are_checked_measured_resumed_and_compared(tmp_path: Path) -> None:
    path, out = write_experiment(tmp_path, TEXT), tmp_path / "out"
    with own_machine() as machine:
        run = ["run", str(path), "--out", str(out)]
        checked = machine.tailtap(*run, "--check", "--json")
        assert checked.returncode == 0, checked.stderr
        foreseen = json.loads(checked.stdout)
        assert [row["slug"] for row in foreseen["runs"]] == SLUGS
        assert not out.exists()

        made = machine.tailtap(*run)
        assert was_made(made), made.stderr
        assert made.stderr.startswith(
            "this experiment differs from the one that it follows:\n- It is smaller than the paper"
        )
        assert (out / "experiment.yaml").read_text() == TEXT
        assert [path.name for path in sorted((out / "runs").iterdir())] == SLUGS
        contents = [record(out / "runs" / slug) for slug in SLUGS]
        assert [content["variables"] for content in contents] == [
            row["variables"] for row in foreseen["runs"]
        ]
        assert contents[2]["variables"] == {
            "dut.platform": "bare-metal",
            "traffic.rate": "1 kpkt/s",
            "dut.forwarder": "fault",
        }
        assert [content["generator"]["sent"] for content in contents] == [500] * 3

        shutil.rmtree(out / "runs" / SLUGS[1])
        again = machine.tailtap(*run, "--resume", "--quiet")
        assert (again.returncode, again.stderr) == (0, "")
        assert statuses(out) == ["done"] * 3
        assert record(out / "runs" / SLUGS[0])["started"] == contents[0]["started"]
        slower = "cases=[{dut.platform: wire, traffic.rate: 2 kpkt/s}]"
        other = machine.tailtap(*run, "--resume", "--set", slower, "--set", "exclude=[]")
        assert other.returncode == 2
        assert "differs from" in other.stderr and "in cases" in other.stderr
        scale = machine.tailtap(*run[:-1], str(tmp_path / "fast"), "--set", "scale=fast")
        assert scale.returncode == 0, scale.stderr
        assert len(statuses(tmp_path / "fast")) == 2
        assert machine.namespaces() == []
    compared = tailtap("compare", out, "--json")
    assert compared.returncode == 0, compared.stderr
    [load] = json.loads(compared.stdout)["loads"]
    assert sorted(row["label"] for row in load["configurations"]) == [
        "bare-metal · fault",
        "bare-metal · tc-mirred",
    ]
    reported = tailtap("report", out)
    assert reported.returncode == 0, reported.stderr
    page = (out / "report/index.html").read_text()
    assert "bare-metal · 1 kpkt/s · fault" in page
