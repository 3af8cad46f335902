"""What ran where: on recorded machines and made-up ones, from what runs stored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from experiment_folders import write_run
from placed_runs import large, placed_run, recorded
from recorded_machines import NAMES

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.base.units import parse_cpus
from tailtap.show.report import write_report
from tailtap.show.report.machine import Placed, Row, placed

PLACED: dict[str, dict[str, Any]] = {
    "intel-two-sockets": {"dut": [1, 2], "generator": 6, "taps": [0, 3]},
    "amd-epyc-four-nodes": {"dut": [17, 18], "generator": 20, "taps": [16]},
    "raspberry-pi-4": {"dut": [2], "generator": 1, "taps": [0, 3]},
    "cloud-vm": {"dut": [1], "generator": 0, "taps": [0]},
}


def every(folder: Path) -> list[Placed]:
    return placed(configurations(load_experiment(folder)))


def only(folder: Path) -> Placed:
    [found] = every(folder)
    return found


@pytest.mark.parametrize("name", [*NAMES, "large"])
def test_every_node_and_card_of_a_machine_is_told(tmp_path: Path, name: str) -> None:
    there = large() if name == "large" else recorded(name, tmp_path / "machine")
    where = PLACED.get(name, {"dut": [2, 3], "generator": 40, "taps": [0]})
    placed_run(tmp_path, 1, there, **where)
    found = only(tmp_path)
    assert list(found.machine.cpus) == list(parse_cpus(there["cpu"]["online"]))
    parts = {row.name.partition(",")[0]: row for row in found.machine.parts}
    for node, cpus in found.machine.nodes.items():
        assert parse_cpus(parts[f"NUMA node {node}"].cpus) == cpus
    cards = [name.split()[1] for name in parts if name.startswith("card ")]
    assert cards == [nic["name"] for nic in there["nics"]]
    rows = {row.name: row.cpus for row in found.rows}
    assert rows["DuT"] == rows["receives at tt-in"]
    assert parse_cpus(rows["DuT"]) == tuple(where["dut"])


def test_two_sockets_are_told_with_their_caches_and_cards(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, recorded("intel-two-sockets", tmp_path / "machine"),
               **PLACED["intel-two-sockets"])  # fmt: skip
    found = only(tmp_path)
    parts = [(row.name, row.nodes) for row in found.machine.parts]
    assert parts == [
        ("socket 0", "0"), ("socket 1", "1"),
        ("NUMA node 0, 1024 MiB", "0"), ("NUMA node 1, 2048 MiB", "1"),
        ("L3 cache, 15360K", "0"), ("L3 cache, 15360K", "1"),
        ("card eno1", "0"), ("card ens1f0", "1"),
    ]  # fmt: skip
    assert found.rows == (
        Row("generator", "6", "1"),
        Row("taps and tailtap", "0,3", "0"),
        Row("DuT", "1-2", "0"),
        Row("receives at tt-in", "1-2", "0"),
    )
    assert [words.partition(":")[0] for words in found.marked] == [
        "isolated from the scheduler (isolcpus)",
        "no tick while one task runs (nohz_full)",
    ]


def test_every_crossing_is_named(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, recorded("intel-two-sockets", tmp_path / "machine"),
               **PLACED["intel-two-sockets"])  # fmt: skip
    found = only(tmp_path)
    far = "(distance 21; 10 is local)"
    sender = "generator on CPU 6 of NUMA node 1"
    assert found.crossings == (
        f"packets: {sender} → receives at tt-in on CPU 1-2 of NUMA node 0 {far}",
        f"stamps: {sender} → taps and tailtap on CPU 0,3 of NUMA node 0 {far}",
    )


def test_cards_on_another_node_are_crossings_and_cables_are_none(tmp_path: Path) -> None:
    ports = (("ens1f0", "ens5f0"), ("ens5f1", "ens1f1"))
    placed_run(tmp_path, 1, large(), dut=[2, 3], generator=4, taps=[0], ports=ports)
    found = only(tmp_path)
    far = "(distance 21; 10 is local)"
    assert found.crossings == (
        f"packets: generator on CPU 4 of NUMA node 0 → card ens5f1 (tt-a1) of NUMA node 1 {far}",
        f"packets: DuT on CPU 2-3 of NUMA node 0 → card ens5f0 (tt-out) of NUMA node 1 {far}",
    )


def test_a_device_on_two_nodes_is_one(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, large(), dut=[31, 32], generator=33, taps=[0, *range(2, 31), 34])
    found = only(tmp_path)
    assert "DuT is on NUMA nodes 0-1 (CPU 31-32)" in found.crossings
    assert "taps and tailtap may run on NUMA nodes 0-1 (CPU 0,2-30,34)" in found.crossings


def test_one_node_has_no_crossing(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, recorded("cloud-vm", tmp_path / "machine"), **PLACED["cloud-vm"])
    found = only(tmp_path)
    assert found.crossings == ()
    assert found.shared == ("CPU 0: generator and taps and tailtap share it",)


def test_who_shares_a_core_is_named(tmp_path: Path) -> None:
    there = recorded("amd-epyc-four-nodes", tmp_path / "machine")
    placed_run(tmp_path, 1, there, dut=[17, 18, 50], generator=49, taps=[0])
    assert only(tmp_path).shared == (
        "DuT on CPU 17 shares its core with CPU 49: generator",
        "DuT on both threads of a core: CPU 18,50",
    )


def test_runs_of_one_placement_stand_together(tmp_path: Path) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    for number, (platform, dut) in enumerate(
        itertools.product(("wire", "bare-metal", "container"), (0, 1)), 1
    ):
        placed_run(tmp_path, number, {**there, "topology": {**there["topology"],
                   "node_memory": {"0": number << 30}}}, platform=platform,
                   variables={"dut.cpus": f"[{dut}]"}, dut=[dut], generator=1 - dut,
                   taps=[1 - dut])  # fmt: skip
    one, other = every(tmp_path)
    assert one.runs == ("wire · [0]", "bare-metal · [0]", "container · [0]")
    assert other.runs == ("wire · [1]", "bare-metal · [1]", "container · [1]")
    assert one.title.endswith("generator on 1, taps and tailtap on 1, DuT on 0")


def test_neighbours_are_told(tmp_path: Path) -> None:
    there = recorded("intel-two-sockets", tmp_path / "machine")
    did = {"reached": 1, "done": 9, "cpu_ns": 9, "elapsed_ns": 9}
    noise = {"batch": {"kind": "cpu", "unit": "share", "asked": 1, "cpus": {"1": did, "8": did}}}
    for number, neighbours in enumerate(({}, noise), 1):
        placed_run(tmp_path, number, there, variables={"dut.neighbours": str(number)},
                   dut=[1, 2], generator=6, taps=[3], neighbours=neighbours)  # fmt: skip
    without, found = every(tmp_path)
    assert (without.shared, [row for row in without.rows if row.name == "batch (cpu)"]) == ((), [])
    assert Row("batch (cpu)", "1,8", "0-1") in found.rows
    assert found.shared == ("CPU 1: DuT and batch (cpu) share it",)
    assert (without.crossings, without.runs != found.runs) == (found.crossings, True)


def test_where_packets_are_received_is_what_the_run_stored(tmp_path: Path) -> None:
    """It may be other CPUs than the device's, or none that was chosen; new keys do no harm."""
    there = recorded("cloud-vm", tmp_path / "machine")
    ports = {"tt-in": {"cpus": [0], "new": 1}, "tt-out": {"cpus": []}}
    placed_run(tmp_path, 1, there, dut=[1], generator=0, taps=[0],
               placement={"ports": ports, "crossings": []})  # fmt: skip
    [found] = every(tmp_path)
    rows = {row.name: row.cpus for row in found.rows}
    assert rows["receives at tt-in"] == "0"
    assert rows["receives at tt-out"] == "wherever the kernel does it"
    assert found.shared == ("CPU 0: generator, taps and tailtap and receives at tt-in share it",)


def test_the_generators_machine_stands_alone(tmp_path: Path) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    stations = {"generator": {"environment": large(), "tuning": None}}
    placed_run(tmp_path, 1, there, dut=[1], generator=40, taps=[41], stations=stations)
    device, sender = every(tmp_path)
    assert [row.name for row in device.rows] == ["DuT", "receives at tt-in"]
    assert [row.name for row in sender.rows] == ["generator", "taps and tailtap"]
    assert sender.machine.name == "large"


def test_runs_that_say_nothing_of_cores_have_no_placement(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "bare-metal"}, packets=2_000)
    assert every(tmp_path) == []
    page = write_report(tmp_path, figures=False).page.read_text("utf-8")
    assert 'id="where"' not in page
    assert 'id="audit"' not in page


def test_nodes_that_share_a_cpu_are_named(tmp_path: Path) -> None:
    def node(name: str, cpu: int) -> dict[str, Any]:
        return {"name": name, "task": "dut", "kind": "namespace", "cpus": [cpu]}

    path = ["gen:tt-gen", "tap:tt-b", "a:tt-in", "a:tt-out", "b:tt-in", "b:tt-out",
            "c:tt-in", "c:tt-out"]  # fmt: skip
    placed_run(
        tmp_path, 1, recorded("intel-two-sockets", tmp_path / "machine"),
        **{**PLACED["intel-two-sockets"], "generator": 3},
        nodes=[node("a", 1), node("b", 8), node("c", 8)],
        flows=[{"name": "forward", "path": path, "stamped": []}],
        placement={"ports": {f"{name}:tt-in": {"cpus": [cpu]}
                             for name, cpu in (("a", 1), ("b", 8), ("c", 8))}},
    )  # fmt: skip
    found = only(tmp_path)
    assert [(row.name, row.cpus) for row in found.rows] == [
        ("generator", "3"),
        ("taps and tailtap", "0,3"),
        ("a", "1"),
        ("b and c", "8"),
        ("receives at a:tt-in", "1"),
        ("receives at b:tt-in and c:tt-in", "8"),
    ]
    assert "CPU 8: b and c share it" in found.shared
    assert not any(sentence.startswith("CPU 1:") for sentence in found.shared)
    ways = [sentence for sentence in found.crossings if sentence.startswith("packets: a ")]
    assert len(ways) == 1
    assert "receives at b:tt-in and c:tt-in on CPU 8 of NUMA node 1" in ways[0]
