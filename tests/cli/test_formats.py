"""Runs in the formats of other tools and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from comparisons import write_run
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from program import in_process

from tailtap.analysis.runs.reader import read_runs

REPEATS = 6


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats") / "load"
    for repeat in range(1, REPEATS + 1):
        write_run(folder, repeat, {"dut.platform": "vm"}, packets=2_000, repeat=repeat)
    return folder


def test_logs_out_and_in_again(experiment: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert in_process("export", experiment, "--to", "hlog", "--out", logs).returncode == 0
    own = read_runs(experiment).runs
    for run in own:
        theirs = HistogramLogReader(str(logs / f"{run.slug}.hlog"), HdrHistogram(1, 10**12, 5))
        interval = theirs.get_next_interval_histogram()
        assert interval is not None and interval.get_total_count() == run.packets
        row = run.percentile(0.99)
        assert row is not None
        assert interval.get_value_at_percentile(99) == pytest.approx(row.value, rel=1e-5)
    back = tmp_path / "back"
    assert in_process("import", logs, "--into", back, "--quiet").returncode == 0
    again = read_runs(back).runs
    assert [run.repeat for run in again] == list(range(1, REPEATS + 1))
    for one, other in zip(own, again, strict=True):
        rows = one.percentile(0.99), other.percentile(0.99)
        assert rows[0] and rows[1] and rows[1].value == pytest.approx(rows[0].value, rel=1e-5)
    sides = (f"a={experiment}", f"b={back}")
    gate = in_process("compare", *sides, "--worse-than", "5 %", "--at", "p99", "--quiet")
    assert gate.returncode in (0, 5), gate  # the same latencies are not worse


def test_for_github_action_benchmark(experiment: Path, tmp_path: Path) -> None:
    run = in_process("export", experiment, "--to", "github-action-benchmark", "--out", tmp_path)
    assert run.returncode == 0, run
    found = json.loads((tmp_path / "benchmark.json").read_text())
    assert [row["name"].rpartition(", ")[2] for row in found] == ["p50", "p75", "p90", "p95", "p99"]
    assert {row["unit"] for row in found} == {"ns"}
    low, _, high = found[-1]["range"].partition(" to ")
    assert int(low) <= found[-1]["value"] <= int(high)
    assert found[-1]["extra"] == f"{REPEATS} runs"
