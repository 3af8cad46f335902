"""The section of the page that ranks configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparisons import write_run
from pages import texts
from published_trees import write_mixed

from tailtap.analysis.runs.groups import configurations, floor_of
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.page import compared


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A floor, two devices that differ and an invalid run of a third."""
    folder = tmp_path_factory.mktemp("compared")
    number = 0
    for platform, scale in (("wire", 0.1), ("bare-metal", 1.0), ("container", 2.0)):
        for repeat in range(1, 5):
            number += 1
            write_run(folder, number, {"dut.platform": platform}, scale=scale, repeat=repeat,
                      packets=5_000)  # fmt: skip
    write_run(folder, 13, {"dut.platform": "vm"}, changes={"valid": False}, packets=5_000)
    return folder


def test_devices_are_ranked_and_the_floor_is_not(folder: Path) -> None:
    experiment = load_experiment(folder)
    section = compared(experiment, configurations(experiment))
    assert section is not None
    [table] = section.tables
    assert [part.title for part in table.parts] == ["10 kpkt/s, p99"]
    rows = texts(table)
    assert [cells[:2] for cells in rows] == [
        ["bare-metal", "1"], ["container", "2"], ["wire", "floor"], ["vm", ""],
    ]  # fmt: skip
    assert rows[1][2].count(", ") == 3 and rows[1][6].startswith("x1.") and rows[1][7] == "0.029"
    [sentence] = section.sentences
    assert "bare-metal, " in sentence and "container is next" in sentence
    page = write_report(folder, figures=False).page.read_text("utf-8")
    assert "Which configuration is better" in page and sentence in page


def test_one_configuration_has_no_section(tmp_path: Path) -> None:
    for repeat in (1, 2):
        write_run(tmp_path, repeat, {"dut.platform": "vm"}, repeat=repeat, packets=2_000)
    experiment = load_experiment(tmp_path)
    assert compared(experiment, configurations(experiment)) is None
    page = write_report(tmp_path, figures=False).page.read_text("utf-8")
    assert "Which configuration is better" not in page


def test_cases_are_configurations_and_the_wire_is_their_floor(tmp_path: Path) -> None:
    none: dict[str, Any] = {"dut.platform": "wire", "dut.ports": None, "tap.ports": None}
    first: dict[str, Any] = {
        "dut.platform": "vm",
        "dut.ports": ["a0", "a1"],
        "tap.ports": ["b0", "b1"],
    }
    other = {**first, "dut.ports": ["c0", "c1"], "tap.ports": ["d0", "d1"]}
    for repeat in (1, 2):
        for place, case in enumerate((none, first, other)):
            number = 3 * repeat + place
            write_run(tmp_path, number, case, scale=1 + place, repeat=repeat, packets=5_000)
    experiment = load_experiment(tmp_path)
    groups = configurations(experiment)
    assert [(group.label, len(group.members)) for group in groups] == [
        ("wire · None · None", 2),
        ("vm · a0 and a1 · b0 and b1", 2),
        ("vm · c0 and c1 · d0 and d1", 2),
    ]
    assert [floor_of(group, groups) for group in groups] == [None, groups[0], groups[0]]
    section = compared(experiment, groups)
    assert section is not None
    labels = [row.cells[0].value for row in section.tables[0].rows]
    assert labels[:2] == [group.label for group in groups[1:]]


def test_imported_runs_are_ranked_with_what_is_published_of_them(tmp_path: Path) -> None:
    experiment = load_experiment(write_mixed(tmp_path, packets=5_000))
    section = compared(experiment, configurations(experiment))
    assert section is not None
    rows = {row.cells[0].value: row for row in section.tables[0].rows}
    assert {"bare-metal", "whole", "uncounted"} <= set(rows)
    whole, ours = rows["whole"].mark, rows["bare-metal"].mark
    assert whole is not None and whole.source and ours is not None and not ours.source
    assert {rows[name].cells[2].value for name in ("counted", "worst")} == {"no good run"}


@pytest.mark.parametrize(
    ("varied", "dut", "label"),
    [
        ({"dut.line": 8}, {}, "line 8"),
        ({"dut.line": ["router", "box"]}, {}, "line router and box"),
        ({}, {"line": ["router", "box"]}, "line router and box · 10 kpkt/s"),
        ({}, {"line": 8}, "bare-metal · tc-mirred · line 8 · 10 kpkt/s"),
        ({}, {"line": 1}, "bare-metal · tc-mirred · 10 kpkt/s"),
    ],
)
def test_a_line_is_called_a_line(
    tmp_path: Path, varied: dict[str, Any], dut: dict[str, Any], label: str
) -> None:
    """And not after a platform or forwarder that none of its nodes may have."""
    device = {"platform": "bare-metal", "forwarder": "tc-mirred", **dut}
    parameters = {"dut": device, "traffic": {"rate": 10_000, "size": 64, "duration": 10**9}}
    write_run(tmp_path, 1, varied, packets=100, changes={"parameters": parameters})
    [group] = configurations(load_experiment(tmp_path))
    assert group.label == label
