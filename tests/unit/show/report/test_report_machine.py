"""The map of the machine: recorded machines and made-up ones, drawn from what runs stored."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from experiment_folders import write_experiment, write_run
from pages import visible
from placed_runs import large, placed_run, recorded
from recorded_machines import NAMES

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.base.cpulist import parse_cpus
from tailtap.records.machine import Environment
from tailtap.records.record import parsed
from tailtap.show.report import write_report
from tailtap.show.report.machine import Map, maps_of
from tailtap.show.report.machine.drawing import WIDTH, Cell, Drawing, Frame
from tailtap.show.report.machine.maps import DRAWN
from tailtap.show.report.machine.tree import Box, machine_of

PLACED: dict[str, dict[str, Any]] = {
    "intel-two-sockets": {"dut": [1, 2], "generator": 6, "taps": [0, 3]},
    "amd-epyc-four-nodes": {"dut": [17, 18], "generator": 20, "taps": [16]},
    "raspberry-pi-4": {"dut": [2], "generator": 1, "taps": [0, 3]},
    "cloud-vm": {"dut": [1], "generator": 0, "taps": [0]},
}


def maps(folder: Path) -> list[Map]:
    return maps_of(configurations(load_experiment(folder)))


def drawn(folder: Path) -> tuple[Map, Drawing]:
    [found] = maps(folder)
    assert found.drawing is not None
    return found, found.drawing


def inside(part: Any, around: Any) -> bool:
    return bool(
        part.x >= around.x
        and part.y >= around.y
        and part.x + part.width <= around.x + around.width
        and part.y + part.height <= around.y + around.height
    )


def apart(one: Any, other: Any) -> bool:
    return bool(
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


def titled(drawing: Drawing, title: str) -> Frame:
    [found] = [frame for frame in drawing.frames if title in frame.title]
    return found


def cell_of(drawing: Drawing, cpu: int) -> Cell:
    [found] = [cell for cell in drawing.cells if cell.cpu == cpu]
    return found


@pytest.mark.parametrize("name", [*NAMES, "large"])
def test_every_cpu_and_card_has_its_place_and_nothing_overlaps(tmp_path: Path, name: str) -> None:
    there = large() if name == "large" else recorded(name, tmp_path / "machine")
    where = PLACED.get(name, {"dut": [2, 3], "generator": 40, "taps": [0]})
    placed_run(tmp_path, 1, there, **where)
    found, drawing = drawn(tmp_path)
    assert [cell.cpu for cell in sorted(drawing.cells, key=lambda cell: cell.cpu)] == list(
        parse_cpus(there["cpu"]["online"])
    )
    assert {chip.lines[0].split()[0] for chip in drawing.chips} == {
        nic["name"] for nic in there["nics"]
    }
    parts = [*drawing.cells, *drawing.chips]
    assert all(apart(one, other) for one, other in itertools.combinations(parts, 2))
    for one, other in itertools.combinations(drawing.frames, 2):
        assert apart(one, other) or inside(one, other) or inside(other, one)
    whole = Frame(0, 0, drawing.width, drawing.height, "", core=False)
    assert all(inside(part, whole) for part in (*parts, *drawing.frames))
    assert drawing.width <= WIDTH + 2
    # Each CPU is in the frame of its node.
    for node, cpus in found.machine.nodes.items():
        frame = titled(drawing, f"NUMA node {node}")
        assert all(inside(cell, frame) == (cell.cpu in cpus) for cell in drawing.cells)
    for cpu in where["dut"]:
        assert [kind for kind, *_ in cell_of(drawing, cpu).stripes] == ["dut", "receive"]


def test_the_two_sockets_are_told_with_their_caches_and_cards(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, recorded("intel-two-sockets", tmp_path / "machine"),
               **PLACED["intel-two-sockets"])  # fmt: skip
    found, drawing = drawn(tmp_path)
    assert [frame.title for frame in drawing.frames] == [
        "Socket 0 · NUMA node 0, 1 GiB · L3 15 MiB",
        "Socket 1 · NUMA node 1, 2 GiB · L3 15 MiB",
    ]
    for chip, node in zip(drawing.chips, drawing.frames, strict=True):
        assert inside(chip, node)
    assert [chip.lines[0] for chip in drawing.chips] == ["eno1", "ens1f0"]
    assert found.machine.each_core == ("L1d 32 KiB", "L1i 32 KiB", "L2 256 KiB")
    assert [(row.letter, row.name, row.cpus, row.nodes) for row in found.rows] == [
        ("G", "generator", "6", "1"),
        ("T", "taps and tailtap", "0,3", "0"),
        ("D", "DuT", "1-2", "0"),
        ("R", "receives at tt-in", "1-2", "0"),
    ]
    assert cell_of(drawing, 1).words == ("DuT", "receives at tt-in")
    assert cell_of(drawing, 1).looks == "isolated tickless"
    assert cell_of(drawing, 0).looks == ""


def test_every_crossing_is_named_and_drawn(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, recorded("intel-two-sockets", tmp_path / "machine"),
               **PLACED["intel-two-sockets"])  # fmt: skip
    found, drawing = drawn(tmp_path)
    far = "(distance 21; 10 is local)"
    sender = "generator on CPU 6 of NUMA node 1"
    assert found.crossings == (
        f"packets: {sender} → receives at tt-in on CPU 1-2 of NUMA node 0 {far}",
        f"stamps: {sender} → taps and tailtap on CPU 0,3 of NUMA node 0 {far}",
    )
    assert len(drawing.lines) == 2


def test_cards_on_another_node_are_crossings_and_cables_are_none(tmp_path: Path) -> None:
    ports = (("ens1f0", "ens5f0"), ("ens5f1", "ens1f1"))
    placed_run(tmp_path, 1, large(), dut=[2, 3], generator=4, taps=[0], ports=ports)
    found, drawing = drawn(tmp_path)
    far = "(distance 21; 10 is local)"
    assert found.crossings == (
        f"packets: generator on CPU 4 of NUMA node 0 → card ens5f1 (tt-a1) of NUMA node 1 {far}",
        f"packets: DuT on CPU 2-3 of NUMA node 0 → card ens5f0 (tt-out) of NUMA node 1 {far}",
    )
    used = {chip.lines for chip in drawing.chips if chip.used}
    assert ("ens1f0 ice", "port tt-in of the lab") in used
    assert len(used) == 4


def test_a_device_on_two_nodes_is_one(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, large(), dut=[31, 32], generator=33, taps=[0, *range(2, 31), 34])
    found, drawing = drawn(tmp_path)
    assert "DuT is on NUMA nodes 0-1 (CPU 31-32)" in found.crossings
    assert "taps and tailtap may run on NUMA nodes 0-1 (CPU 0,2-30,34)" in found.crossings
    # What may be anywhere has no line, and no letter in the cells.
    assert cell_of(drawing, 2).words == ()
    assert [kind for kind, *_ in cell_of(drawing, 2).stripes] == ["taps spread"]


def test_one_node_has_no_crossing(tmp_path: Path) -> None:
    placed_run(tmp_path, 1, recorded("cloud-vm", tmp_path / "machine"), **PLACED["cloud-vm"])
    found, drawing = drawn(tmp_path)
    assert (found.crossings, drawing.lines) == ((), [])
    assert found.shared == ("CPU 0: generator and taps and tailtap share it",)


def test_who_shares_a_core_is_named(tmp_path: Path) -> None:
    there = recorded("amd-epyc-four-nodes", tmp_path / "machine")
    placed_run(tmp_path, 1, there, dut=[17, 18, 50], generator=49, taps=[0])
    assert drawn(tmp_path)[0].shared == (
        "DuT on CPU 17 shares its core with CPU 49: generator",
        "DuT on both threads of a core: CPU 18,50",
    )


def test_runs_of_one_placement_share_a_map_and_others_have_their_own(tmp_path: Path) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    for number, (platform, dut) in enumerate(
        itertools.product(("wire", "bare-metal", "container"), (0, 1)), 1
    ):
        placed_run(tmp_path, number, {**there, "topology": {**there["topology"],
                   "node_memory": {"0": number << 30}}}, platform=platform,
                   variables={"dut.cpus": f"[{dut}]"}, dut=[dut], generator=1 - dut,
                   taps=[1 - dut])  # fmt: skip
    one, other = maps(tmp_path)
    assert one.runs == ("wire · [0]", "bare-metal · [0]", "container · [0]")
    assert other.runs == ("wire · [1]", "bare-metal · [1]", "container · [1]")
    assert one.title.endswith("generator on 1, taps and tailtap on 1, DuT on 0")


def test_neighbours_are_on_the_map(tmp_path: Path) -> None:
    there = recorded("intel-two-sockets", tmp_path / "machine")
    did = {"reached": 1, "done": 9, "cpu_ns": 9, "elapsed_ns": 9}
    noise = {"batch": {"kind": "cpu", "unit": "share", "asked": 1, "cpus": {"1": did, "8": did}}}
    for number, neighbours in enumerate(({}, noise), 1):
        placed_run(tmp_path, number, there, variables={"dut.neighbours": str(number)},
                   dut=[1, 2], generator=6, taps=[3], neighbours=neighbours)  # fmt: skip
    without, found = maps(tmp_path)
    assert (without.shared, "N" in [row.letter for row in without.rows]) == ((), False)
    assert ("N", "batch (cpu)", "1,8") in [(row.letter, row.name, row.cpus) for row in found.rows]
    assert found.shared == ("CPU 1: DuT and batch (cpu) share it",)
    assert (without.crossings, without.runs != found.runs) == (found.crossings, True)
    assert found.drawing is not None
    assert cell_of(found.drawing, 8).words == ("batch (cpu)",)


def test_many_placements_are_told_in_words(tmp_path: Path) -> None:
    for number in range(1, DRAWN + 3):
        placed_run(tmp_path, number, large(), variables={"dut.cpus": f"[{number}]"},
                   dut=[number], generator=40, taps=[0])  # fmt: skip
    found = maps(tmp_path)
    assert [one.drawing is None for one in found] == [False] * DRAWN + [True] * 2
    assert found[-1].crossings
    assert "further placements are told in words" in visible(
        write_report(tmp_path, figures=False).page.read_text("utf-8")
    )


def test_where_packets_are_received_is_what_the_run_stored(tmp_path: Path) -> None:
    """It may be other CPUs than the device's, or none that was chosen; new keys do no harm."""
    there = recorded("cloud-vm", tmp_path / "machine")
    ports = {"tt-in": {"cpus": [0], "new": 1}, "tt-out": {"cpus": []}}
    placed_run(tmp_path, 1, there, dut=[1], generator=0, taps=[0],
               placement={"ports": ports, "crossings": []})  # fmt: skip
    [found] = maps(tmp_path)
    rows = {row.name: row.cpus for row in found.rows}
    assert rows["receives at tt-in"] == "0"
    assert rows["receives at tt-out"] == "wherever the kernel does it"
    assert found.shared == ("CPU 0: generator, taps and tailtap and receives at tt-in share it",)


def test_the_generators_machine_has_a_map_of_its_own(tmp_path: Path) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    stations = {"generator": {"environment": large(), "tuning": None}}
    placed_run(tmp_path, 1, there, dut=[1], generator=40, taps=[41], stations=stations)
    device, sender = maps(tmp_path)
    assert [row.name for row in device.rows] == ["DuT", "receives at tt-in"]
    assert [row.name for row in sender.rows] == ["generator", "taps and tailtap"]
    assert sender.machine.name == "large"


def test_runs_that_say_nothing_of_cores_have_no_map(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "bare-metal"}, packets=2_000)
    assert maps(tmp_path) == []
    page = write_report(tmp_path, figures=False).page.read_text("utf-8")
    assert 'id="where"' not in page
    assert 'id="audit"' not in page


def tree(**topology: Any) -> tuple[Box, ...]:
    found = machine_of(parsed("made up", {"topology": topology}, Environment))
    assert found is not None
    return found.boxes


def test_a_node_may_be_around_sockets() -> None:
    """As in virtual machines that say a socket for each of their CPUs."""
    [node] = tree(cores=["0", "1"], packages=["0", "1"], numa_nodes={"0": "0-1"})
    assert node.titles == ("NUMA node 0",)
    assert [box.titles for box in node.children] == [("Socket 0",), ("Socket 1",)]
    assert [box.children[0].core for box in node.children] == [True, True]


def test_sets_that_overlap_in_part_have_no_box() -> None:
    caches = [{"level": "3", "type": "Unified", "size": "1024K", "cpus": "1-2"}]
    sockets = tree(cores=["0", "1", "2", "3"], packages=["0-1", "2-3"], caches=caches)
    assert [box.titles for box in sockets] == [("Socket 0",), ("Socket 1",)]


def test_a_cpu_that_is_off_is_there(tmp_path: Path) -> None:
    there = recorded("raspberry-pi-4", tmp_path / "machine")
    there["cpu"]["online"] = "0-2"
    placed_run(tmp_path, 1, there, dut=[2], generator=1, taps=[0])
    assert cell_of(drawn(tmp_path)[1], 3).looks == "off"


def test_the_page_stays_light(tmp_path: Path) -> None:
    """The map of 128 CPUs is a twentieth of a page."""
    bare = write_experiment(tmp_path / "bare", packets=2_000)
    before = write_report(bare, figures=False).size
    placed_run(tmp_path / "placed", 1, large(), dut=[2], generator=40, taps=[0])
    [found] = maps(tmp_path / "placed")
    page = write_report(tmp_path / "placed", figures=False).page.read_text("utf-8")
    svg = page[page.index('<svg class="map"') : page.index("</svg>", page.index('class="map"'))]
    assert found.drawing is not None
    assert len(svg) < before / 10


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
    found, drawing = drawn(tmp_path)
    assert [(row.letter, row.name, row.cpus) for row in found.rows] == [
        ("G", "generator", "3"),
        ("T", "taps and tailtap", "0,3"),
        ("D", "a", "1"),
        ("D", "b and c", "8"),
        ("R", "receives at a:tt-in", "1"),
        ("R", "receives at b:tt-in and c:tt-in", "8"),
    ]
    assert "CPU 8: b and c share it" in found.shared
    assert not any(sentence.startswith("CPU 1:") for sentence in found.shared)
    assert cell_of(drawing, 8).words[0] == "b and c"
    ways = [sentence for sentence in found.crossings if sentence.startswith("packets: a ")]
    assert len(ways) == 1
    assert "receives at b:tt-in and c:tt-in on CPU 8 of NUMA node 1" in ways[0]
