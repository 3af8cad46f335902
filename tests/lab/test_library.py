"""The functions of `import tailtap` that measure, and the fixture, in tests of another project."""

from __future__ import annotations

import sys
from pathlib import Path

from labtools import Machine

PROJECT = """
import pytest
import tailtap

HOLD = {"ids": [100, 200], "time": "20 ms"}
LIMIT = {"rate": "8 kpkt/s", "queue": 10}

def experiment(**options):
    faulty = {"forwarder": "fault", "cpus": [1], "options": options}
    times = {"duration": "500 ms", "warm_up": "50 ms", "slip_limit": "10 s"}
    return {
        "name": "library",
        "dut": faulty if options else {"platform": "wire"},
        "traffic": {"rate": "2 kpkt/s", "cpu": 0, **times},
    }

def test_run(tmp_path):
    measured = tailtap.run(experiment(hold=HOLD), tmp_path / "out", set=["traffic.rate=1 kpkt/s"])
    [run] = measured.runs
    assert run.packets == 500 and run.lost == 0
    assert run.evaluation.percentile(0.999).value >= 20_000_000
    assert tailtap.verdict(tmp_path / "out", ["loss == 0"]).answer == "holds"

def test_search(tmp_path):
    found = tailtap.search(experiment(limit=LIMIT), tmp_path / "out", low=4_000, high=16_000,
                           loss=0.3, precision=0.5, trial_ns=300_000_000, trials=1, latency=False)
    [answer] = found.answers
    # Beside other tests it may lose more than by its limit; never less.
    assert found.status == "done" and answer.loss == 0.3
    assert (answer.rate or 0) <= (8_000 + 10 / 0.3) / 0.7, answer

def test_holds(tail_latency):
    tail_latency(experiment(), "loss == 0")

@pytest.mark.xfail(raises=pytest.fail.Exception, strict=True)
def test_violated(tail_latency):
    tail_latency(experiment(drop=[7]), "loss == 0")
"""


def test_another_project_measures_in_its_tests(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "test_tail.py").write_text(PROJECT)
    found = machine.run(
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
        "-q", "-rA", str(tmp_path),
    )  # fmt: skip
    assert machine.namespaces() == []
    assert found.returncode == 0, found.stdout + found.stderr
    assert "3 passed, 1 xfailed" in found.stdout, found.stdout
