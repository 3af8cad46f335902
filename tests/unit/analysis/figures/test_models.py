"""Figures and tables of many tail models, against what the papers print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from experiment_folders import write_run

from tailtap.analysis.figures.arranging import arrange
from tailtap.analysis.figures.model import Figure
from tailtap.analysis.figures.specification import Specification
from tailtap.analysis.figures.tables import grade
from tailtap.analysis.figures.tails import correlation
from tailtap.analysis.runs.reader import load_experiment
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.tail import (
    ModelledPackets,
    PapersModel,
    PapersThreshold,
    StationarityRow,
    TailRecord,
)

TABLE_4 = (
    ("bare-metal", "full", "rt", "0.83", "58.3", 12),
    ("bare-metal", "none", "vanilla", "1.33", "100.0", 3),
    ("vm", "full", "rt", "1.25", "50.0", 4),
    ("vm", "none", "vanilla", "2.58", "66.7", 12),
    ("container", "full", "rt", "1.42", "83.3", 12),
    ("container", "none", "rt", "7.67", "100.0", 3),
    ("container", "full", "nohz", "1.25", "75.0", 4),
    ("container", "none", "nohz", "1.67", "83.3", 6),
    ("container", "full", "vanilla", "2.92", "75.0", 12),
    ("container", "none", "vanilla", "2.29", "71.4", 7),
    ("kernel", "full", "rt", "2.50", "33.3", 6),
    ("kernel", "none", "vanilla", "22.73", "63.6", 11),
)
"""Tables 4 and 5 of "Packet processing in virtualized environments": platform, tuning, kernel, mean
exceedances, bounded models in per cent; and the fewest models that give both."""
TABLE_5 = (
    ("bare-metal", "full", "rt", "3.30", "60.0", 10),
    ("bare-metal", "none", "vanilla", "0.33", "16.7", 6),
    ("vm", "full", "rt", "4.00", "58.3", 12),
    ("vm", "none", "vanilla", "2.58", "25.0", 12),
    ("container", "full", "rt", "3.83", "66.7", 6),
    ("container", "none", "vanilla", "1.50", "16.7", 6),
)
SIGN = {
    "Opt.": ["dut.tuning=full"],
    "RT": ["dut.kernel=rt"],
    "NoHz": ["dut.kernel=nohz"],
    "Vanilla": ["dut.kernel=vanilla"],
}


def tail(bursts: int, *, bounded: bool, xi: float = 0.2, adf: float = 0.01) -> TailRecord:
    """A model whose chosen threshold is exceeded by so many bursts."""

    def threshold(text: str, latency: float, divergence: float) -> PapersThreshold:
        return PapersThreshold(
            threshold=text,
            percentile=float(text[:-2]),
            latency_ns=latency,
            exceedances=50,
            xi=xi,
            sigma_ns=5.0,
            jensen_shannon=divergence,
            level_ns=9.0,
            limit_ns=None,
            bounded=bounded,
            packets_above=bursts,
            bursts_above=bursts,
        )

    return TailRecord(
        run="one",
        packets=ModelledPackets(matched=100, lost=0, fitted=20, checked=80),
        rate=1.0,
        tick_ns=1.0,
        fit=0.2,
        thresholds=[],
        chosen=None,
        levels=[],
        block_maxima=None,
        stationarity=[
            StationarityRow(
                series="blocks",
                length=9,
                adf=-5.0,
                adf_p=adf,
                kpss=0.1,
                kpss_p=0.1,
                stationary=True,
                unit_root=False,
            )
        ],
        papers=PapersModel(
            thresholds=[threshold("99.5 %", 70.0, 0.3), threshold("99.9 %", 90.0, 0.1)],
            chosen="99.9 %",
        ),
        warnings=[],
    )


def with_models(folder: Path, run: Run, rows: list[tuple[dict[str, str], TailRecord]]) -> list[Run]:
    """A run for each row, with its variables and its tail model."""
    runs = []
    for number, (variables, record) in enumerate(rows):
        home = folder / str(number)
        (home / "evaluation").mkdir(parents=True)
        (home / "tail.json").write_bytes(msgspec.json.encode(record))
        assert run.record is not None
        runs.append(
            Run(
                slug=str(number),
                variables=variables,
                folder=home / "evaluation",
                read=run.read,
                record=run.record,
                repeat=number,
            )
        )
    return runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("one")
    write_run(folder, 1, {"dut.platform": "bare-metal"}, packets=500)
    return load_experiment(folder).finished[0]


def drawn(measured: list[Run], /, **keys: Any) -> Specification:
    return arrange(Figure.model_validate(keys), "one", measured)


@pytest.mark.parametrize("printed", [TABLE_4, TABLE_5], ids=["table 4", "table 5"])
def test_the_published_tables_come_out_as_printed(
    tmp_path: Path, run: Run, printed: tuple[tuple[str, str, str, str, str, int], ...]
) -> None:
    rows = []
    for platform, tuning, kernel, mean, bounded, models in printed:
        values = {"dut.platform": platform, "dut.tuning": tuning, "dut.kernel": kernel}
        total, ended = round(float(mean) * models), round(float(bounded) * models / 100)
        each = [total // models + (at < total % models) for at in range(models)]
        rows += [(values, tail(bursts, bounded=at < ended)) for at, bursts in enumerate(each)]
    found = drawn(
        with_models(tmp_path, run, rows),
        kind="models",
        sign=SIGN,
        series=["dut.platform", "dut.tuning", "dut.kernel"],
    )
    (table,) = found.tables
    assert table.heads == ("platform", *SIGN, "runs", "exceedances", "bounded")
    assert [(row[0], row[-2], row[-1]) for row in table.rows] == [
        (platform, mean, f"{bounded}\u00a0%") for platform, _, _, mean, bounded, _ in printed
    ]
    marks = [[cell == "✓" for cell in row[1:5]] for row in table.rows]
    assert marks == [
        [tuning == "full", *(kernel == one for one in ("rt", "nohz", "vanilla"))]
        for _, tuning, kernel, *_ in printed
    ]


def test_the_correlation_of_table_4_is_the_printed_one() -> None:
    found = correlation([(float(row[3]), float(row[4])) for row in TABLE_4])
    assert found is not None and round(found, 2) == -0.02
    assert correlation([(1, 2), (2, 3)]) is None
    assert correlation([(1, 2), (2, 2), (3, 2)]) is None


def test_ensembles_have_a_value_of_each_model(tmp_path: Path, run: Run) -> None:
    rows = [
        (
            {"dut.platform": platform},
            tail(bursts, bounded=bursts < 2, xi=0.1 * bursts - 0.15, adf=0.2 if bursts else 0.01),
        )
        for platform in ("vm", "container")
        for bursts in (0, 1, 4)
    ]
    runs = with_models(tmp_path, run, rows)
    divergence = drawn(runs, kind="divergence", series="dut.platform")
    assert divergence.categories == ("99.5 %", "99.9 %")
    for mark in divergence.panels[0].marks:
        assert sorted(zip(mark.x, mark.y, strict=True)) == [(0, 0.3)] * 3 + [(1, 0.1)] * 3
    thresholds = drawn(runs, kind="thresholds")
    assert [len(mark.x) for mark in thresholds.panels[0].marks] == [12]
    assert any("The mean threshold is 80\u00a0ns" in note for note in thresholds.notes)
    (shape,) = drawn(runs, kind="shape").panels[0].marks
    assert sorted(shape.y[shape.x == 0]) == pytest.approx([-0.15, -0.15, -0.05, -0.05])
    assert list(shape.y[shape.x == 1]) == pytest.approx([0.25, 0.25])
    still = drawn(runs, kind="stationarity", series="dut.platform")
    assert {mark.test for mark in still.panels[0].marks} == {"ADF", "KPSS"}
    assert all(mark.x == 50 for mark in still.panels[0].marks)
    assert any("ADF has p < 0.05 for 33% and KPSS p > 0.05 for 100%" in one for one in still.notes)
    dots = drawn(runs, kind="exceedances", panels="dut.platform").panels
    assert [
        [tuple(np.concatenate((mark.x, mark.y))) for mark in panel.marks] for panel in dots
    ] == [[(pytest.approx(5 / 3), pytest.approx(200 / 3))]] * 2
    with pytest.raises(InputError, match="no run has what"):
        drawn(runs, kind="shape", method="tailtap")


def test_runs_without_a_model_are_counted(tmp_path: Path, run: Run) -> None:
    some = with_models(tmp_path, run, [({}, tail(1, bounded=True))])
    found = drawn([*some, run], kind="shape")
    assert any(note.startswith("1 run has no tail model") for note in found.notes)
    with pytest.raises(InputError, match="no run has a tail model"):
        drawn([run], kind="shape")


UNITS = ("latency_ns", "loss", "power_w", "memory_bytes")
"""The columns of a file of grades: as they are measured."""


def test_table_6_has_the_largest_latency_of_each_cell(tmp_path: Path) -> None:
    for number in range(1, 5):
        values = {"dut.platform": "wire", "dut.kernel": "rt" if number > 2 else "vanilla"}
        write_run(tmp_path, number, values, repeat=number, packets=500)
    runs = list(load_experiment(tmp_path).finished)
    (table,) = drawn(runs, kind="tail-latency", panels="dut.kernel", series="dut.platform").tables
    assert table.heads == ("", "vanilla", "rt")
    largest = [run.maximum or 0 for run in runs]
    assert [row[2] for row in table.data] == [max(largest[:2]), max(largest[2:])]
    (graded,) = drawn(runs, kind="grades", series="dut.kernel").tables
    assert [head for head in graded.data_heads if head in UNITS] == list(UNITS)[:2]
    assert [row[0] for row in graded.rows] == ["vanilla", "rt"]
    assert any(cell.startswith("✓✓✓") for row in graded.rows for cell in row[1:2])


def test_grades_are_steps_from_the_best_value() -> None:
    assert [grade(value, 10) for value in (10, 12.5, 13, 21, 41, 81, 161)] == [
        "✓✓✓",
        "✓✓✓",
        "✓✓",
        "✓",
        "×",
        "××",
        "×××",
    ]
    assert [grade(share, 0, share=True) for share in (0, 1e-7, 5e-6, 5e-5, 5e-4, 0.1)] == [
        "✓✓✓",
        "✓✓",
        "✓",
        "×",
        "××",
        "×××",
    ]
