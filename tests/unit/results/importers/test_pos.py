"""Result trees of pos and RISE crates as experiments: variables, results, and what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import captures
import pytest
from experiment_folders import write_run
from pos_trees import (
    COMMAND,
    POS,
    RISE,
    needs_pos,
    needs_rise,
    write_crate,
    write_histograms,
    write_old_tree,
)
from published_trees import write_tree
from runs import rows as stored

from tailtap.analysis.runs.groups import configurations, floor_of
from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.runs.run import Run
from tailtap.analysis.verdict.requirement import parse_requirements
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.base.errors import InputError
from tailtap.records.printed import ImportRecord
from tailtap.results.exporters import export
from tailtap.results.importers.importer import import_tree

LOOPS = [{"pkt_sz": 64, "pkt_rate": rate} for rate in (100_000, 200_000, 300_000)]


def asked(run: Run) -> Mapping[str, Any]:
    """All parameters of an imported run."""
    assert run.record is not None
    return run.record.parameters.whole


def _import(tree: Path) -> tuple[ImportRecord, Path]:
    database = tree.parent / "results.duckdb"
    return import_tree(tree, database), database


def _told(found: ImportRecord, code: str) -> str:
    """The one warning of a code; there is no other."""
    assert [warning.code for warning in found.warnings] == [code], found.warnings
    assert "\n" not in found.warnings[0].message
    return found.warnings[0].message


def test_loop_variables_are_those_of_the_runs(tmp_path: Path) -> None:
    loops = [
        {"kernel": "rt", "pkt_rate": 1_234_567, "tc": {"loss": "10%"}, "repeat": repeat}
        for repeat in (0, 1)
    ]
    tree = write_old_tree(tmp_path / "2020-10-07", loops)
    with pytest.raises(InputError, match="this is a result tree of pos: `tailtap import"):
        read_runs(tree)
    write_histograms(tree / "loadgen", range(2))
    found, database = _import(tree)
    assert (found.runs, found.new, found.warnings) == (2, 2, [])
    runs = read_runs(database).runs
    assert [run.repeat for run in runs] == [1, 2]
    assert runs[0].variables == {
        "kernel": "rt",
        "traffic.rate": "1234567 pkt/s",
        "tc": "loss 10%",
    }
    assert runs[0].rate == 1_234_567 and asked(runs[0])["loop"] == loops[0]
    [group] = configurations(read_runs(database))
    assert [member.run.repeat for member in group.members] == [1, 2]


@pytest.mark.parametrize(
    "name", ["latencies-pre_run{}.pcap.zst", "latencies-pre.pcap_run{}.zst", "latencies-pre.pcap"]
)
def test_result_files_of_the_papers_are_the_results(tmp_path: Path, name: str) -> None:
    _, published = write_tree(tmp_path / "made", packets=300)
    tree = write_old_tree(tmp_path / "tree", LOOPS[:2])
    (tree / "timer/data").mkdir(parents=True)
    for number, rate in enumerate((10_000, 50_000)):
        for path in (published / "wire").glob(f"latencies-pre-rate{rate}-repeat0.*"):
            rest = path.name.partition(".pcap.zst")[2]
            folder = tree / "timer/data"
            if "{}" not in name:
                folder = tree / f"timer/data_run{number}"
                folder.mkdir(exist_ok=True)
            shutil.copy(path, folder / (name.format(number) + rest))
    found, database = _import(tree)
    assert (found.runs, found.warnings) == (2, [])
    import_tree(published / "wire", tmp_path / "published")
    for rate, run in zip((10_000, 50_000), read_runs(database).runs, strict=True):
        theirs = next(one for one in read_runs(tmp_path / "published").runs
                      if one.rate == rate and one.repeat == 1)  # fmt: skip
        assert run.evaluation and theirs.evaluation
        assert run.evaluation.curve == theirs.evaluation.curve
        assert run.evaluation.counted == theirs.evaluation.counted


def test_result_files_without_a_run_number_belong_to_their_rate_and_repeat(tmp_path: Path) -> None:
    _, published = write_tree(tmp_path / "made", packets=300)
    loops = [{"packetrate": rate, "repeat": repeat, "config": "a.yaml"}
             for rate in (10_000, 50_000) for repeat in (0, 1)]  # fmt: skip
    tree = write_old_tree(tmp_path / "tree", loops)
    shutil.copytree(published / "wire", tree / "evaluator")
    found, database = _import(tree)
    assert (found.runs, found.warnings) == (4, [])
    assert {
        (run.rate, run.repeat, run.variables["config"]) for run in read_runs(database).runs
    } == {(rate, repeat, "a.yaml") for rate in (10_000, 50_000) for repeat in (1, 2)}


def test_result_files_of_no_run_are_imported_as_they_are(tmp_path: Path) -> None:
    _, published = write_tree(tmp_path / "made", packets=300)
    tree = write_old_tree(tmp_path / "tree", [{"kernel": "rt"}])
    write_histograms(tree / "loadgen", range(1))
    shutil.copytree(published / "wire", tree / "evaluator")
    found, database = _import(tree)
    assert found.runs == 5
    assert sorted({run.experiment for run in read_runs(database).runs}) == ["tree"]
    assert stored(database, "SELECT count(*) FROM runs WHERE parameters->>'loop' IS NULL") == [(4,)]


def test_a_capture_without_the_other_is_told(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS[:1])
    (tree / "loadgen/latencies-pre_run0.pcap").write_bytes(captures.pcap([]))
    found, database = _import(tree)
    codes = {warning.code: warning.message for warning in found.warnings}
    assert "there is no latencies-post_run0.pcap beside it" in codes["file-missing"]
    [run] = read_runs(database).runs
    assert run.failure.startswith("no latencies in its files: latencies-pre_run0.pcap")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}', '{"a": "\\ud800"}', "{day: 2020-10-07}", "{1: 2}", "[1]", "x", "",
        '{"a": ' * 10_000, "\x00", "{a: &a [*a]}",
    ],
)  # fmt: skip
def test_what_no_database_holds_is_damage(tmp_path: Path, text: str) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS[:2], hosts=["loadgen"])
    write_histograms(tree / "loadgen", range(2))
    (tree / f"loadgen/{COMMAND}_run0.loop").write_text(text)
    found, _ = _import(tree)
    assert found.runs == 1
    assert f"{COMMAND}_run0.loop: skipped, it cannot be read" in _told(found, "file-damaged")


@pytest.mark.parametrize("text", ["", "1.5,3\n", "5,0\n", f"5,{10**40}\n", "-5,1\n", "5;1\n"])
def test_a_damaged_histogram_is_told(tmp_path: Path, text: str) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS[:1])
    (tree / "loadgen/histogram_run0.csv").write_text(text)
    found, database = _import(tree)
    assert "histogram_run0.csv: skipped, it cannot be read" in _told(found, "file-damaged")
    assert not read_runs(database).runs[0].evaluation


def test_a_tree_is_known_wherever_it_lies_and_files_that_change_replace(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", LOOPS)
    write_histograms(tree / "loadgen", range(3))
    _, database = _import(tree)
    shutil.copytree(tree, tmp_path / "moved/elsewhere")
    again = import_tree(tmp_path / "moved", database)
    assert (again.runs, again.new) == (3, 0)
    (tmp_path / "moved/elsewhere/loadgen/histogram_run0.csv").write_text("5,1\n")
    again = import_tree(tmp_path / "moved", database)
    assert (again.runs, again.new) == (3, 0)
    assert read_runs(database).runs[0].maximum == 5


def test_a_folder_of_trees_and_the_folder_of_a_host_are_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tree = write_old_tree(tmp_path / "trees" / name, LOOPS[:2])
        write_histograms(tree / "loadgen", range(2))
        (tree / "config/allocation.json").write_text(json.dumps({"id": name}))
    found = import_tree(tmp_path / "trees", tmp_path / "r")
    assert found.runs == 4 and [tree.name for tree in found.experiments] == ["one", "two"]
    shutil.rmtree(tmp_path / "trees/one/config")
    found = import_tree(tmp_path / "trees/one/loadgen", tmp_path / "host")
    assert (found.runs, found.experiments[0].hosts) == (2, ["loadgen"])
    assert read_runs(tmp_path / "host").runs[0].evaluation


def test_an_imported_wire_is_no_floor_of_own_runs(tmp_path: Path) -> None:
    variables = {"traffic.rate": "10 kpkt/s"}
    write_run(tmp_path / "theirs", 1, {"dut.platform": "wire", **variables}, packets=300)
    export(tmp_path / "theirs", "pos", tmp_path / "tree")
    write_run(tmp_path / "own", 1, {"dut.platform": "bare-metal", **variables}, packets=300)
    import_tree(tmp_path / "tree", tmp_path / "own/results.duckdb")
    groups = configurations(read_runs(tmp_path / "own"))
    assert [(group.wire, group.origin is None) for group in groups] == [
        (False, True),
        (True, False),
    ]
    assert floor_of(groups[0], groups) is None


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    loops = [{"implementation": name, "repetition": repetition}
             for name in ("quiche", "lsquic") for repetition in (1, 2, 3)]  # fmt: skip
    return write_crate(tmp_path / "crate", loops)


def test_a_crate_is_an_experiment_with_its_authors_and_hosts(crate: Path) -> None:
    (crate / "files/b/latencies").mkdir()
    write_histograms(crate / "files/b/latencies", range(1))
    found, database = _import(crate)
    assert found.runs == 6
    assert "5 of 6 runs hold no latencies" in _told(found, "no-latencies")
    [summary] = found.experiments
    assert summary.identifiers == ["https://doi.org/10.5281/zenodo.1"]
    runs = read_runs(database).runs
    assert {run.experiment for run in runs} == {"Three stacks"}
    assert [run.repeat for run in runs] == [1, 2, 3, 1, 2, 3]
    assert runs[0].maximum == 50_000 and runs[5].variables == {"implementation": "lsquic"}
    parameters = asked(runs[0])
    assert parameters["crate"]["authors"][0] == {"name": "Ada", "id": "https://orcid.org/1"}
    assert parameters["loop_runs"]["a"]["start"] == "2026-06-30T16:48:00.5"
    assert parameters["files"] == ["files/b/latencies/histogram_run0.csv"]
    [(text,)] = stored(database, "SELECT DISTINCT parameters->>'hosts' FROM runs")
    hosts = json.loads(text)
    assert hosts["a"]["role"] == "server" and hosts["a"]["image"] == "debian"
    assert hosts["b"]["hardware"]["processor"] == [{"model": "Xeon", "cores": 4}]
    assert hosts["b"]["topology"]["other"] == [{"inf_a": "enp2s0f0", "type": "link"}]
    assert "5022D077" not in text and "a0:36" not in text


@pytest.mark.parametrize("content", ['{"@graph": [{"@type": "LoopRun"', '{"LoopRun": 1}'])
def test_a_tree_with_a_damaged_crate_is_read_without_it(crate: Path, content: str) -> None:
    (crate / "ro-crate-metadata.json").write_text(content)
    found, database = _import(crate)
    assert found.runs == 6 and found.experiments[0].kind == "result tree of pos"
    assert read_runs(database).runs[0].experiment == "crate"
    [message] = [w.message for w in found.warnings if w.code == "file-damaged"]
    assert "ro-crate-metadata.json: skipped, it cannot be read" in message


def test_what_holds_no_run_is_one_line(tmp_path: Path) -> None:
    tree = write_old_tree(tmp_path / "tree", [])
    with pytest.raises(InputError, match=r"a result tree of pos without a run: copy .*\.loop"):
        _import(tree)
    (tree / f"loadgen/{COMMAND}_run0.loop").write_text("[1]")
    with pytest.raises(InputError, match=r"run0.loop: skipped.*nothing of it can be imported"):
        _import(tree)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/ro-crate-metadata.json").write_text('{"@graph": []}')
    with pytest.raises(InputError, match="no result tree of pos"):
        _import(tmp_path / "notes")
    assert not (tmp_path / "results.duckdb").exists()


@needs_pos
def test_the_published_tree_is_read(tmp_path: Path) -> None:
    found = import_tree(POS, tmp_path / "r")
    assert found.runs == 1
    message = _told(found, "no-latencies")
    assert "1 of 1 runs hold no latencies" in message and "throughput_run003.log" in message
    [run] = read_runs(tmp_path / "r").runs
    assert run.variables == {"pkt_sz": "64", "traffic.rate": "400 kpkt/s"}
    assert run.evaluation is not None
    assert run.evaluation.counted == {"ingress": 12_000_000, "egress": 11_982_780, "lost": 17_220}
    assert found.experiments[0].hosts == ["intelexp1", "tether"]
    required = parse_requirements(["loss == 0", "p99 < 1 ms"])
    [lost, late] = judge_runs([tmp_path / "r"], required).verdicts
    assert (lost.answer, late.answer) == ("not shown", "not shown")
    assert "12,000,000 packets were sent and 11,982,780 received" in lost.reason
    assert late.reason == "its files hold no latencies"


@needs_rise
def test_the_published_crate_is_read(tmp_path: Path) -> None:
    found = import_tree(RISE, tmp_path / "r")
    assert (found.runs, found.new) == (72, 72)
    assert "72 of 72 runs hold no latencies" in _told(found, "no-latencies")
    [summary] = found.experiments
    assert (summary.loop_runs, summary.hosts) == (144, ["tallinn", "tartu"])
    assert summary.authors == ["Kilian Warmuth", "Marcel Kempf", "Eric Hauser"]
    assert summary.licence == "CC-BY-SA-4.0"
    assert summary.name.startswith("RISE Demonstration Experiment 1")
    runs = read_runs(tmp_path / "r").runs
    # Every run stands beside what the experiment's own evaluation says of it.
    [results] = RISE.rglob("results.json")
    for run, wanted in zip(runs, json.loads(results.read_text())["runs"], strict=True):
        assert run.slug.endswith(wanted["run"]) and run.repeat == wanted["repetition"]
        assert run.variables == {
            "filesize": str(wanted["loop_filesize"]),
            "implementation": wanted["loop_implementation"],
            "bandwidth_limit": wanted["loop_bandwidth_limit"],
        }
        assert set(asked(run)["loop_runs"]) == {"tallinn", "tartu"}
        assert run.failure.startswith("no latencies in its files")
    assert import_tree(RISE, tmp_path / "r").new == 0
