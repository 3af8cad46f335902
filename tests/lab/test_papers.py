"""The papers' experiments, smaller than small: they run, and draw what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from labtools import TAILTAP, Machine, statuses

from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report.requested import requested_figures, write_requested

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

pytestmark = [
    pytest.mark.timeout(1200),
]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if path.stem == "cards" else [pytest.mark.slow], id=path.stem)
        for path in sorted(FILES.glob("*.yaml"))
    ],
)
def test_a_file_runs_and_draws_its_figures(machine: Machine, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sets = [word for one in SMALLER for word in ("--set", one)]
    searched = path.stem == "line-highest"
    command = SEARCH if searched else ("run",)
    words = (*TAILTAP, *command, str(path), "--out", str(out), *sets)
    done = machine.run(*words, seconds=1000)
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
