"""The figures of an experiment file in the report: files, data, page, and why one is not drawn."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from published import PUBLISHED, needs_published
from published_trees import write_tree

from tailtap.analysis.runs.reader import load_experiment
from tailtap.base.errors import InputError
from tailtap.results.importers.importer import import_tree
from tailtap.show.report.printing import SETTINGS, drawn
from tailtap.show.report.requested import (
    Requested,
    requested_figures,
    with_pictures,
    write_requested,
)

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


def test_each_figure_is_drawn_or_says_why_not(asked: list[Requested]) -> None:
    names = ["figure-5", "asked-percentile", "asked-tail-latency", "asked-shape", "asked-worst"]
    assert [one.name for one in asked] == names
    assert [one.reason for one in asked if one.drawn is None] == [
        "no run has a tail model: `tailtap model DIR` makes them"
    ]
    worst = asked[4].drawn
    assert worst is not None and any("nowhere" in note for note in worst.notes)


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
    made = asked[1].drawn
    assert made is not None
    rows = list(csv.DictReader((tmp_path / "asked-percentile.csv").open()))
    main = [row for row in rows if row["role"] == "main"]
    points = [
        (float(x), float(y))
        for mark in made.panels[0].marks
        if mark.role == "main"
        for x, y in zip(mark.x, mark.y, strict=True)
    ]
    assert [(float(row["x_pkt/s"]), float(row["y_ns"])) for row in main] == points
    again = tmp_path / "again"
    write_requested(asked[:1], again, below=None)
    for kind in ("svg", "pdf", "png"):
        name = f"figure-5.{kind}"
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


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


def test_the_page_has_them_with_their_words(asked: list[Requested]) -> None:
    first, *_, shape, _ = with_pictures(asked)
    assert first.title == "Latency <of> two devices" and first.figure.caption == "As it is."
    assert first.drawn is not None and first.drawn.shape[1] == 2
    assert first.wide != first.narrow
    assert first.wide.startswith("data:image/svg+xml;base64,")
    assert first.described.endswith("Latency over Percentile; wire, bare-metal")
    assert [table.title for table in first.drawn.tables] == ["Beside published"]
    assert shape.reason and not shape.wide


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


@needs_published
def test_published_runs_give_the_printed_cells_of_table_6(tmp_path: Path) -> None:
    """Those of scenario 1 that *The published data, compared* finds in the published files."""
    import_tree(PUBLISHED / "containerized-low-latency", tmp_path / "results.duckdb")
    file = tmp_path / "table.yaml"
    file.write_text("figures: [{kind: tail-latency, panels: traffic.rate, series: folder}]\n")
    (one,) = requested_figures(load_experiment(tmp_path), file)
    assert one.drawn is not None
    (table,) = one.drawn.tables
    told = {row[0]: row[2] for row in table.data if row[1] == "1 Mpkt/s"}
    printed = {
        "kernel/vanilla-non-optimized": 9969.08,
        "kernel/rt-optimized": 100.19,
        "container/rt/optimized": 108.86,
        "vm/vanilla-non-optimized": 840.63,
        "vm/rt-optimized": 124.12,
    }
    for folder, microseconds in printed.items():
        assert round(float(str(told[folder])) / 1000, 2) == microseconds, folder
