"""Many runs: where their tails come from, and what they amount to over repeats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from experiment_folders import write_run
from tails import write_tail

from tailtap.analysis.tail import model_runs
from tailtap.base.errors import InputError
from tailtap.show.report.diagnostics import tail_figure, write_diagnostics


def latencies(seed: int, n: int = 100_000) -> np.typing.NDArray[np.int64]:
    random = np.random.default_rng(seed)
    return (3_000 + random.gamma(2, 300, n)).astype(np.int64)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three repeats of one configuration, and one run of another, overloaded."""
    folder = tmp_path_factory.mktemp("experiment")
    for number in (1, 2, 3):
        run = write_run(
            folder, number, {"dut.platform": "bare-metal"}, repeat=number, packets=1_000
        )
        write_tail(run / "evaluation", latencies(number))
    run = write_run(folder, 4, {"dut.platform": "wire"}, packets=1_000)
    write_tail(run / "evaluation", latencies(4), lost=10_000)
    return folder


def test_repeats_are_summed_up(experiment: Path) -> None:
    steps: list[str] = []
    found = model_runs([experiment], progress=steps.append)
    assert steps == [run.run.slug for run in found.runs] and len(steps) == 4
    for run in found.runs:
        record = json.loads((run.folder / "tail.json").read_text())
        assert record["run"] == run.run.slug == run.folder.name
        assert len(record["thresholds"]) == len(record["papers"]["thresholds"]) == 5
    rows = {row.label: row for row in found.summary}
    assert (rows["bare-metal"].runs, rows["bare-metal"].models) == (3, 3)
    assert (rows["wire"].runs, rows["wire"].models) == (1, 0)
    assert (rows["wire"].bursts, rows["wire"].bounded) == (None, None)
    models = [run.model for run in found.runs[:3]]
    bursts = [m.chosen.check.bursts_above for m in models if m.chosen and m.chosen.check]
    assert rows["bare-metal"].bursts == pytest.approx(sum(bursts) / 3)
    bounded = [bool(m.papers_chosen.bounded) for m in models if m.papers_chosen]
    assert rows["bare-metal"].papers_bounded == pytest.approx(np.mean(bounded))
    assert found.warnings == ()


def test_a_run_without_a_tail_among_others(experiment: Path, tmp_path: Path) -> None:
    old = write_run(tmp_path, 1, {}, packets=1_000)
    meta = json.loads((old / "evaluation/evaluation.json").read_text())
    del meta["exceedances"]
    (old / "evaluation/evaluation.json").write_text(json.dumps(meta))
    good = experiment / "runs/002-bare-metal-10000-2"
    found = model_runs([old, good], out=tmp_path / "out")
    assert [run.folder for run in found.runs] == [tmp_path / "out" / good.name]
    assert [warning.code for warning in found.warnings] == ["no-tail"]
    with pytest.raises(InputError, match="exceedances: this key is missing"):
        model_runs([old])
    with pytest.raises(InputError, match="no runs in it"):
        model_runs([tmp_path / "out"])


def test_figures_are_the_same_bytes_for_the_same_data(experiment: Path, tmp_path: Path) -> None:
    source = experiment / "runs/001-bare-metal-10000-1"
    found = model_runs([source], out=tmp_path).runs[0]
    figure = tail_figure(found.model)
    first, second = (
        {path.name: path.read_bytes() for path in write_diagnostics(figure, found.folder)}
        for _ in range(2)
    )
    assert first == second and set(first) == {"tail.png", "tail.svg", "tail.pdf"}
    # Also of a run that has no fit at all.
    write_tail(tmp_path / "five", np.array([1, 2, 3, 4, 5]))
    nothing = model_runs([tmp_path / "five"]).runs[0]
    assert len(write_diagnostics(tail_figure(nothing.model), nothing.folder)) == 3


@pytest.mark.parametrize("holds", [True, False])
def test_no_return_levels_are_drawn_where_none_are_given(tmp_path: Path, holds: bool) -> None:
    latency = latencies(1, 400_000)
    if not holds:  # the rest of the run exceeds what was predicted from its first part
        later = np.arange(latency.size) > 200_000
        latency[later & (latency > 6_000)] *= 3
    write_tail(tmp_path, latency)
    [found] = model_runs([tmp_path]).runs
    assert found.model.chosen is not None
    assert found.model.chosen.refused is not holds
    panel = tail_figure(found.model).panels[5]
    assert sum(mark.form == "line" for mark in panel.marks) == int(holds)
    assert panel.title == ("Return levels" if holds else "Levels seen: no model holds")
