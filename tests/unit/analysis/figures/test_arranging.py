"""Runs in the panels and lines of a figure, against the runs themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_folders import write_run
from published_trees import write_tree

from tailtap.analysis.figures.arranging import arrange, values_of
from tailtap.analysis.figures.beside import set_beside
from tailtap.analysis.figures.kinds import KINDS
from tailtap.analysis.figures.model import Figure, figures_in, file_names
from tailtap.analysis.figures.specification import Specification
from tailtap.analysis.interrupts.runs import known
from tailtap.analysis.runs.groups import WIRE_LIGHT
from tailtap.analysis.runs.reader import load_experiment, read_runs
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError
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


def test_runs_stand_where_their_values_say(runs: list[Run]) -> None:
    found = drawn(
        runs,
        kind="hdr",
        panels="traffic.rate",
        series={"by": "dut.platform", "order": ["bare-metal"], "names": {"wire": "Floor"}},
    )
    assert [panel.title for panel in found.panels] == ["10 kpkt/s", "50 kpkt/s"]
    assert [(one.label, one.light in WIRE_LIGHT) for one in found.series] == [
        ("bare-metal", False),
        ("Floor", True),
    ]
    by_slug = {run.slug: run for run in runs}
    for panel in found.panels:
        for mark in panel.marks:
            run = by_slug[mark.run]
            assert run.variables["traffic.rate"] == panel.title
            assert (run.platform == "wire") == (found.series[mark.series].label == "Floor")
    # All repeats, and one strong line for each platform and rate: that of the worst.
    lines = [mark for panel in found.panels for mark in panel.marks if mark.low is None]
    assert {mark.run for mark in lines} == set(by_slug)
    strong = {mark.run for mark in lines if mark.role == "main"}
    for platform, rate in (("wire", 10_000), ("bare-metal", 50_000)):
        repeats = [run for run in runs if run.platform == platform and run.rate == rate]
        heights = {run.slug: run.percentile(0.99) for run in repeats}
        worst = max(heights, key=lambda slug: heights[slug].value)  # type: ignore[union-attr]
        assert [run.slug for run in repeats if run.slug in strong] == [worst]


def test_a_curve_has_the_percentiles_of_its_run(runs: list[Run]) -> None:
    found = drawn(runs, kind="hdr", runs={"dut.platform": "wire"}, repeats="worst")
    lines = [mark for panel in found.panels for mark in panel.marks if mark.low is None]
    assert {mark.role for mark in lines} == {"main"} and len(lines) == 2
    for mark in lines:
        run = next(run for run in runs if run.slug == mark.run)
        for p in (0.5, 0.9, 0.99):
            at = np.searchsorted(mark.x, 1 / (1 - p))
            row = run.percentile(p)
            assert row is not None and mark.y[at] == pytest.approx(row.value, rel=0.02)


def test_what_varies_besides_is_in_the_names_of_lines(runs: list[Run]) -> None:
    found = drawn(runs, kind="worst", series="dut.platform")
    assert [one.label for one in found.series] == [
        "wire · 10 kpkt/s",
        "wire · 50 kpkt/s",
        "bare-metal · 10 kpkt/s",
        "bare-metal · 50 kpkt/s",
    ]


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


def test_percentiles_over_a_rate_have_the_intervals_of_the_worst_repeats(runs: list[Run]) -> None:
    found = drawn(
        runs,
        kind="percentile",
        percentile="p99",
        over="traffic.rate",
        series="dut.platform",
        line="p99 < 1 ms",
    )
    assert found.x.quantity.text(10_000) == "10\u00a0kpkt/s" and not found.categories
    for mark in (mark for mark in found.panels[0].marks if mark.role == "main"):
        platform = found.series[mark.series].label
        assert list(mark.x) == [10_000, 50_000]
        assert mark.low is not None and mark.high is not None
        for at, rate in enumerate((10_000, 50_000)):
            same = [run for run in runs if run.platform == platform and run.rate == rate]
            rows = [row for run in same if (row := run.percentile(0.99)) is not None]
            worst = max(rows, key=lambda row: row.value)
            assert (mark.y[at], mark.low[at], mark.high[at]) == (worst.value, worst.low, worst.high)


def test_a_value_that_is_named_stands_beside_the_others(runs: list[Run]) -> None:
    names = {"by": "traffic.rate", "order": ["50 kpkt/s"], "names": {"10 kpkt/s": "slow"}}
    found = drawn(runs, kind="loss", over=names, series="dut.platform")
    assert found.categories == ("50 kpkt/s", "slow")
    (bare,) = [
        mark
        for mark in found.panels[0].marks
        if mark.role == "main" and found.series[mark.series].label == "bare-metal"
    ]
    worst = [
        max(run.loss or 0 for run in runs if run.platform == "bare-metal" and run.rate == rate)
        for rate in (50_000, 10_000)
    ]
    assert list(bare.y) == worst and min(worst) > 0


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


def test_a_published_run_that_is_not_there_is_an_error(runs: list[Run]) -> None:
    asked = figure(kind="hdr", beside={"where": {"vm": {"dut.platform": "wire"}}})
    with pytest.raises(InputError, match="no published run is 'vm'"):
        arrange(asked, "one", runs, lambda one, layout, done: set_beside(one, layout, done, ()))


def test_counters_are_told_by_kind_packet_and_second(tmp_path: Path) -> None:
    run = write_run(tmp_path, 1, {"dut.platform": "bare-metal"}, packets=500)
    head = "timestamp_us;LOC_Local_timer_interrupts_CPU1;LOC_Local_timer_interrupts_CPU0;"
    head += "24_PCI-MSI_eth0_CPU1;NET_RX_softirq_CPU1"
    rows = [head, "0;100;7;5;1", "1000000;350;9;5;11", "2000000;600;9;8;21"]
    (run / "interrupts.csv").write_text("\r\n".join([*rows, ""]))
    (found,) = load_experiment(tmp_path).finished
    assert found.device_cpus == (1,)
    assert known(found) == {"LOC": 500, "device": 3, "NET_RX softirq": 20}
    runs = [found]
    (mark,) = drawn(runs, kind="counter", counter="LOC", per="packet").panels[0].marks
    assert list(mark.y) == [500 / (found.taps["ingress"].came or 0)]
    (mark,) = drawn(runs, kind="counter", counter="LOC", per="second").panels[0].marks
    assert list(mark.y) == [250]
    every = drawn(runs, kind="interrupts")
    assert every.categories == ("LOC", "NET_RX softirq", "device")
    assert list(every.panels[0].marks[0].y) == [250, 10, 1.5]
    with pytest.raises(InputError, match="no run counted 'cycles'; they counted LOC, device"):
        drawn(runs, kind="counter", counter="cycles")


def test_the_file_is_read_again_with_lines(tmp_path: Path, runs: list[Run]) -> None:
    file = tmp_path / "figures.yaml"
    file.write_text("figures:\n  - kind: hdr\n    panels: dut.kernel\n")
    with pytest.raises(InputError, match=r"figures.yaml:3: figures\[0\].panels: nothing varies"):
        figures_in(file, values_of(runs))
    file.write_text("figures:\n  - kind: hdr\n    panel: dut.platform\n")
    with pytest.raises(InputError, match=r"yaml:3: figures\[0\].panel: unknown key: did you mean"):
        figures_in(file, values_of(runs))
    file.write_text("figures:\n  - kind: hdr\n    axes: {y: {scales: log}}\n")
    with pytest.raises(InputError, match=r"axes.y.scales: unknown key: did you mean 'scale'"):
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


def test_no_run_is_an_error(runs: list[Run]) -> None:
    with pytest.raises(InputError, match="no valid run"):
        drawn(runs, kind="hdr", runs={"dut.platform": "vm"})
