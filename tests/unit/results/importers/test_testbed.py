"""A tree of the papers' testbed, with captures and samples of interrupts: each command on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from captures import compressed, write_many
from pos_trees import write_old_tree
from program import answer, in_process
from sampled import SAMPLES, write_sampled

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.runs.reader import finished_runs, read_runs
from tailtap.results.importers.importer import import_tree

PACKETS = 20_000
LOOPS = [
    {"pkt_sz": 96, "pkt_rate": 10_000, "kernel": kernel, "repeat": repeat}
    for kernel in ("rt", "vanilla")
    for repeat in (0, 1)
]


def write_captures(folder: Path, number: int, seed: int) -> None:
    """What the timestamper leaves of a run: both captures, compressed."""
    random = np.random.default_rng(seed)
    times = 10**9 + np.arange(PACKETS) * 100_000
    latency = 4_000 + (random.pareto(3, PACKETS) * 2_000).astype(np.int64)
    order = np.argsort(times + latency, kind="stable")
    for side, at, ids in (
        ("pre", times, np.arange(PACKETS)),
        ("post", (times + latency)[order], order),
    ):
        plain = folder / f"{side}.pcap"
        write_many(plain, at, ids)
        name = f"latencies-{side}_run{number}.pcap.zst"
        (folder / name).write_bytes(compressed(plain.read_bytes(), "zstd"))
        plain.unlink()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats on each of two kernels; of the first run interrupts were recorded, too."""
    tree = write_old_tree(tmp_path_factory.mktemp("pos") / "2020-10-07", LOOPS, ("timer", "dut"))
    for number in range(1, len(LOOPS)):
        write_captures(tree / "timer", number, number)
    sampled = tmp_path_factory.mktemp("sampled")
    write_sampled(sampled, PACKETS)
    for side, name in (("pre", "in.pcap"), ("post", "out.pcap")):
        packed = compressed((sampled / name).read_bytes(), "zstd")
        (tree / "timer" / f"latencies-{side}_run0.pcap.zst").write_bytes(packed)
    (tree / "dut/irqrecorder_run0.csv").write_bytes((sampled / SAMPLES).read_bytes())
    return tree


@pytest.fixture(scope="module")
def folder(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    found = import_tree(tree, folder)
    assert (found.runs, found.new, found.warnings) == (4, 4, [])
    return folder


def test_runs_are_run_folders_with_whole_evaluations(folder: Path, tree: Path) -> None:
    runs = finished_runs(folder)
    assert [run.variables["kernel"] for run in runs] == ["rt", "rt", "vanilla", "vanilla"]
    for number, run in enumerate(runs):
        sides = [tree / f"timer/latencies-{side}_run{number}.pcap.zst" for side in ("pre", "post")]
        assert run.stored.distribution[0].tolist() == evaluate(*sides).distribution[0].tolist()
        assert run.own_folder is not None and run.tail.packets == PACKETS
        assert (run.own_folder / "ingress.pcap.zst").samefile(sides[0])
    assert import_tree(tree, folder).new == 0
    assert len(read_runs(folder).runs) == 4


def test_the_models_of_repeats_are_summed_up_as_tables_4_and_5_do(folder: Path) -> None:
    content = answer("model", folder)
    assert [row["runs"] for row in content["summary"]] == [2, 2]
    assert len(content["runs"]) == 4 and content["warnings"] == []


def test_late_packets_are_held_against_the_recorded_interrupts(folder: Path) -> None:
    [run] = answer("interrupts", folder)["runs"]
    [found] = [row for row in run["counters"] if row["associated"]]
    assert found["name"].startswith("TLB_shootdowns")


@pytest.mark.parametrize(
    "command",
    [
        ("report", "{folder}", "--out", "{out}", "--no-figures"),
        ("compare", "{folder}"),
        ("verdict", "{folder}", "--require", "p50 < 1 s"),
        ("export", "{folder}", "--to", "papers", "--out", "{out}"),
        ("export", "{folder}", "--to", "pos", "--out", "{out}"),
        ("export", "{folder}", "--to", "parquet", "--packets", "--out", "{out}"),
        ("export", "{folder}", "--to", "hgrm", "--out", "{out}"),
        ("evaluate", "{folder}"),
        ("evaluate", "{folder}", "--trim", "100 ms", "--out", "{out}"),
    ],
    ids=lambda command: " ".join(command[:4:3] if command[0] == "export" else command[:1]),
)
def test_each_command_works_on_them(folder: Path, tmp_path: Path, command: list[str]) -> None:
    words = [word.format(folder=folder, out=tmp_path / "out") for word in command]
    made = in_process(*words)
    assert made.returncode == 0, made
