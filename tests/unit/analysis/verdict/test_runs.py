"""Many runs: repeats answer together, and what was not measured shows nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from experiment_folders import write_experiment, write_run
from junitparser import JUnitXml
from made_records import rewrite
from published_trees import write_mixed

from tailtap.analysis.verdict.junit import write_junit
from tailtap.analysis.verdict.requirement import parse_requirements
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.base.errors import InputError, MachineError

REQUIRE = 'name: load\nrequire: ["p99 < 1 ms", profile urllc-5g]\n'


def required(*texts: str) -> Any:
    return parse_requirements(texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten finished runs in four configurations, and a failed one."""
    return write_experiment(tmp_path_factory.mktemp("experiment"))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_the_worst_repeat_decides(folder: Path) -> None:
    found = judge_runs([folder], required("p99.9 < 1 ms"), runs=["bare-metal, 10 kpkt/s"])
    (row,) = found.verdicts
    late = {one.run: one.figures["late"] for one in row.runs}
    assert list(late) == [f"00{n}-bare-metal-10000-{n - 4}" for n in (5, 6, 7)]
    assert row.answer == found.answer
    ranks = ["holds", "not shown", "violated"]
    assert ranks.index(row.answer) == max(ranks.index(one.answer) for one in row.runs)


def test_among_equal_answers_the_nearest_to_the_limit_decides(folder: Path) -> None:
    found = judge_runs([folder], required("max < 10 s", "loss == 0"), runs=["bare-metal"])
    for row in found.verdicts:
        figure = "upper" if row.answer == "holds" else "late"
        assert next(one.figures[figure] for one in row.runs if one.run == row.decided_by) == max(
            one.figures[figure] for one in row.runs
        )


def test_failed_runs_show_nothing(folder: Path) -> None:
    found = judge_runs([folder], required("median < 1 s"))
    rows = {row.configuration: row for row in found.verdicts}
    assert len(rows) == 5
    failed = rows["container · 10 kpkt/s"]
    assert failed.answer == found.answer == "not shown"
    assert failed.reason == "no result: lxc-start is not installed: apt install lxc"


def test_an_invalid_run_shows_nothing(copy: Path) -> None:
    slip = [{"code": "generator-slip", "message": "1 % of the packets left late"}]
    rewrite(copy / "runs/001-wire-10000-1/run.json", valid=False, warnings=slip)
    (row,) = judge_runs([copy], required("median < 1 s"), runs=["wire, 10 kpkt/s"]).verdicts
    assert [one.answer for one in row.runs] == ["not shown", "holds"]
    assert row.decided_by == "001-wire-10000-1"
    assert row.reason.startswith("the run is invalid (generator-slip): ")


def test_runs_that_were_planned_and_never_made_show_nothing(copy: Path) -> None:
    variables = {"dut.platform": "wire", "traffic.rate": "10 kpkt/s"}
    row = {"repeat": 3, "parameters": {"traffic": {"rate": 10_000}}, "variables": variables}
    rows = [{"number": n, "slug": f"{n:03}-wire", **row} for n in (1, 12)]
    (copy / "plan.json").write_text(json.dumps({"name": "made", "runs": rows}))
    (found,) = judge_runs([copy], required("median < 1 s"), runs=["wire, 10 kpkt/s"]).verdicts
    assert [one.answer for one in found.runs] == ["holds", "holds", "not shown"]
    assert found.decided_by == "012-wire" and "never made" in found.reason
    # One run alone is judged alone.
    one = copy / "runs/001-wire-10000-1"
    assert judge_runs([one], required("median < 1 s")).answer == "holds"


def test_run_folders_of_one_experiment_are_repeats(folder: Path, copy: Path) -> None:
    runs = [folder / "runs/001-wire-10000-1", folder / "runs/002-wire-10000-2"]
    (row,) = judge_runs([*runs, runs[0]], required("median < 1 s")).verdicts
    assert len(row.runs) == 2
    both = judge_runs([runs[0], copy / "runs/001-wire-10000-1"], required("median < 1 s"))
    assert [len(row.runs) for row in both.verdicts] == [1, 1]


def test_bare_evaluations_are_no_repeats_of_one_another(folder: Path) -> None:
    paths = [folder / f"runs/00{n}-wire-10000-{n}/evaluation" for n in (1, 2)]
    found = judge_runs(paths, required("median < 1 s", "return_level(1 s) < 1 s"))
    assert [len(row.runs) for row in found.verdicts] == [1, 1, 1, 1]
    assert found.verdicts[0].answer == "holds"


def test_what_the_experiment_file_requires(copy: Path) -> None:
    with pytest.raises(InputError, match="nothing is required: give --require"):
        judge_runs([copy])
    (copy / "experiment.yaml").write_text(REQUIRE)
    for path in (copy, copy / "runs/001-wire-10000-1"):
        found = judge_runs([path])
        texts = {row.requirement for row in found.verdicts}
        assert texts == {"p99 < 1 ms", "reliability(1 ms) >= 99.999 %"}
    # The command line takes its place.
    found = judge_runs([copy], required("loss == 0"))
    assert {row.requirement for row in found.verdicts} == {"loss == 0"}
    (copy / "experiment.yaml").write_text('name: load\nrequire: ["p99 < 1"]\n')
    with pytest.raises(InputError, match=r"experiment.yaml:2: require: 'p99 < 1': 1 has no unit"):
        judge_runs([copy])


def test_imported_runs_are_judged_when_asked_for(tmp_path: Path) -> None:
    mixed = write_mixed(tmp_path)
    own = judge_runs([mixed], required("median < 1 s"))
    assert [row.configuration for row in own.verdicts] == ["wire", "bare-metal"]
    texts = ("median < 1 s", "p99.9 < 10 ms", "mean < 1 s", "return_level(1 h) < 1 s")
    found = judge_runs([mixed], required(*texts), runs=["imported"])
    answers: dict[str, dict[str, str]] = {}
    for row in found.verdicts:
        name = row.configuration.split(" ")[0]
        answers.setdefault(name, {})[row.requirement] = row.answer
        assert row.answer == "holds" or row.reason
    assert [answers["whole"][text] for text in texts] == ["holds", "holds", *["not shown"] * 2]
    assert answers["uncounted"]["median < 1 s"] == "not shown"
    assert answers["worst"]["mean < 1 s"] == "not shown"


def test_imported_runs_are_judged_like_their_originals(tmp_path: Path) -> None:
    """What published percentiles bound never contradicts what all packets say."""
    mixed = write_mixed(tmp_path)
    limits = ("5 us", "10 us", "100 us", "500 us", "1 ms")
    wanted = required(*(f"p{p} < {limit}" for p in (50, 99, 99.9) for limit in limits))
    own = judge_runs([mixed], wanted, runs=["own, bare-metal"])
    imported = judge_runs([mixed], wanted, runs=["imported, whole"])
    pairs = [(a.answer, b.answer) for a, b in zip(own.verdicts, imported.verdicts, strict=True)]
    assert all(two in (one, "not shown") for one, two in pairs)
    assert {"holds", "violated"} <= {two for _, two in pairs}


def test_junit(folder: Path, tmp_path: Path) -> None:
    wanted = required("p99 < 1 s", "loss == 0", "profile urllc-5g")
    found = judge_runs([folder], wanted, runs=["10 kpkt/s"])
    for allowed in (False, True):
        file = tmp_path / "verdict.xml"
        write_junit(found, file, allow_not_shown=allowed)
        root = ElementTree.parse(file).getroot()
        cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
        assert len(cases) == len(found.verdicts) == 9
        listed = [row.answer for row in found.verdicts]
        no, unshown = listed.count("violated"), listed.count("not shown")
        assert no and unshown
        assert int(root.get("failures", "")) == (no if allowed else no + unshown)
        assert int(root.get("skipped", "")) == (unshown if allowed else 0)
        suites = [suite.get("name") for suite in root.iter("testsuite")]
        assert suites == ["wire · 10 kpkt/s", "bare-metal · 10 kpkt/s", "container · 10 kpkt/s"]
        lost = cases["bare-metal · 10 kpkt/s", "loss == 0"]
        failure = lost.find("failure")
        assert failure is not None and failure.get("type") == "violated"
        assert "12 of 20,000 packets lost" in str(failure.get("message"))
        facts = {fact.get("name"): fact.get("value") for fact in lost.iter("property")}
        assert facts["answer"] == "violated" and facts["005-bare-metal-10000-1: late"] == "12"
        JUnitXml.fromfile(str(file))
    with pytest.raises(MachineError, match="cannot write"):
        write_junit(found, tmp_path / "missing" / "verdict.xml")


def test_junit_holds_any_name(tmp_path: Path) -> None:
    write_run(tmp_path / "odd", 1, {"traffic.external": "send \x07 <&>\n"})
    file = tmp_path / "verdict.xml"
    write_junit(judge_runs([tmp_path / "odd"], required("loss == 0")), file)
    (suite,) = ElementTree.parse(file).getroot().iter("testsuite")
    assert suite.get("name") == "send \N{REPLACEMENT CHARACTER} <&>\N{REPLACEMENT CHARACTER}"
