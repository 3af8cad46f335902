"""The published schemas are those of the records, and what is printed and stored fits them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import Bench, sharp
from forms import SCHEMAS, fits
from jsonschema import Draft202012Validator
from msgspec.structs import asdict
from program import in_process
from runs import write_experiment
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.analysis.runs.summary import summarize
from tailtap.measure.search.methods import settings_of
from tailtap.records.record import printed as as_text
from tailtap.records.record import read
from tailtap.records.schemas import RECORDS, file_of, page, schema, write
from tailtap.records.search import SearchedRecord, SearchRecord

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/reference"
STORED = ROOT / "tests/unit/analysis/runs/stored/experiment"
"""What `tailtap run` left once."""


def printed(*command: str | Path, status: int = 0) -> dict[str, Any]:
    """What a command prints, which fits its schema."""
    done = in_process(*map(str, command), "--json", "--quiet")
    assert done.returncode == status, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    fits(content)
    return content


def test_each_record_has_a_schema_that_is_valid(tmp_path: Path) -> None:
    write(tmp_path)
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert files.keys() == {file_of(kind) for kind in RECORDS}
    for one in files.values():
        Draft202012Validator.check_schema(one)


def test_the_page_of_records_is_fresh() -> None:
    assert (DOCS / "records.md").read_text("utf-8") == page(), "run 'make docs'"


def test_whatever_names_its_form_has_a_schema() -> None:
    named = {
        name
        for path in (ROOT / "python").rglob("*.py")
        for name in re.findall(r"tailtap\.[a-z-]+/[0-9]+", path.read_text("utf-8"))
    }
    assert named == set(SCHEMAS)


def test_a_schema_refuses_what_its_record_is_not() -> None:
    content = printed("completion", "bash")
    del content["script"]
    with pytest.raises(Exception, match="'script' is a required property"):
        fits(content)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs, as `tailtap run` leaves it."""
    return write_experiment(tmp_path_factory.mktemp("schemas") / "a", (3_000, 3_000))


@pytest.mark.parametrize(
    "command",
    [
        ("completion", "zsh"),
        ("clean", "--dry-run"),
        ("verdict", "--list-profiles"),
        ("host", "audit"),
        ("host", "bootline", "--cpus", "1"),
        ("host", "bootline", "--remove", "--dry-run"),
        ("host", "apply", "--dry-run", "stat-interval"),
        ("host", "export", "--format", "sysctl"),
    ],
)
def test_what_is_told_of_this_machine(command: tuple[str, ...]) -> None:
    done = in_process(*command, "--json", "--quiet")
    assert done.stdout, done.stderr
    fits(json.loads(done.stdout))


def test_what_is_made_of_results(experiment: Path, tmp_path: Path) -> None:
    printed("report", experiment, "--no-figures", "--out", tmp_path / "report")
    printed("export", experiment, "--to", "papers", "--out", tmp_path / "papers")
    printed("import", tmp_path / "papers", "--into", tmp_path / "results.duckdb")
    run = experiment / "runs/001-bare-metal"
    printed("model", experiment, "--out", tmp_path / "models")
    for path in (tmp_path / "models").rglob("tail.json"):
        fits(json.loads(path.read_text()))
    printed("verdict", experiment, "--require", "max < 1 h", status=1)  # a run has failed
    printed("evaluate", run / "ingress.stamps", run / "egress.stamps", "--out", tmp_path / "own")


def test_what_is_stored(experiment: Path) -> None:
    paths = [*experiment.rglob("*.json"), *STORED.rglob("*.json")]
    found = [json.loads(path.read_text()) for path in paths]
    kinds = {f"tailtap.{kind}/1" for kind in ("plan", "run", "evaluation")}
    assert {content["schema"] for content in found} >= kinds
    for content in found:
        fits(content)


def test_what_came_of_an_experiment(experiment: Path) -> None:
    folder = ExperimentFolder(experiment)
    runs = [folder.run(path.name) for path in sorted(folder.runs.iterdir())]
    summary = summarize(experiment, runs)
    fits(json.loads(as_text(summary)))
    told = printed("evaluate", experiment)
    assert [row["evaluation"] is None for row in told["runs"]] == [False, False, True]


def test_what_is_told_of_a_search(experiment: Path, tmp_path: Path) -> None:
    bench, settings = Bench(sharp(40_000)), settings_of((0.0,), 1_000, 500_000)
    answers = bench.search("mlr", settings)
    bench.store(tmp_path, settings, answers)
    fits(json.loads((tmp_path / "search.json").read_text()))
    record = read(tmp_path / "search.json", SearchRecord)
    assert record == bench.record(settings, answers)
    latency = summarize(experiment, [])
    whole = SearchedRecord(**asdict(record), folder=str(tmp_path), latency=latency)
    fits(json.loads(as_text(whole)))


def test_what_is_told_of_the_causes_of_several_runs(tmp_path: Path) -> None:
    for number in (1, 2):
        random = np.random.default_rng(number)
        blocks = random_blocks(hog, 4, (500_000, 600_000), 0.5, random)
        found = simulate(arrivals(20_000, 0.5, random), blocks, random)
        write_run(tmp_path / f"runs/{number:03}-traced", found)
    content = printed("explain", tmp_path, "--late", "50 us")
    assert [row["run"] for row in content["runs"]] == ["001-traced", "002-traced"]


def test_no_two_parts_have_one_name() -> None:
    parts: dict[str, object] = {}
    for kind in RECORDS:
        for name, part in schema(kind)["$defs"].items():
            assert parts.setdefault(name, part) == part, name


def test_what_is_told_of_causes(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 4, (500_000, 600_000), 0.5, random)
    found = simulate(arrivals(20_000, 0.5, random), blocks, random)
    folder = write_run(tmp_path / "runs/001-traced", found)
    fits(json.loads((folder / "trace.json").read_text()))
    content = printed("explain", folder, "--late", "50 us")
    assert content["causes"] and content["worst"]
    assert json.loads((folder / "causes.json").read_text()) == content
