"""Flows that were measured together in the report."""

from __future__ import annotations

from pathlib import Path

from experiment_folders import write_run
from pages import texts, visible

from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.tables import flows_together

VOICE, BULK = {"dut.line": "2", "flow": "voice"}, {"dut.line": "2", "flow": "bulk"}


def test_each_measurement_names_its_worst_flows(tmp_path: Path) -> None:
    write_run(tmp_path, 1, VOICE, packets=4_000)
    write_run(tmp_path, 2, BULK, packets=4_000, loss=0.25)
    write_run(tmp_path, 3, VOICE, packets=4_000, repeat=2, loss=0)
    write_run(tmp_path, 4, BULK, packets=4_000, repeat=2, loss=0)
    first, second = texts(flows_together(load_experiment(tmp_path)))
    assert first[:3] == ["line 2 #1", "2", "bulk: 25 %"]
    assert second[:4] == ["line 2 #2", "2", "none", "1.000"]
    page = visible(write_report(tmp_path, figures=False).page.read_text())
    assert "Flows measured together" in page
    assert "bulk: 25" in page


def test_runs_of_one_flow_have_no_such_table(tmp_path: Path) -> None:
    write_run(tmp_path, 1, VOICE, packets=2_000)
    write_run(tmp_path, 2, {"dut.line": "3", "flow": "bulk"}, packets=2_000)
    assert not flows_together(load_experiment(tmp_path))
    assert "Flows measured together" not in write_report(tmp_path, figures=False).page.read_text()
