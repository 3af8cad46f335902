"""The functions of `import tailtap` that measure, and the fixture, in tests of another project."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from labtools import Machine, ids_of, measured, record, statuses
from packages import install_kinds

from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report.requested import requested_figures, write_requested

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
    found = tailtap.verdict(tmp_path / "out", ["loss == 0"])
    assert found.answer == "holds", found

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


EXPERIMENT = """\
name: others
dut: {platform: pod, cache: 3 MiB, forwarder: {relay: {lanes: 2}}, cpus: [1]}
traffic:
  generator: trickle
  options: {drops: 2}
  rate: 2 kpkt/s
  duration: 500 ms
  warm_up: 100 ms
  cpu: 0
tap: {kind: listener}
"""


def test_a_run_has_their_platform_forwarder_generator_and_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kinds(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    made = measured(tmp_path, EXPERIMENT)
    folder = made.run
    run = record(folder)
    assert ids_of(folder) == list(range(1_000))
    assert run["platform"]["cache"] == run["parameters"]["dut"]["cache"] == 3 * 2**20
    assert run["parameters"]["dut"]["options"] == {"lanes": 2}
    assert run["traits"]["virtualization"] == "container"
    assert json.loads((folder / "generator.json").read_text())["by"] == "trickle"
    assert (folder / "listened").exists()


LEFT = """
import os, sys
from tailtap.host.changes.journal import Journal
from other_kinds import Flag
entered = Journal.create().held(Flag(sys.argv[1]))
entered.__enter__()
os._exit(9)
"""


def test_what_their_resources_changed_is_cleaned(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_kinds(tmp_path / "packages")
    flag = tmp_path / "flag"
    with monkeypatch.context() as with_package:
        with_package.setenv("PYTHONPATH", str(tmp_path / "packages"))
        assert machine.run(sys.executable, "-c", LEFT, str(flag)).returncode == 9
    assert flag.exists()
    # Where the package is not installed nobody knows how to undo it.
    said = machine.tailtap("clean")
    assert f"says what this tailtap cannot undo (flag {flag})" in said.stderr
    assert flag.exists()
    with monkeypatch.context() as with_package:
        with_package.setenv("PYTHONPATH", str(tmp_path / "packages"))
        assert ("flag", str(flag)) in machine.cleaned()
    assert not flag.exists()


FILES = Path(__file__).parents[2] / "examples/papers"
SMALLER = (
    "traffic.duration=400 ms",
    "traffic.warm_up=100 ms",
    "traffic.slip_limit=10 s",
    "evaluation.trim=0 s",
    "repeat=1",
)
SEARCH = (
    "search", "--loss", "1%", "--latency-at", "100%", "--trial", "400 ms", "--short", "200 ms",
    "--trials", "1", "--precision", "50%", "--to", "200 kpkt/s",
)  # fmt: skip
"""Highest rates are searched for, in few steps."""
LACKING = ("no run counted", "no run has what this kind of figure shows")
"""Why a figure is not drawn: processors that tell neither counters nor power."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, marks=[] if path.stem == "as-installed" else [pytest.mark.slow], id=path.stem
        )
        for path in sorted(FILES.glob("*.yaml"))
    ],
)
def test_a_file_runs_and_draws_its_figures(machine: Machine, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sets = [word for one in SMALLER for word in ("--set", one)]
    searched = path.stem == "line-highest"
    command = SEARCH if searched else ("run",)
    done = machine.tailtap(*command, str(path), "--out", str(out), *sets, seconds=1000)
    assert machine.namespaces() == []
    made = statuses(out / "latency" if searched else out)
    # What this machine was not booted for fails, and says so; all else is measured.
    assert done.returncode in (0, 1, 3) and "done" in made, done.stderr
    if "failed" in made:
        assert "boot" in done.stderr, done.stderr
    if path.stem == "platforms-and-kernels":
        machine.tailtap("model", str(out))
    found = requested_figures(load_experiment(out), None)
    assert found
    for one in found:
        if one.drawn is None:
            assert one.reason.startswith(LACKING), (one.name, one.reason)
    drawn = [one for one in found if one.drawn is not None]
    assert drawn
    write_requested(found, tmp_path / "figures", below=tmp_path)
    for one in drawn:
        assert one.drawn is not None
        assert one.drawn.panels or one.drawn.tables, one.name
        kind = "png" if one.drawn.panels else "csv"
        assert (tmp_path / f"figures/{one.name}.{kind}").stat().st_size > 0, one.name
