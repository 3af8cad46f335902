"""The published schemas are those of the records, and what is printed and stored fits them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from devices import Bench, sharp
from forms import SCHEMAS, fits
from jsonschema import Draft202012Validator
from msgspec.structs import asdict
from program import in_process
from runs import write_experiment

from tailtap.analysis.runs.flows import summarize
from tailtap.analysis.runs.folder import ExperimentFolder
from tailtap.measure.search.methods import settings_of
from tailtap.records.record import printed as as_text
from tailtap.records.record import read
from tailtap.records.schemas import RECORDS, file_of, page, schema, write
from tailtap.records.search import SearchedRecord, SearchRecord
from tests.fuzz import readers

ROOT = Path(__file__).parents[2]
STORED = ROOT / "tests/unit/analysis/runs/stored/experiment"
"""What `tailtap run` left once."""


def printed(*command: str | Path) -> dict[str, Any]:
    """What a command prints, which fits its schema."""
    done = in_process(*map(str, command), "--json", "--quiet")
    assert done.stdout, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    fits(content)
    return content


def test_each_record_has_a_schema_that_is_valid(tmp_path: Path) -> None:
    write(tmp_path)
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert files.keys() == {file_of(kind) for kind in RECORDS}
    for one in files.values():
        Draft202012Validator.check_schema(one)
    named = {
        name
        for path in (ROOT / "python").rglob("*.py")
        for name in re.findall(r"tailtap\.[a-z-]+/[0-9]+", path.read_text("utf-8"))
    }
    assert named == set(SCHEMAS)
    assert (ROOT / "docs/reference/records.md").read_text("utf-8") == page(), "run 'make docs'"
    parts: dict[str, object] = {}
    for kind in RECORDS:
        for name, part in schema(kind)["$defs"].items():
            assert parts.setdefault(name, part) == part, name


def test_a_schema_refuses_what_its_record_is_not() -> None:
    content = printed("completion", "bash")
    del content["script"]
    with pytest.raises(Exception, match="'script' is a required property"):
        fits(content)


@pytest.mark.parametrize(
    "command",
    [
        "clean --dry-run",
        "host audit",
        "host bootline --cpus 1",
        "host bootline --remove --dry-run",
        "host apply --dry-run stat-interval",
        "host export --format sysctl",
    ],
)
def test_what_is_said_of_this_machine(command: str) -> None:
    printed(*command.split())


def test_what_is_stored_and_made_of_results(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path / "a", (3_000, 3_000))
    evaluated = printed("evaluate", experiment)
    assert [row["evaluation"] is None for row in evaluated["runs"]] == [False, False, True]
    printed("model", experiment)
    readers.write_trace(tmp_path / "traced")
    content = printed("explain", tmp_path / "traced")
    assert content["causes"] and content["worst"]
    [path] = tmp_path.glob("traced/runs/*/causes.json")
    assert json.loads(path.read_text()) == content
    stored = [json.loads(path.read_text()) for top in (tmp_path, STORED)
              for path in top.rglob("*.json") if path.parent.name != "undisturbed"]  # fmt: skip
    kinds = {f"tailtap.{kind}/1" for kind in ("plan", "run", "evaluation", "tail", "trace")}
    assert {content["schema"] for content in stored} >= kinds
    folder = ExperimentFolder(experiment)
    runs = [folder.run(path.name) for path in sorted(folder.runs.iterdir())]
    for content in (*stored, json.loads(as_text(summarize(experiment, runs)))):
        fits(content)


def test_what_is_said_of_a_search(tmp_path: Path) -> None:
    bench, settings = Bench(sharp(40_000)), settings_of((0.0,), 1_000, 500_000)
    answers = bench.search("mlr", settings)
    bench.store(tmp_path, settings, answers)
    fits(json.loads((tmp_path / "search.json").read_text()))
    record = read(tmp_path / "search.json", SearchRecord)
    assert record == bench.record(settings, answers)
    latency = summarize(tmp_path, [])
    whole = SearchedRecord(**asdict(record), folder=str(tmp_path), latency=latency)
    fits(json.loads(as_text(whole)))
