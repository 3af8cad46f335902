"""Imported runs beside one's own: the same numbers, marked, and nothing that nobody published."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from experiment_folders import write_run
from hypothesis import given
from hypothesis import strategies as st
from pages import texts
from published import PUBLISHED, needs_published
from published_trees import write_mixed, write_rates

from tailtap.analysis.evaluation import Percentile
from tailtap.analysis.evaluation.percentiles import papers
from tailtap.analysis.figures.curves import curve_of, percentile_curve
from tailtap.analysis.runs.groups import DRAWN, Configuration, configurations, finding
from tailtap.analysis.runs.reader import load_experiment, short_places
from tailtap.analysis.runs.selection import select
from tailtap.base.errors import InputError
from tailtap.results.exporters import export
from tailtap.results.importers.importer import FIRST_NUMBER, import_tree
from tailtap.show.report import write_report
from tailtap.show.report.tables import counted, imported, summary

LABELS = ["wire", "bare-metal", *(f"{n} · 10 kpkt/s (imported)" for n in
          ("uncounted", "whole", "counted", "worst"))]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def groups(folder: Path) -> dict[str, Configuration]:
    found = configurations(load_experiment(folder))
    return {group.label.split(" ")[0]: group for group in found}


@pytest.fixture(scope="module")
def text(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a reader of the page sees."""
    page = write_report(folder, tmp_path_factory.mktemp("out"), figures=False).page.read_text()
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    plain = html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\u202f", " ")
    return re.sub(r"\s+", " ", plain)


def test_imported_runs_follow_ones_own_and_are_marked(folder: Path) -> None:
    found = configurations(load_experiment(folder))
    assert [group.label for group in found] == LABELS
    assert [group.origin is None for group in found] == [True] * 2 + [False] * 4
    assert len({group.light for group in found}) == 6
    assert [m.index for g in found for m in g.members] == list(range(6))


def test_an_imported_run_has_the_numbers_of_the_run_that_was_published(
    groups: dict[str, Configuration],
) -> None:
    ours, theirs = (groups[name].members[0].evaluation for name in ("bare-metal", "whole"))
    assert [(r.p, r.value, r.above, r.supported) for r in ours.percentiles] == [
        (r.p, r.value, r.above, r.supported) for r in theirs.percentiles
    ]
    assert (ours.packets, ours.offered, ours.maximum, ours.loss) == (
        theirs.packets, theirs.offered, theirs.maximum, theirs.loss,
    )  # fmt: skip
    assert ours.loss
    for side in ("ingress", "egress"):
        for left, right in (
            (ours.gaps[side].counts, theirs.gaps[side].counts),
            (ours.gaps[side].edges, theirs.gaps[side].edges),
            (ours.rate_packets[side], theirs.rate_packets[side]),
        ):
            assert left.tolist() == right.tolist()
        # Ours know the first packet to the nanosecond, theirs where the first second begins.
        assert ours.rate_start[side] == pytest.approx(theirs.rate_start[side], abs=1e-6)
    assert ours.histogram.counts.tolist() == theirs.histogram.counts.tolist()
    assert (ours.histogram.width, theirs.histogram.width) == (100, 100)
    assert ours.worst_latency.tolist() == theirs.worst_latency.tolist()
    assert ours.worst_time == pytest.approx(theirs.worst_time, abs=1e-6)


def test_the_curve_of_published_percentiles_never_understates(
    groups: dict[str, Configuration],
) -> None:
    ours, theirs = (groups[name].members[0].evaluation for name in ("bare-metal", "whole"))
    curve = curve_of(theirs)
    assert curve is not None and ours.packets
    latencies = np.repeat(ours.latencies, ours.latency_counts)
    n = ours.packets
    for p in [*papers(), *np.random.default_rng(3).uniform(0, 1, 500)]:
        if p > 1 - 1 / n:
            continue
        exact = latencies[max(int(np.ceil(round(p * n, 6))), 1) - 1]
        drawn = curve.y[np.searchsorted(curve.x, 1 / (1 - p), side="left")]
        assert drawn == exact if p in papers() else drawn >= exact
    assert (curve.x[-1], curve.y[-1]) == (2 * n, ours.maximum)
    assert curve.x[curve.split - 1] <= n / 10 < curve.x[curve.split + 1]
    assert (np.diff(curve.x) >= 0).all() and (np.diff(curve.y) >= 0).all()


def test_a_curve_without_a_number_of_packets_ends_where_it_stops_rising() -> None:
    rows = [
        Percentile(p, v, None, None, 0, False)
        for p, v in ((0.0, 5), (0.5, 7), (0.9, 9), (0.99, 12), (0.999, 12))
    ]
    curve = percentile_curve(rows, None)
    assert curve.x.tolist() == pytest.approx([1, 1, 1, 2, 2, 10, 10, 100])
    assert curve.y.tolist() == [5, 5, 7, 7, 9, 9, 12, 12]
    assert curve.split == 0
    whole = percentile_curve([*rows[:2], Percentile(1.0, 13, None, None, 0, False)], None)
    assert np.isfinite(whole.x).all() and whole.y[-1] == 13


def test_what_nobody_published_is_not_there(
    folder: Path, groups: dict[str, Configuration], text: str
) -> None:
    found = list(groups.values())
    table = summary(found)
    heads = [column.heading for column in table.columns]
    rows = {str(row.cells[0].value).split(" ")[0]: row for row in table.rows}
    p999 = heads.index("p99.9")
    assert "95 % confidence" in rows["bare-metal"].cells[p999].hint
    assert rows["whole"].cells[p999].value == rows["bare-metal"].cells[p999].value
    assert rows["whole"].cells[p999].hint.endswith("no confidence interval is published")
    assert rows["uncounted"].cells[p999].look == "unsupported"
    assert "is not published" in rows["uncounted"].cells[p999].hint
    assert {cell.value for cell in rows["worst"].cells[1:-1]} == {None}
    assert rows["worst"].cells[-1].value == rows["whole"].cells[-1].value
    missing = {cells[0].split(" ")[0]: cells[3] for cells in texts(imported(found))}
    assert missing == {
        "whole": "–",
        "counted": "percentiles",
        "uncounted": "histogram, counts",
        "worst": "percentiles, histogram, gaps, packet rates, counts",
    }
    counts = {cells[0].split(" ")[0]: cells[1:] for cells in texts(counted(found))}
    assert set(counts["worst"]) == {"–"}
    assert finding(groups["worst"], found).sentence == (
        "No percentiles are published; how many were lost is not published."
    )
    assert text.count("Not published: the files of this run hold no") == 1 + 1 + 2
    assert "no confidence interval is" in text and "the exact distribution is not published" in text
    assert "Shaded: distribution-free" in text


def test_runs_of_unknown_support_do_not_spoil_the_comparison(
    groups: dict[str, Configuration],
) -> None:
    assert {group.common_percentile for group in groups.values()} == {0.999}
    assert finding(groups["whole"], list(groups.values())).value == (
        finding(groups["bare-metal"], list(groups.values())).value
    )
    assert "Floor" not in finding(groups["whole"], list(groups.values())).sentence


def test_the_page_tells_where_each_run_is_from(folder: Path, text: str) -> None:
    assert "2 runs 39 988 packets 4 imported runs" in text.replace(" · ", " ")
    for name in ("whole", "counted", "uncounted", "worst"):
        assert str(folder.parent / "tree" / "measurements" / name / "latencies-pre") in text
    assert "it has no percentiles" in text  # the import's warning, without the path


def test_all_figures_for_print_are_made(folder: Path, tmp_path: Path) -> None:
    report = write_report(folder, tmp_path, runs=["2", "whole", "worst"])
    assert (report.runs, report.imported, len(report.figures)) == (1, 2, 18)
    assert all(path.stat().st_size > 1_000 for path in report.figures)


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
def test_runs_can_be_chosen(folder: Path, selections: list[str], labels: list[str]) -> None:
    found = configurations(select(load_experiment(folder), selections))
    assert [group.label for group in found] == labels


@pytest.mark.parametrize("selection", ["whole, wire", "20 kpkt/s", "7", "who", "", ","])
def test_a_choice_that_no_run_fits_says_what_there_is(folder: Path, selection: str) -> None:
    with pytest.raises(InputError, match=r"no run fits; there are 2 own and 4 imported") as error:
        select(load_experiment(folder), ["own", selection])
    assert "whole" in str(error.value) and "\n" not in str(error.value)


def test_choosing_only_failed_runs_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=300)
    write_run(tmp_path, 2, {"dut.platform": "vm"}, status="failed", error="no KVM")
    with pytest.raises(InputError, match=r"no finished run.*no KVM"):
        select(load_experiment(tmp_path), ["vm"])


def test_of_many_the_figures_show_some_and_the_tables_all(tmp_path: Path) -> None:
    rates = [*range(1_000, 12_000, 1_000), 50_000]
    tree = write_rates(tmp_path, rates)
    experiment = tmp_path / "experiment"
    write_run(experiment, 1, {"dut.platform": "wire"}, packets=300, rate=50_000)
    import_tree(tree, experiment / "results.duckdb")
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


def test_a_folder_of_nothing_but_imported_runs_has_a_report(tmp_path: Path) -> None:
    tree = write_rates(tmp_path, [10_000, 20_000])
    folder = tmp_path / "folder"
    import_tree(tree, folder / "results.duckdb")
    report = write_report(folder, figures=False)
    assert (report.runs, report.failed, report.imported) == (0, 0, 2)
    page = report.page.read_text()
    assert "<h1>many</h1>" in page and "Own alone" not in page


def test_worst_packets_alone_have_a_report(folder: Path, tmp_path: Path) -> None:
    report = write_report(folder, tmp_path, runs=["worst"])
    assert "hold no percentiles" in report.page.read_text()


def test_a_bare_evaluation_can_stand_beside_imported_runs(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(next(folder.glob("runs/002*/evaluation")), tmp_path / "mine")
    import_tree(write_rates(tmp_path, [10_000]), tmp_path / "mine" / "results.duckdb")
    report = write_report(tmp_path / "mine", figures=False)
    assert (report.runs, report.imported) == (1, 1)


def test_a_database_is_not_asked_for_a_report(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs", tmp_path / "runs")
    (tmp_path / "results.duckdb").write_bytes(b"damaged" * 1_000)
    assert len(load_experiment(tmp_path).finished) == len(load_experiment(folder).finished)
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match=r"results\.duckdb: there are no runs .*import .* again"):
        load_experiment(tmp_path)


def test_names_of_folders_are_text_never_markup(tmp_path: Path) -> None:
    tree = write_rates(tmp_path, [10_000])
    evil = "<img src=x onerror=alert(1)>$\\frac{"
    (tree / "wire").rename(tree / evil)
    import_tree(tree, tmp_path / "folder" / "results.duckdb")
    page = write_report(tmp_path / "folder", figures=False).page.read_text()
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


PLACES = st.lists(st.sampled_from(["a", "b", "measurements"]), min_size=1, max_size=4)


@given(st.sets(PLACES.map("/".join), min_size=1, max_size=8))
def test_short_names_tell_folders_apart(places: set[str]) -> None:
    short = short_places(places)
    assert len(set(short.values())) == len(places)
    assert all(len(short[place]) <= len(place) for place in places)


def test_short_names_leave_out_what_all_neighbours_share() -> None:
    assert short_places({"t/a/measurements/v1", "t/a/measurements/v2", "t/b/x/v1"}) == {
        "t/a/measurements/v1": "a/v1",
        "t/a/measurements/v2": "a/v2",
        "t/b/x/v1": "b",
    }
    assert short_places({"t/measurements/v1"}) == {"t/measurements/v1": "t/measurements/v1"}


@needs_published
def test_every_published_run_stands_beside_one_of_ours(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "bare-metal"}, packets=3_000)
    import_tree(PUBLISHED, tmp_path / "results.duckdb")
    found = configurations(load_experiment(tmp_path))
    imported = [group for group in found if group.origin]
    assert len(imported) == len({group.label for group in imported}) == 33
    assert sum(group.shows("hdr") for group in imported) == 31
    assert "containerized-low-latency/container/rt/optimized · 10 kpkt/s (imported)" in {
        group.label for group in imported
    }
    both = ["own", "imported, container, rt, optimized, 10 kpkt/s"]
    report = write_report(tmp_path, runs=both, figures=False)
    assert (report.runs, report.imported) == (1, 1)
    export(tmp_path, "papers", tmp_path / "export")  # imported runs are no runs of ours
    assert len(list((tmp_path / "export").rglob("*.percentiles.csv"))) == 1
