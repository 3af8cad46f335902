"""A folder of an experiment that was stored is read as it was written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailtap.analysis.compare import compare_runs
from tailtap.analysis.evaluation.executors import Threads
from tailtap.analysis.evaluation.percentiles import DEFAULT
from tailtap.analysis.runs.again import evaluate_again, find
from tailtap.analysis.runs.groups import configurations, finding
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.tail import model_runs
from tailtap.analysis.verdict.requirement import parse_requirements
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.records.record import as_json
from tailtap.results.database import kept_current
from tailtap.show.report import write_report

STORED = Path(__file__).with_name("stored")
REQUIRED = ("median < 1 s", "loss == 0", "p99.999 < 1 ms")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What the program said of this folder when it was stored."""
    found: dict[str, Any] = json.loads((STORED / "expected.json").read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(STORED / "experiment", tmp_path_factory.mktemp("stored") / "today"))


@pytest.fixture(scope="module")
def evaluated(folder: Path) -> dict[str, Any]:
    """The summary of evaluating all runs again."""
    with kept_current(folder), Threads(1) as executor:
        outcome = evaluate_again(
            find(folder),
            executor,
            {},
            chunk_bytes=1 << 30,
            percentiles=DEFAULT,
            print_line=lambda _: None,
        )
    return as_json(outcome.summary())


def figures(evaluation: dict[str, Any]) -> list[int]:
    latency = {row["p"]: row["value"] for row in evaluation["latency_ns"]["percentiles"]}
    counts = evaluation["counts"]
    largest = evaluation["latency_ns"]["max"]
    return [counts["matched"], counts["lost"], latency[0.5], latency[0.99], largest]


def test_stamps_are_evaluated_as_before(
    evaluated: dict[str, Any], expected: dict[str, Any]
) -> None:
    runs = evaluated["runs"]
    assert {run["slug"]: figures(run["evaluation"]) for run in runs} == expected["runs"]
    codes = {
        run["slug"]: sorted(
            warning["code"] for warning in (*run["warnings"], *run["evaluation"]["warnings"])
        )
        for run in runs
    }
    assert codes == expected["warnings"]
    for run in runs:
        stored = STORED / "experiment" / "runs" / run["slug"] / "evaluation/evaluation.json"
        assert figures(json.loads(stored.read_text())) == expected["runs"][run["slug"]]


@pytest.mark.usefixtures("evaluated")
def test_they_are_reported_as_before(
    folder: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    written = write_report(folder, tmp_path, figures=False)
    assert (written.runs, written.failed, written.imported) == (4, 0, 0)
    experiment = load_experiment(folder)
    page = written.page.read_text("utf-8")
    for group in configurations(experiment):
        assert group.label in page and finding(group, []).name == "p95"
        for member in group.members:
            row = next(row for row in member.evaluation.percentiles if row.p == 0.5)
            assert row.value == expected["runs"][member.run.slug][2]
    assert "Linux 6.18.44" in page and "AMD EPYC" in page


@pytest.mark.usefixtures("evaluated")
def test_they_are_modelled_as_before(
    folder: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    found = msgspec.to_builtins(model_runs([folder], out=tmp_path).record("tailtap"))
    models = {
        run["run"]: [run["chosen"], sorted({warning["code"] for warning in run["warnings"]})]
        for run in found["runs"]
    }
    assert models == expected["models"]
    rows = [[row["label"], row["runs"], row["models"]] for row in found["summary"]]
    assert rows == expected["repeats"]


@pytest.mark.usefixtures("evaluated")
def test_they_are_judged_as_before(folder: Path, expected: dict[str, Any]) -> None:
    found = msgspec.to_builtins(judge_runs([folder], parse_requirements(REQUIRED)))
    rows = [
        [row["configuration"], row["requirement"], row["answer"], row["decided_by"]]
        for row in found["verdicts"]
    ]
    assert rows == expected["verdict"]


@pytest.mark.usefixtures("evaluated")
def test_they_are_compared_as_before(folder: Path, expected: dict[str, Any]) -> None:
    found = as_json(compare_runs([("", folder)]))
    loads = [
        [
            load["load"],
            load["percentile"],
            [
                [
                    row["label"],
                    row["rank"],
                    row["worst"],
                    [run["latency"] for run in row["repeats"]],
                ]
                for row in load["configurations"]
            ],
            [round(pair["p"], 6) for pair in load["comparisons"]],
        ]
        for load in found["loads"]
    ]
    assert loads == expected["ranking"]
