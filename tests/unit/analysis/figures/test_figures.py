"""Runs in the panels and lines of figures, and many tail models against what the papers print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from experiment_folders import write_run
from published_trees import write_tree

from tailtap.analysis.figures.arranging import arrange, values_of
from tailtap.analysis.figures.beside import set_beside
from tailtap.analysis.figures.kinds import KINDS
from tailtap.analysis.figures.model import Figure, figures_in, file_names
from tailtap.analysis.figures.specification import Specification
from tailtap.analysis.figures.tables import grade
from tailtap.analysis.figures.tails import correlation
from tailtap.analysis.runs.groups import WIRE_LIGHT
from tailtap.analysis.runs.reader import load_experiment, read_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
from tailtap.records.tail import (
    ModelledPackets,
    PapersModel,
    PapersThreshold,
    StationarityRow,
    TailRecord,
)
from tailtap.results.importers.importer import import_tree


def figure(**keys: Any) -> Figure:
    return Figure.model_validate(keys)


def drawn(measured: list[Run], /, **keys: Any) -> Specification:
    return arrange(figure(**keys), "one", measured)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_tree(tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def runs(tree: tuple[Path, Path]) -> list[Run]:
    return list(load_experiment(tree[0]).finished)


def test_a_curve_has_the_percentiles_of_its_run(runs: list[Run]) -> None:
    floor = {"by": "dut.platform", "names": {"wire": "Floor"}}
    found = drawn(runs, kind="hdr", runs={"dut.platform": "wire"}, repeats="worst", series=floor)
    assert {one.light in WIRE_LIGHT for one in found.series} == {True}
    lines = [mark for panel in found.panels for mark in panel.marks if mark.low is None]
    assert {mark.role for mark in lines} == {"main"} and len(lines) == 2
    for mark in lines:
        run = next(run for run in runs if run.slug == mark.run)
        for p in (0.5, 0.9, 0.99):
            at = np.searchsorted(mark.x, 1 / (1 - p))
            row = run.percentile(p)
            assert row is not None and mark.y[at] == pytest.approx(row.value, rel=0.02)


def test_the_name_of_a_case_stands_for_its_values(tmp_path: Path) -> None:
    """What follows from what is named is not said again; two configurations never become one."""
    rows = [("plain", "", "1 kpkt/s"), ("tuned", "idle=poll", "1 kpkt/s"),
            ("tuned", "idle=poll", "2 kpkt/s")]  # fmt: skip
    for number, (case, boot, rate) in enumerate(rows, 1):
        values = {"case": case, "dut.boot": boot, "traffic.rate": rate}
        write_run(tmp_path, number, values, packets=500)
    found = drawn(list(load_experiment(tmp_path).finished), kind="hdr", series="case")
    assert [one.label for one in found.series] == [
        "plain · 1 kpkt/s", "tuned · 1 kpkt/s", "tuned · 2 kpkt/s"
    ]  # fmt: skip
    found = drawn(
        list(load_experiment(tmp_path).finished), kind="hdr", runs={"traffic.rate": "1 kpkt/s"}
    )
    assert [one.label for one in found.series] == ["plain", "tuned"]


def test_invalid_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    for number, achieved in ((1, None), (2, 4_000)):
        write_run(
            tmp_path,
            number,
            {"dut.platform": "wire"},
            repeat=number,
            packets=500,
            achieved=achieved,
        )
    found = drawn(list(load_experiment(tmp_path).finished), kind="worst")
    assert {mark.run for mark in found.panels[0].marks} == {"001-wire-10000-1"}
    assert any("1 run is left out" in note for note in found.notes)


def test_a_published_run_stands_beside_ours_with_its_ratio(
    tree: tuple[Path, Path], runs: list[Run], tmp_path: Path
) -> None:
    import_tree(tree[1], tmp_path / "results.duckdb")
    published = read_runs(tmp_path).imported
    asked = figure(
        kind="hdr",
        runs={"dut.platform": "bare-metal"},
        panels="traffic.rate",
        beside={"where": {"wire, 10 kpkt/s": {"dut.platform": "bare-metal"}}},
    )
    found = arrange(
        asked, "one", runs, lambda asked, layout, done: set_beside(asked, layout, done, published)
    )
    for panel in found.panels:
        (mark,) = [mark for mark in panel.marks if mark.role == "published"]
        assert "wire" in mark.run
    (table,) = found.tables
    theirs = [run for run in published if "wire" in run.slug and run.rate == 10_000]
    p99 = [row for row in table.data if row[2] == "p99"]
    assert len(p99) == 2
    for _, _, _, here, low, high, there, ratio, ratio_low, ratio_high in p99:
        assert there in [row.value for run in theirs if (row := run.percentile(0.99))]
        assert isinstance(here, int) and isinstance(low, int) and isinstance(high, int)
        assert isinstance(there, int)
        expected = [round(side / there, 6) for side in (here, low, high)]
        assert [ratio, ratio_low, ratio_high] == expected
    missing = figure(kind="hdr", beside={"where": {"vm": {"dut.platform": "wire"}}})
    with pytest.raises(InputError, match="no published run is 'vm'"):
        arrange(missing, "one", runs, lambda one, layout, done: set_beside(one, layout, done, ()))
    with pytest.raises(InputError, match="no valid run"):
        drawn(runs, kind="hdr", runs={"dut.platform": "vm"})
    # Without a rate among the words, a published run at our rate is taken.
    asked = asked.model_copy(
        update={
            "beside": figure(
                kind="hdr", beside={"where": {"bare-metal": {"dut.platform": "bare-metal"}}}
            ).beside
        }
    )
    same = arrange(
        asked, "one", runs, lambda asked, layout, done: set_beside(asked, layout, done, published)
    )
    ratios = [row[7] for row in same.tables[0].data]
    assert ratios and set(ratios) == {1.0}, "published are our own runs"


def test_the_file_is_read_again_with_lines(tmp_path: Path, runs: list[Run]) -> None:
    file = tmp_path / "figures.yaml"
    for key, says in (
        ("panels: dut.kernel", r"figures.yaml:3: figures\[0\].panels: nothing varies"),
        ("panel: dut.platform", r"yaml:3: figures\[0\].panel: unknown key: did you mean"),
        ("axes: {y: {scales: log}}", r"axes.y.scales: unknown key: did you mean 'scale'"),
    ):
        file.write_text(f"figures:\n  - kind: hdr\n    {key}\n")
        with pytest.raises(InputError, match=says):
            figures_in(file, values_of(runs))
    file.write_text("name: nothing\n")
    assert figures_in(file, {}) == []


def test_files_have_names_of_their_own() -> None:
    every = [figure(kind="hdr"), figure(kind="hdr", name="asked-hdr-2"), figure(kind="hdr")]
    assert file_names(every) == ["asked-hdr", "asked-hdr-2", "asked-hdr-3"]


def test_every_kind_reads_what_it_is_of() -> None:
    for name, kind in KINDS.items():
        readers = {"run": kind.curves, "value": kind.value, "names": kind.named}
        assert [of for of, read in readers.items() if read is not None] == (
            [kind.of] if kind.of in readers else []
        ), name


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
    (shape,) = drawn(runs, kind="shape").panels[0].marks
    assert sorted(shape.y[shape.x == 0]) == pytest.approx([-0.15, -0.15, -0.05, -0.05])
    assert list(shape.y[shape.x == 1]) == pytest.approx([0.25, 0.25])
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
