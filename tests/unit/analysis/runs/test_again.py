"""Runs that are evaluated again, and a stored folder of an experiment that is read as it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
import runs

from tailtap.analysis.compare import compare_runs
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.executors import Threads
from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.analysis.runs.again import Outcome, evaluate_again, find
from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.analysis.runs.groups import configurations, finding
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.tail import model_runs
from tailtap.analysis.verdict.requirement import parse_requirements
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.base.errors import InputError, MachineError
from tailtap.records.evaluation import Options
from tailtap.records.record import as_json
from tailtap.results.current import kept_current
from tailtap.show.report import write_report

SECOND = 1_000_000_000


def again(folder: Path, chunk_bytes: int = 1 << 30, **changes: object) -> tuple[Outcome, list[str]]:
    lines: list[str] = []
    runs = find(folder)
    home = runs.experiment.path if runs.experiment else folder
    with kept_current(home), Threads(2) as executor:
        outcome = evaluate_again(
            runs,
            executor,
            changes,
            chunk_bytes=chunk_bytes,
            percentiles=DEFAULT,
            print_line=lines.append,
            replace=True,
        )
    return outcome, lines


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_experiment(tmp_path_factory.mktemp("again"), (20_000, 3_000, 12_000))


@pytest.fixture
def experiment(finished: Path, tmp_path: Path) -> Path:
    """An experiment to work on; its results name the captures where they were first."""
    shutil.copytree(finished, tmp_path / "experiment")
    return tmp_path / "experiment"


def test_settings_are_the_run_s_own_but_for_what_is_asked(tmp_path: Path) -> None:
    folder = runs.write_run(tmp_path, 1, settings={"trim": SECOND // 100, "window": SECOND})
    again(folder)
    found = Evaluation.load(folder / "evaluation")
    assert found.options == Options(
        trim_ns=SECOND // 100, window_ns=SECOND, bucket_ns=100, worst=5_000, throughout=True
    )
    trimmed = found.counts.trimmed_egress
    again(folder, trim_ns=SECOND // 20, key="moonsniff", worst=7, bucket_ns=1_000)
    found = Evaluation.load(folder / "evaluation")
    assert found.options == Options(
        trim_ns=SECOND // 20, window_ns=SECOND, bucket_ns=1_000, worst=7, throughout=True
    )
    assert found.counts.trimmed_egress > 4 * trimmed > 0
    assert found.key_reason is None
    assert len(found.worst()) == 7


def test_an_error_in_one_run_leaves_it_and_the_others_alone(experiment: Path) -> None:
    stored = runs.all_rows(experiment / "results.duckdb")
    kept = (experiment / "runs/002-bare-metal/evaluation/evaluation.json").read_bytes()
    (experiment / "runs/002-bare-metal/egress.stamps").unlink()
    outcome, lines = again(experiment, bucket_ns=1_000)
    assert list(outcome.errors) == ["002-bare-metal"]
    assert isinstance(outcome.errors["002-bare-metal"], InputError)
    assert "002-bare-metal/egress.stamps" in str(outcome.errors["002-bare-metal"])
    assert (experiment / "runs/002-bare-metal/evaluation/evaluation.json").read_bytes() == kept
    for name in ("001", "003"):
        found = Evaluation.load(experiment / f"runs/{name}-bare-metal/evaluation")
        assert found.options.bucket_ns == 1_000
    assert any("failed, its earlier evaluation stays" in line for line in lines)
    after = runs.all_rows(experiment / "results.duckdb")
    assert [row for row in after["histogram"] if row[0] == "2"] == [
        row for row in stored["histogram"] if row[0] == "2"
    ]
    assert len(after["histogram"]) < len(stored["histogram"])
    statuses = [row.status for row in outcome.summary().runs]
    assert statuses == ["done", "failed", "done", "failed"]


def test_what_was_imported_stays(experiment: Path) -> None:
    database = experiment / "results.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "INSERT INTO runs (run, slug, experiment, repeat, status, variables, parameters) "
            "VALUES (1000001, 'published', 'papers', 1, 'imported', '{}', '{}')"
        )
    again(experiment)
    assert sorted(int(row[0]) for row in runs.all_rows(database)["runs"]) == [1, 2, 3, 4, 1_000_001]


def test_runs_are_found_in_their_order(tmp_path: Path) -> None:
    for number in (1000, 2, 101):
        runs.write_run(tmp_path, number, status="failed")
    found = find(tmp_path)
    assert [run.read().number for run in found.folders] == [2, 101, 1000]
    assert found.experiment is None
    with pytest.raises(InputError, match=r"no run of it was finished$"):
        again(tmp_path)
    (tmp_path / "experiment.yaml").write_text("name: begun\n")
    with pytest.raises(InputError, match="finished; `tailtap run --resume` goes on"):
        again(tmp_path)
    with pytest.raises(InputError, match="there are no runs in it"):
        find(tmp_path / "elsewhere")


@pytest.mark.parametrize("part", ["runs", "runs/001-bare-metal"])
def test_a_part_of_an_experiment_is_stored_in_its_database(experiment: Path, part: str) -> None:
    (experiment / "experiment.yaml").write_text("name: again\n")
    again(experiment / part, trim_ns=SECOND // 20)
    evaluations = {
        row[0]: row for row in runs.all_rows(experiment / "results.duckdb")["evaluations"]
    }
    found = Evaluation.load(experiment / "runs/001-bare-metal/evaluation")
    assert str(found.counts.matched) in evaluations["1"]
    assert found.counts.trimmed_egress > 0
    assert sorted(evaluations) == ["1", "2", "3"]


def test_runs_without_an_experiment_get_no_database(tmp_path: Path) -> None:
    runs.write_run(tmp_path, 1, packets=2_000)
    outcome, _ = again(tmp_path)
    assert outcome.summary().database is None
    assert not list(tmp_path.rglob("*.duckdb"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_results_that_could_not_be_written_are_told_first(experiment: Path) -> None:
    (experiment / "runs/003-bare-metal/evaluation").chmod(0o500)
    with pytest.raises(MachineError, match="003-bare-metal: its results could not be written"):
        again(experiment)


def test_a_folder_that_is_written_to_is_left_alone(experiment: Path) -> None:
    with ExperimentFolder(experiment).locked(), pytest.raises(InputError, match="another tailtap"):
        again(experiment)


STORED = Path(__file__).with_name("stored")
REQUIRED = ("median < 1 s", "loss == 0", "p99.999 < 1 ms")


def figures(evaluation: dict[str, Any]) -> list[int]:
    latency = {row["p"]: row["value"] for row in evaluation["latency_ns"]["percentiles"]}
    counts, largest = evaluation["counts"], evaluation["latency_ns"]["max"]
    return [counts["matched"], counts["lost"], latency[0.5], latency[0.99], largest]


def test_a_stored_folder_is_evaluated_and_told_as_before(tmp_path: Path) -> None:
    """What the program said of this folder when it was stored."""
    expected = json.loads((STORED / "expected.json").read_text())
    folder = Path(shutil.copytree(STORED / "experiment", tmp_path / "today"))
    outcome, _ = again(folder)
    runs = as_json(outcome.summary())["runs"]
    assert {run["slug"]: figures(run["evaluation"]) for run in runs} == expected["runs"]
    warned = {run["slug"]: (*run["warnings"], *run["evaluation"]["warnings"]) for run in runs}
    codes = {slug: sorted(one["code"] for one in warnings) for slug, warnings in warned.items()}
    assert codes == expected["warnings"]
    for slug, numbers in expected["runs"].items():
        stored = STORED / "experiment/runs" / slug / "evaluation/evaluation.json"
        assert figures(json.loads(stored.read_text())) == numbers

    written = write_report(folder, tmp_path / "report", figures=False)
    assert (written.runs, written.failed, written.imported) == (4, 0, 0)
    page = written.page.read_text("utf-8")
    for group in configurations(load_experiment(folder)):
        assert group.label in page and finding(group, []).name == "p95"
        for member in group.members:
            row = next(row for row in member.evaluation.listed if row.p == 0.5)
            assert row.value == expected["runs"][member.run.slug][2]
    assert "Linux 6.18.44" in page and "AMD EPYC" in page

    found = as_json(model_runs([folder], out=tmp_path / "models")[0])
    codes = {run["run"]: [run["chosen"], sorted({one["code"] for one in run["warnings"]})]
             for run in found["runs"]}  # fmt: skip
    assert codes == expected["models"]
    rows = [[row["label"], row["runs"], row["models"]] for row in found["summary"]]
    assert rows == expected["repeats"]

    found = as_json(judge_runs([folder], parse_requirements(REQUIRED)))
    keys = ("configuration", "requirement", "answer", "decided_by")
    assert [[row[key] for key in keys] for row in found["verdicts"]] == expected["verdict"]

    found = as_json(compare_runs([("", folder)]))
    loads = [
        [
            load["load"],
            load["percentile"],
            [[row["label"], row["rank"], row["worst"], [run["latency"] for run in row["repeats"]]]
             for row in load["configurations"]],
            [round(pair["p"], 6) for pair in load["comparisons"]],
        ]
        for load in found["loads"]
    ]  # fmt: skip
    assert loads == expected["ranking"]
