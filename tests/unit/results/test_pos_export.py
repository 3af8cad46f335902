"""Result trees of pos that we write: read by published scripts' ways, and by ourselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_folders import traffic as made_traffic
from experiment_folders import write_evaluation, write_experiment, write_run
from pos_scripts import (
    histograms_of_artifacts,
    loops_of_artifacts,
    page_of_artifacts,
    plots_of_limbo,
    throughput_of_artifacts,
)

from tailtap.analysis.evaluation.percentiles import papers
from tailtap.analysis.runs.reader import finished_runs, read_runs
from tailtap.results.exporters import export
from tailtap.results.importers.importer import import_tree
from tests.simulation.folders import write_run as made_run


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("pos") / "experiment", packets=3_000)


@pytest.fixture(scope="module")
def tree(experiment: Path) -> Path:
    found = export(experiment, "pos")
    assert found.runs == 10 and len(set(found.written)) == len(found.written)
    assert all(Path(path).is_file() for path in found.written)
    return experiment / "export/pos"


def test_every_host_has_the_loop_variables_of_every_run(experiment: Path, tree: Path) -> None:
    runs = finished_runs(experiment)
    assert sorted(path.name for path in tree.iterdir()) == ["config", "dut", "loadgen", "timer"]
    for host in ("dut", "loadgen", "timer"):
        found = loops_of_artifacts(tree / host)
        assert list(found) == list(range(10))
        for run, loop in zip(runs, found.values(), strict=True):
            assert loop["pkt_rate"] == run.rate and loop["repeat"] == run.repeat - 1
            assert loop["pkt_sz"] == 60  # of a frame of 64 bytes, without its check sequence
            assert {name: loop[name] for name in run.variables} == run.variables
            # The first variable that a plot is not grouped by is its x axis.
            first = next(name for name in loop if name not in ("pkt_sz", "dut.platform"))
            assert first == ("pkt_rate")
    assert {path.read_text() for path in tree.rglob("*.status")} == {"finished"}


def test_result_files_are_found_by_the_number_of_their_run(experiment: Path, tree: Path) -> None:
    for kind, columns in (
        ("percentiles", ["percentile", "value"]),
        ("hist", ["latency_bucket", "count"]),
        ("worst", ["latency", "prets", "postts"]),
        ("jitterpre", ["bucket", "count"]),
        ("packetratepre", ["ts", "count"]),
    ):
        plots = plots_of_limbo(tree / "timer", kind)
        assert len(plots) == 10, kind
        assert all(set(columns) <= set(rows[0]) for _, rows in plots), kind
    wanted = {}
    for run in finished_runs(experiment):
        key = (run.rate, run.variables["dut.platform"], run.repeat - 1)
        wanted[key] = [(row.p, row.value) for row in run.stored.percentiles(papers())]
    for loop, rows in plots_of_limbo(tree / "timer", "percentiles"):
        key = (loop["pkt_rate"], loop["dut.platform"], loop["repeat"])
        assert [(float(r["percentile"]), int(r["value"])) for r in rows] == wanted.pop(key)
    assert not wanted


def test_histograms_are_the_exact_latencies(experiment: Path, tree: Path) -> None:
    found = histograms_of_artifacts(tree / "timer")
    for run, histogram in zip(finished_runs(experiment), found.values(), strict=True):
        latencies = np.repeat(list(histogram), list(histogram.values()))
        assert latencies.size == run.stored.counts.matched
        nearest = np.quantile(latencies, [0.5, 0.99, 0.999], method="inverted_cdf")
        rows = run.stored.percentiles([0.5, 0.99, 0.999])
        assert [int(value) for value in nearest] == [row.value for row in rows]


def test_logs_have_the_packets_of_every_second(experiment: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "x", 1, {"dut.platform": "bare-metal"}, packets=25_000, rate=10_000)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    [log] = throughput_of_artifacts(tmp_path / "tree/loadgen").values()
    [run] = finished_runs(tmp_path / "x")
    for direction, side in (("TX", "ingress"), ("RX", "egress")):
        packets = run.stored.rates(side)[1].tolist()
        one = log[direction]
        assert [round(mpps * 1e6) for mpps in one["mpps"]] == packets
        assert one["total"] == sum(packets)
        assert one["mean"][0] == pytest.approx(np.mean(packets) / 1e6, abs=1e-6)
        assert one["mbit"] == pytest.approx([n * 64 * 8 / 1e6 for n in packets], abs=0.01)
        assert one["framed"] == pytest.approx([n * 84 * 8 / 1e6 for n in packets], abs=0.01)


def test_a_second_without_packets_is_a_line(tmp_path: Path) -> None:
    made = made_traffic("wire", 1_000, 3_000, 1)
    for times in (made.sent, made.left):
        times[2_000:] += 2_000_000_000
    made_run(tmp_path / "x/runs/001-wire", 1, made, rate=1_000)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    [log] = throughput_of_artifacts(tmp_path / "tree/loadgen").values()
    assert 0.0 in log["TX"]["mpps"] and log["TX"]["total"] == 3_000


def test_a_published_page_finds_its_parts(experiment: Path, tree: Path) -> None:
    name, loop, own = page_of_artifacts(tree, "loadgen")
    assert name == "tailtap_260301_140100_000000" and own == {"roles": ["generator"]}
    assert loop["pkt_rate"] == [10_000, 50_000] and loop["dut.platform"] == ["wire", "bare-metal"]
    [variables] = tree.glob("config/*_variables.json")
    assert json.loads(variables.read_text())["loop"] == loop


def test_failed_repeats_keep_their_numbers(tmp_path: Path) -> None:
    for number, status in enumerate(("done", "failed", "done"), 1):
        write_run(tmp_path / "x", number, {}, repeat=number, packets=300, status=status)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    assert list(loops_of_artifacts(tmp_path / "tree/dut")) == [0, 2]


def test_values_that_are_no_text_come_back_as_words(tmp_path: Path) -> None:
    variables: dict[str, Any] = {
        "dut.forwarder": {"suricata": {"rules": "many"}},
        "dut.cpus": [1, 2],
        "traffic.size": "64 B",
    }
    write_run(tmp_path / "x", 1, variables, packets=300)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    [loop] = loops_of_artifacts(tmp_path / "tree/dut").values()
    assert loop["dut.cpus"] == [1, 2] and loop["traffic.size"] == "64 B"
    import_tree(tmp_path / "tree", tmp_path / "r")
    [ours], [theirs] = finished_runs(tmp_path / "x"), read_runs(tmp_path / "r").runs
    assert ours.variables == theirs.variables


def test_hosts_are_those_of_the_testbed(tmp_path: Path) -> None:
    write_run(tmp_path / "x", 1, {"dut.platform": "wire"}, packets=300)
    (tmp_path / "x/testbed.yaml").write_text(
        "hosts: {tester: {ssh: root@a}, dut7: {ssh: root@b}}\ncables: []\n"
        "roles: {generator: tester, timestamper: tester, dut: dut7}\n"
    )
    export(tmp_path / "x", "pos", tmp_path / "tree")
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == [
        "config",
        "dut7",
        "tester",
    ]
    assert page_of_artifacts(tmp_path / "tree", "tester")[2] == {
        "roles": ["generator", "timestamper"]
    }
    assert len(plots_of_limbo(tmp_path / "tree/tester", "percentiles")) == 1
    assert throughput_of_artifacts(tmp_path / "tree/tester")


def test_a_second_export_replaces_the_first(experiment: Path, tree: Path, tmp_path: Path) -> None:
    first = export(experiment, "pos", tmp_path / "tree").written
    assert export(experiment, "pos", tmp_path / "tree").written == first
    assert sorted(map(Path, first)) == sorted(p for p in (tmp_path / "tree").rglob("*.*"))


def test_a_bare_evaluation_is_a_tree_of_one_run(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "evaluation", made_traffic("wire", 10_000, 3_000, 1))
    export(tmp_path / "evaluation", "pos", tmp_path / "tree")
    assert list(loops_of_artifacts(tmp_path / "tree/timer").values()) == [{"repeat": 0}]
    assert not list((tmp_path / "tree").rglob("throughput*"))  # nobody says how large packets are
    import_tree(tmp_path / "tree", tmp_path / "r")
    [run] = read_runs(tmp_path / "r").runs
    assert run.experiment == "evaluation" and run.evaluation and run.evaluation.packets
