"""The audit in the report: what was set, what is not as it should be, how runs differ in that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import texts, visible
from placed_runs import ABLATED, placed_run, recorded, tuned, write_ablation

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.audit import MachineAudit, audits_of

WHERE: dict[str, Any] = {"dut": [1], "generator": 0, "taps": [0]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ablation(tmp_path_factory.mktemp("ablation"))


def audits(folder: Path) -> list[MachineAudit]:
    return audits_of(configurations(load_experiment(folder)))


def section(audit: MachineAudit, title: str) -> dict[str, list[str]]:
    """The cells of each knob in a table: value, wanted, in which runs, why, source."""
    [found] = [table for table, _ in audit.tables if title in table.title]
    return {cells[0]: cells[1:] for cells in texts(found)}


def test_an_ablation_is_a_matrix_of_what_was_left_out(folder: Path) -> None:
    [found] = audits(folder)
    assert found.title == "The DuT's machine"
    assert found.summary == "Judged for bare-metal on CPU 1; 5 runs."
    knobs = [column.heading for column in found.matrix.columns[2:]]
    assert set(knobs) == set(ABLATED)
    rows = {
        cells[0].partition(" ")[2]: dict(zip(knobs, cells[2:], strict=True))
        for cells in texts(found.matrix)
    }
    assert rows == {
        "runtime": dict.fromkeys(ABLATED, "●"),
        **{f"without {out}": {k: "✗" if k == out else "●" for k in ABLATED} for out in ABLATED},
        "none": dict.fromkeys(ABLATED, "✗"),
    }
    hints = {cell.hint for cell in found.matrix.rows[0].cells}
    assert "set for the run: 120 → 600, wanted at least 600 or 0" in hints


def test_what_was_set_has_its_values_reason_and_source(folder: Path) -> None:
    [found] = audits(folder)
    rows = section(found, "Set for runs")
    assert set(rows) == set(ABLATED)
    value, wanted, runs, why, source = rows["soft-watchdog"]
    assert (value, wanted) == ("1 → 0", "0")
    # The rows of the matrix: runtime, each one left out, none.
    assert runs == f"all but {2 + ABLATED.index('soft-watchdog')}, 5"
    assert why.startswith("A timer on each core") and "how-low-can-you-go" in source


def test_what_is_not_as_it_should_be_is_told_apart_from_what_is(folder: Path) -> None:
    [found] = audits(folder)
    wrong, right = section(found, "Not as it should be"), section(found, "As it should be")
    assert wrong["transparent-huge-pages"][:3] == ["madvise", "never", "all"]
    assert "nmi-watchdog" in right
    assert not set(right) & set(wrong)
    assert not set(ABLATED) & {*right, *wrong}
    assert not next(is_open for table, is_open in found.tables if "As it" in table.title)


def test_values_that_vary_among_runs_that_stand_alike_are_all_told(tmp_path: Path) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    for number, value in enumerate(("2.58%", "7.01%"), 1):
        told = tuned(tmp_path / str(number), [], role="vm-guest")
        told["audit"]["steal"]["value"] = value
        placed_run(tmp_path, number, there, tuning=told, **WHERE)
    [found] = audits(tmp_path)
    assert not found.matrix
    assert section(found, "Not as it should be")["steal"][0] == "2.58%; 7.01%"


def test_what_could_not_be_set_says_why(tmp_path: Path) -> None:
    told = tuned(tmp_path / "tuned", [])
    told["left"] = {"device-interrupts": "the kernel refuses", "gone": "it is not there"}
    # As earlier versions stored it: without reason and source.
    told["audit"]["device-interrupts"] = {"answer": "not-met", "value": "0-1", "wanted": "0"}
    placed_run(tmp_path, 1, recorded("cloud-vm", tmp_path / "machine"), tuning=told, **WHERE)
    [found] = audits(tmp_path)
    *_, why, source = section(found, "Not as")["device-interrupts"]
    assert (why, source) == ("Could not be set: the kernel refuses.", "")
    assert section(found, "Could not be set") == {"gone": ["–", "–", "", "it is not there", ""]}


def test_the_generators_machine_has_its_own_audit(tmp_path: Path) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    sender = {"environment": there, "tuning": tuned(tmp_path / "b", [], role="generator")}
    placed_run(tmp_path, 1, there, tuning=tuned(tmp_path / "a", []),
               stations={"generator": sender}, **WHERE)  # fmt: skip
    device, generator = audits(tmp_path)
    assert generator.title == "The generator's machine"
    assert generator.summary == "Judged for generator on CPU 1; 1 run."
    assert device.title == "The DuT's machine"


def test_a_guest_has_its_own_audit(tmp_path: Path) -> None:
    """What its line set is there, and so is what does not apply, which is not shown."""
    there = recorded("cloud-vm", tmp_path / "machine")
    rows = {
        "isolated-cpus": {"answer": "met", "value": "1", "wanted": "contains 1"},
        "nohz-full": {"answer": "not-applicable", "value": None, "wanted": None},
    }
    guest = {"role": "vm-guest", "cpus": "1", "left": {"rcu-nocbs": "not built"}, "audit": rows}
    placed_run(tmp_path, 1, there, tuning=None, **WHERE)
    path = next(tmp_path.glob("runs/*/run.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "platform": {"tuning": guest}}))
    [found] = audits(tmp_path)
    assert found.title == "The guest, as it was booted"
    named = [cells[0] for table, _ in found.tables for cells in texts(table)]
    assert named == ["isolated-cpus", "rcu-nocbs"]


@pytest.mark.parametrize("tuning", [None, {}, {"audit": {}}])
def test_runs_without_an_audit_have_no_section(tmp_path: Path, tuning: Any) -> None:
    there = recorded("cloud-vm", tmp_path / "machine")
    placed_run(tmp_path, 1, there, tuning=tuning, **WHERE)
    assert audits(tmp_path) == []


def test_the_page_has_all_of_it(folder: Path) -> None:
    text = visible(write_report(folder, figures=False).page.read_text("utf-8"))
    assert "What ran where" in text
    assert "Set for runs, and put back after them 3" in text
    assert "2 without stat-interval" in text
    assert "120 → 600" in text
