"""Reports of imported trees, and what a report is asked for."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import comparisons
import matplotlib as mpl
import numpy as np
import pytest
from experiment_folders import write_run
from hypothesis import given
from hypothesis import strategies as st
from published_trees import write_mixed, write_rates, write_tree

from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.evaluation.values import papers
from tailtap.analysis.figures.curves import curve_of
from tailtap.analysis.runs.groups import DRAWN, configurations, floor_of
from tailtap.analysis.runs.reader import load_experiment, select, short_places
from tailtap.base.errors import InputError
from tailtap.results.importers.importer import FIRST_NUMBER, import_tree
from tailtap.show.report import write_report
from tailtap.show.report.printing import SETTINGS, drawn
from tailtap.show.report.requested import (
    Requested,
    requested_figures,
    with_pictures,
    write_requested,
)

LABELS = ["wire", "bare-metal", *(f"{n} · 10 kpkt/s (imported)" for n in
          ("uncounted", "whole", "counted", "worst"))]  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def both(mixed: Path) -> list[Latencies]:
    """A run of ours, and the same as others would publish it."""
    found = {group.label.split(" ")[0]: group for group in configurations(load_experiment(mixed))}
    return [found[name].members[0].evaluation for name in ("bare-metal", "whole")]


def test_the_curve_of_published_percentiles_never_understates(both: list[Latencies]) -> None:
    ours, theirs = both
    curve = curve_of(theirs)
    assert curve is not None and ours.packets
    latencies = np.repeat(*ours.distribution)
    n = ours.packets
    for p in [*papers(), *np.random.default_rng(3).uniform(0, 1, 500)]:
        if p <= 1 - 1 / n:
            exact = latencies[max(int(np.ceil(round(p * n, 6))), 1) - 1]
            drawn = curve.y[np.searchsorted(curve.x, 1 / (1 - p), side="left")]
            assert drawn == exact if p in papers() else drawn >= exact
    assert (curve.x[-1], curve.y[-1]) == (2 * n, ours.max)
    assert curve.x[curve.split - 1] <= n / 10 < curve.x[curve.split + 1]
    assert (np.diff(curve.x) >= 0).all() and (np.diff(curve.y) >= 0).all()


@pytest.mark.parametrize(
    ("selections", "labels"),
    [
        ([], LABELS),
        (["own"], LABELS[:2]),
        (["imported"], LABELS[2:]),
        (["10 kpkt/s"], LABELS),
        (["0.01 Mpkt/s, imported, *COUNTED"], [LABELS[2], LABELS[4]]),
        (["wire", "whole"], [LABELS[0], LABELS[3]]),
        (["2", str(FIRST_NUMBER)], [LABELS[1], LABELS[4]]),
        (["002-bare-metal*"], LABELS[1:2]),
        (["measurements, worst"], LABELS[5:]),
        (["tree"], LABELS[2:]),
        (["tc-mirred, bare-metal"], LABELS[1:2]),
    ],
)
def test_runs_can_be_chosen(mixed: Path, selections: list[str], labels: list[str]) -> None:
    found = configurations(select(load_experiment(mixed), selections))
    assert [group.label for group in found] == labels
    assert [m.index for g in found for m in g.members] == list(range(len(found)))


@pytest.mark.parametrize("selection", ["whole, wire", "20 kpkt/s", "7", "who", "", ","])
def test_a_choice_that_no_run_fits_says_what_there_is(mixed: Path, selection: str) -> None:
    with pytest.raises(InputError, match=r"no run fits; there are 2 own and 4 imported") as error:
        select(load_experiment(mixed), ["own", selection])
    assert "whole" in str(error.value) and "\n" not in str(error.value)


def test_choosing_only_failed_runs_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=300)
    write_run(tmp_path, 2, {"dut.platform": "vm"}, status="failed", error="no KVM")
    with pytest.raises(InputError, match=r"no run of it was finished.*no KVM"):
        select(load_experiment(tmp_path), ["vm"])


def test_of_many_the_figures_show_some_and_the_tables_all(tmp_path: Path) -> None:
    rates = [*range(1_000, 12_000, 1_000), 50_000]
    experiment = tmp_path / "experiment"
    write_run(experiment, 1, {"dut.platform": "wire"}, packets=300, rate=50_000)
    import_tree(write_rates(tmp_path, rates), experiment / "results.duckdb")
    steps: list[str] = []
    page = write_report(experiment, figures=False, progress=steps.append).page.read_text()
    assert any("4 imported configurations" in step and "--runs" in step for step in steps)
    assert "The figures show 8 of 12 imported configurations" in page
    found = configurations(load_experiment(experiment), every=False)
    assert [group.drawn for group in found] == [True] * (1 + DRAWN) + [False] * 4
    assert found[1].label == "many/wire · 50 kpkt/s (imported)"  # at the rate of our own run
    # What is zero everywhere has no table.
    assert page.count('<th scope="row" class="run" title="imported: ') == 3 * 12
    chosen = configurations(select(load_experiment(experiment), ["imported"]))
    assert len(chosen) == 12 and all(group.drawn for group in chosen)


def test_imported_runs_stand_beside_a_bare_evaluation(mixed: Path, tmp_path: Path) -> None:
    shutil.copytree(next(mixed.glob("runs/002*/evaluation")), tmp_path / "mine")
    import_tree(write_rates(tmp_path, [10_000]), tmp_path / "mine/results.duckdb")
    report = write_report(tmp_path / "mine", figures=False)
    assert (report.runs, report.failed, report.imported) == (1, 0, 1)


def test_a_database_is_not_asked_for_a_report(mixed: Path, tmp_path: Path) -> None:
    shutil.copytree(mixed / "runs", tmp_path / "runs")
    (tmp_path / "results.duckdb").write_bytes(b"damaged" * 1_000)
    assert len(load_experiment(tmp_path).finished) == len(load_experiment(mixed).finished)
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match=r"results\.duckdb: there are no runs .*import .* again"):
        load_experiment(tmp_path)


PLACES = st.lists(st.sampled_from(["a", "b", "measurements"]), min_size=1, max_size=4)


@given(st.sets(PLACES.map("/".join), min_size=1, max_size=8))
def test_short_names_tell_folders_apart(places: set[str]) -> None:
    short = short_places(places)
    assert len(set(short.values())) == len(places)
    assert all(len(short[place]) <= len(place) for place in places)


def test_cases_are_configurations_and_the_wire_is_their_floor(tmp_path: Path) -> None:
    none: dict[str, Any] = {"dut.platform": "wire", "dut.ports": None, "tap.ports": None}
    first = {"dut.platform": "vm", "dut.ports": ["a0", "a1"], "tap.ports": ["b0", "b1"]}
    other = {**first, "dut.ports": ["c0", "c1"], "tap.ports": ["d0", "d1"]}
    for number in range(6):
        write_run(tmp_path, number + 1, (none, first, other)[number % 3], repeat=number // 3 + 1,
                  packets=300)  # fmt: skip
    groups = configurations(load_experiment(tmp_path))
    assert [(group.label, len(group.members)) for group in groups] == [
        ("wire · None · None", 2),
        ("vm · a0 and a1 · b0 and b1", 2),
        ("vm · c0 and c1 · d0 and d1", 2),
    ]
    assert [floor_of(group, groups) for group in groups] == [None, groups[0], groups[0]]


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
    comparisons.write_run(tmp_path, 1, varied, packets=100, changes={"parameters": parameters})
    [group] = configurations(load_experiment(tmp_path))
    assert group.label == label


FIGURES = """\
figures:
  - kind: hdr
    name: figure-5
    title: Latency <of> two devices
    caption: As it is.
    panels: traffic.rate
    series: dut.platform
    line: p99.9 < 1 ms
    beside: {path: TREE, where: {wire: {dut.platform: wire}}}
  - {kind: percentile, percentile: p99, over: traffic.rate, axes: {y: {range: [1 us, 1 ms]}}}
  - {kind: tail-latency, series: dut.platform}
  - {kind: shape}
  - {kind: worst, beside: {path: nowhere, where: {wire: {dut.platform: wire}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment, tree = write_tree(tmp_path_factory.mktemp("asked"), packets=800)
    (experiment / "experiment.yaml").write_text(FIGURES.replace("TREE", str(tree)))
    return experiment


@pytest.fixture(scope="module")
def asked(folder: Path) -> list[Requested]:
    return requested_figures(load_experiment(folder), folder / "experiment.yaml")


def test_files_have_what_is_drawn(asked: list[Requested], tmp_path: Path) -> None:
    written = [path.name for path in write_requested(asked[:4], tmp_path, below=None)]
    figures = [
        f"{name}.{kind}"
        for name in ("figure-5", "asked-percentile")
        for kind in ("png", "svg", "pdf", "csv")
    ]
    assert sorted(written) == sorted([*figures, "figure-5-table.csv", "asked-tail-latency.csv"])
    assert (tmp_path / "figure-5.pdf").read_bytes().startswith(b"%PDF")
    ElementTree.fromstring((tmp_path / "figure-5.svg").read_text())


def test_axes_are_those_that_were_asked_for(asked: list[Requested]) -> None:
    hdr, percentile = asked[0].drawn, asked[1].drawn
    assert hdr is not None and percentile is not None
    with mpl.rc_context(SETTINGS):
        (axes,) = drawn(percentile).axes
        assert axes.get_ylim() == (1_000, 1_000_000) and axes.get_yscale() == "log"
        wide, narrow = drawn(hdr), drawn(hdr, narrow=True)
    assert [axes.get_title(loc="left") for axes in wide.axes] == ["10 kpkt/s", "50 kpkt/s"]
    left = [{round(axes.get_position().x0, 2) for axes in figure.axes} for figure in (wide, narrow)]
    assert [len(places) for places in left] == [2, 1]  # columns
    assert wide.get_figwidth() > narrow.get_figwidth()
    (legend,) = wide.legends
    assert [text.get_text() for text in legend.get_texts()] == ["wire", "bare-metal", "published"]
    limits = [line for line in wide.axes[0].lines if line.get_color() == "#c0392b"]
    assert [np.min(np.asarray(line.get_ydata(), float)) for line in limits] == [
        1_000_000,
        1_000_000,
    ]


def test_values_without_an_order_are_not_joined(folder: Path, tmp_path: Path) -> None:
    """They stand beside each other, and one value alone is no axis of numbers."""
    file = tmp_path / "other.yaml"
    file.write_text(
        "figures:\n"
        "  - {kind: percentile, over: dut.platform, series: traffic.rate}\n"
        "  - kind: loss\n"
        "    over: traffic.rate\n"
        "    runs: {traffic.rate: 10 kpkt/s}\n"
        "    series: dut.platform\n"
        "  - {kind: loss, over: traffic.rate, series: dut.platform}\n"
    )
    names, single, numbers = (one.drawn for one in requested_figures(load_experiment(folder), file))
    assert names is not None and single is not None and numbers is not None
    assert (names.categories, single.categories, numbers.categories) == (
        ("wire", "bare-metal"), ("10 kpkt/s",), ()
    )  # fmt: skip
    with mpl.rc_context(SETTINGS):
        for made, joined in ((names, False), (single, False), (numbers, True)):
            figure = drawn(made)
            main = [line for line in figure.axes[0].lines if line.get_markersize() == 3.2]
            assert {line.get_linestyle() != "None" for line in main} == {joined}
            (legend,) = figure.legends
            shown_so = {line.get_linestyle() != "None" for line in legend.get_lines()}
            assert shown_so == {joined}
            places = [float(np.ravel(np.asarray(line.get_xdata(), float))[0]) for line in main]
            assert len(set(places)) == (1 if joined else len(main))


def test_a_panel_without_a_run_says_so(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("figures: [{kind: hdr, panels: [dut.platform, traffic.rate]}]\n")
    loaded = load_experiment(folder)
    runs = [run for run in loaded.runs if (run.platform, run.rate) != ("wire", 50_000)]
    (one,) = requested_figures(replace(loaded, runs=tuple(runs)), file)
    assert one.drawn is not None
    with mpl.rc_context(SETTINGS):
        said = {axes.get_title(loc="left"): [text.get_text() for text in axes.texts]
                for axes in drawn(one.drawn).axes}  # fmt: skip
    assert len(said) == 4
    assert {title for title, words in said.items() if words} == {"wire · 50 kpkt/s"}
    assert said["wire · 50 kpkt/s"] == ["no run"]


def test_another_file_can_say_what_is_drawn(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("figures: [{kind: gaps}]\n")
    (one,) = requested_figures(load_experiment(folder), file)
    assert one.name == "asked-gaps" and one.drawn is not None
    # Panels below each other are as wide as one: their letters would be twice as large.
    below = "runs: {dut.platform: wire}, panels: [dut.platform, traffic.rate]"
    file.write_text(f"figures:\n  - {{kind: gaps, {below}}}\n")
    (one,) = with_pictures(requested_figures(load_experiment(folder), file))
    assert one.drawn is not None and one.drawn.shape[1] == 1 and one.narrow == one.wide
    file.write_text("figures: [{kind: gaps, panels: dut.kernel}]\n")
    with pytest.raises(InputError, match=r"other.yaml:1: figures\[0\].panels: nothing varies by"):
        requested_figures(load_experiment(folder), file)
