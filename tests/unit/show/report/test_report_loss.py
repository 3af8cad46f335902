"""Loss against the packet rate: what is one curve, what is marked, what is told of heavy loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from experiment_folders import write_run
from pages import texts

from tailtap.analysis.runs.groups import configurations, finding
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.figures import loss, standard_figures
from tailtap.show.report.loss import LossCurve, axes_of, loss_curves
from tailtap.show.report.tables import losses, summary, warning_rows

LIMIT = {"wire": 1e9, "bare-metal": 50_000}
RATES = (20_000, 40_000, 80_000)


def loss_of(platform: str, rate: int, repeat: int) -> float:
    """A sharp limit, a little lower in each repeat."""
    return max(0.0, 1 - LIMIT[platform] * (1 - 0.02 * (repeat - 1)) / rate)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two platforms, three rates, two repeats; the generator failed once at the highest rate."""
    folder = tmp_path_factory.mktemp("rates")
    number = 0
    for platform in LIMIT:
        for rate in RATES:
            for repeat in (1, 2):
                number += 1
                write_run(
                    folder,
                    number,
                    {"dut.platform": platform, "traffic.rate": f"{rate // 1000} kpkt/s"},
                    repeat=repeat,
                    packets=10_000,
                    rate=rate,
                    loss=loss_of(platform, rate, repeat),
                    achieved=70_400.0 if number == 12 else None,
                )
    return folder


@pytest.fixture(scope="module")
def curves(folder: Path) -> list[LossCurve]:
    return loss_curves(configurations(load_experiment(folder)))


def test_configurations_that_differ_in_the_rate_alone_are_one_curve(
    curves: list[LossCurve],
) -> None:
    assert [curve.label for curve in curves] == ["wire", "bare-metal"]
    for curve in curves:
        points = [(p.asked, p.member.run.repeat, round(p.loss, 4)) for p in curve.points]
        assert points == [
            (rate, repeat, round(loss_of(curve.label, rate, repeat), 4))
            for rate in RATES
            for repeat in (1, 2)
        ]


def test_an_invalid_run_is_shown_where_it_was_and_not_on_the_line(curves: list[LossCurve]) -> None:
    bad = [point for point in curves[1].points if not point.valid]
    assert [(point.asked, point.rate) for point in bad] == [(80_000, 70_400.0)]
    line = [(point.asked, point.member.run.repeat) for point in curves[1].line]
    # Equal losses: the first repeat; at the highest rate the worse one is invalid.
    assert line == [(20_000, 1), (40_000, 1), (80_000, 1)]


def test_no_loss_lies_below_every_loss(curves: list[LossCurve]) -> None:
    scale = axes_of(curves)
    least = min(p.loss for curve in curves for p in curve.points if p.loss)
    assert scale.height(0) == scale.floor < least / 10
    assert scale.ticks[scale.floor] == "0"
    assert list(scale.ticks)[-1] == 1.0 and scale.ticks[1.0].startswith("100")
    assert not scale.log_rates


def test_the_figure_shows_every_run(folder: Path, curves: list[LossCurve]) -> None:
    groups = configurations(load_experiment(folder))
    made = loss(groups)
    marks = [mark for mark in made.panels[0].marks if mark.form == "dots"]
    shown = sorted((float(mark.x[0]), float(mark.y[0])) for mark in marks)
    scale = axes_of(curves)
    assert shown == sorted((p.rate, scale.height(p.loss)) for c in curves for p in c.points)
    hollow = [mark for mark in marks if mark.role == "hollow"]
    assert [mark.x[0] for mark in hollow] == [70_400.0]
    assert [made.series[mark.series].label for mark in hollow] == ["bare-metal"]
    assert made.legend[-1].label.startswith("invalid")


def test_one_rate_makes_no_curve(tmp_path: Path) -> None:
    folder = tmp_path
    for repeat in (1, 2):
        write_run(folder, repeat, {"dut.platform": "wire"}, repeat=repeat, packets=1_000)
    groups = configurations(load_experiment(folder))
    assert loss_curves(groups) == []
    assert "loss" not in {figure.name for figure in standard_figures(groups)}
    page = write_report(folder, figures=False).page.read_text("utf-8")
    assert "Loss against rate" not in page


def test_the_table_tells_rates_losses_and_what_to_doubt(
    folder: Path, curves: list[LossCurve]
) -> None:
    assert not curves[0].lossy  # a sentence says so
    rows = [cells[1:] for cells in texts(losses(configurations(load_experiment(folder)), []).table)]
    assert rows[0] == ["20 kpkt/s", "20 kpkt/s", "20 kpkt/s", "10 000", "0", "0", ""]
    assert rows[4][:3] == ["80 kpkt/s", "80 kpkt/s", "50 kpkt/s"]
    assert rows[4][4:] == ["3 750", "38 %", ""]
    assert (rows[5][1], rows[5][6]) == ("70.4 kpkt/s", "invalid")


def test_heavy_loss_shows_as_loss_and_not_as_latency(folder: Path) -> None:
    experiment = load_experiment(folder)
    groups = configurations(experiment)
    told = {group.label: finding(group, groups) for group in groups}
    over = told["bare-metal · 80 kpkt/s"]
    # The second repeat is invalid and lost more.
    assert (over.value, over.name) == ("38\u00a0%", "lost")
    assert "were lost (38\u00a0%), more than 0.1\u00a0%. Nobody knows how late" in over.sentence
    assert over.sentence.endswith(
        "1 of 2 repeats is invalid and left out: it was not the load asked for."
    )
    assert told["bare-metal · 40 kpkt/s"].name == "p99"
    place = next(i for i, group in enumerate(groups) if group.lost_heavily)
    row = summary(groups).parts[place].rows[0]
    assert row.cells[2].value == pytest.approx(0.375, abs=0.01)
    # No percentile above the share of packets that came through means anything.
    assert all(cell.look == "unsupported" for cell in row.cells[4:-1])
    [warning] = [row for row in warning_rows(experiment, groups) if row.code == "heavy-loss"]
    assert warning.runs == "bare-metal · 80 kpkt/s (all 2)"


def test_the_page_has_figure_table_and_marks(folder: Path) -> None:
    page = write_report(folder, figures=False).page.read_text("utf-8")
    assert re.search(r'class="figure" id="figure-[^"]+" data-kind="loss"', page)
    assert page.count("<i>tail lost</i>") == 1
