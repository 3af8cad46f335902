"""Losses over time: a mark for each burst, none without losses, and what is told of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import write_many
from experiment_folders import Integers, traffic, write_experiment, write_run
from numpy.typing import NDArray

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.runs.groups import Configuration, configurations
from tailtap.analysis.runs.reader import experiment_of, load_experiment
from tailtap.base.errors import InputError
from tailtap.show.report import figure, write_report
from tailtap.show.report.figures import STEPS, bursts, cut_short, losses, ticks

STEP = 10_000


def measured(folder: Path, lost: NDArray[np.bool_]) -> Evaluation:
    """Captures of a packet each 10 us, without the `lost` ones behind the device."""
    times = 10**9 + np.arange(lost.size) * STEP
    kept = np.flatnonzero(~lost)
    write_many(folder / "in.pcap", times, np.arange(lost.size))
    write_many(folder / "out.pcap", times[kept] + 5_000, kept)
    return evaluate(folder / "in.pcap", folder / "out.pcap", throughout=True)


def grouped(found: Evaluation) -> list[Configuration]:
    return configurations(experiment_of(found, "this"))


def drawn(found: Evaluation) -> tuple[NDArray[np.float64], Integers]:
    return bursts(grouped(found)[0].members[0].evaluation)


def test_each_burst_is_a_mark(tmp_path: Path) -> None:
    lost = np.zeros(20_000, bool)
    wanted = {0: 1, 100: 3, 5_000: 1, 9_000: 2_000, 19_990: 10}
    for first, many in wanted.items():
        lost[first : first + many] = True
    time, packets = drawn(measured(tmp_path, lost))
    assert packets.tolist() == list(wanted.values())
    # Nothing came before the first packet, which was lost itself.
    np.testing.assert_allclose(time, np.array(list(wanted)) * STEP / 1e9, atol=1e-9)


def test_of_marks_that_coincide_one_is_drawn(tmp_path: Path) -> None:
    lost = np.random.default_rng(3).random(200_000) < 0.3
    lost[150_000:153_000] = True
    found = measured(tmp_path, lost)
    time, packets = drawn(found)
    begun_ns, many = found.lost_packets.bursts
    assert many.size > 40_000
    assert packets.size < many.size / 2
    duration = grouped(found)[0].members[0].evaluation.duration
    every = np.floor((begun_ns - 10**9) / 1e9 / duration * STEPS)
    left = np.floor(time / duration * STEPS)
    # For each burst a mark of its height stands in its place.
    assert set(zip(every, many, strict=True)) == set(zip(left, packets, strict=True))
    assert packets.max() >= 3_000


@pytest.mark.parametrize("longest", [1, 4, 5, 6, 999, 1000, 1001, 8_000])
def test_the_longest_burst_is_inside_the_figure(tmp_path: Path, longest: int) -> None:
    lost = np.zeros(20_000, bool)
    lost[500 : 500 + longest] = True
    groups = grouped(measured(tmp_path, lost))
    labelled = ticks(groups)
    assert labelled[0] == 1 and labelled[-1] >= longest
    assert len(labelled) <= 10
    made = losses(groups)
    _, y = made.axes(made.panels[0])
    assert y.low is not None and y.low < 1 and y.high is not None and y.high > longest


def test_the_first_of_very_many_are_shown_and_that_is_told(tmp_path: Path) -> None:
    lost = np.ones(270_000, bool)
    lost[-5_000:] = False
    groups = grouped(measured(tmp_path, lost))
    assert cut_short(groups) == "Of this only the first 262,144 lost packets are shown."
    few = tmp_path / "few"
    few.mkdir()
    assert cut_short(grouped(measured(few, np.arange(3_000) < 5))) == ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("experiment"), packets=5_000)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_only_configurations_that_lost_packets_have_a_panel(folder: Path, tmp_path: Path) -> None:
    report = write_report(folder, tmp_path)
    html = report.page.read_text("utf-8")
    [section] = re.findall(r'<section aria-labelledby="losses">.*?</section>', html, re.S)
    titles = [text_of(title) for title in re.findall(r"<h3>.*?</h3>", section, re.S)]
    assert titles == ["bare-metal · 10 kpkt/s", "bare-metal · 50 kpkt/s"]
    assert 'href="figures/losses.pdf"' in section
    assert {path.name for path in report.figures} >= {"losses.pdf", "losses.svg", "losses.png"}
    groups = configurations(load_experiment(folder))
    for group in groups:
        for member in group.members:
            data = traffic(member.run.platform, member.run.rate or 0, 5_000, member.run.number)
            lost = np.flatnonzero(data.lost)
            time, packets = bursts(member.evaluation)
            assert packets.tolist() == ([1, 1, 10] if lost.size else [])
            begun = (data.ingress[lost[:3]] - data.ingress[0]) / 1e9
            np.testing.assert_allclose(time, begun, atol=1e-9)


def test_without_losses_there_is_no_section_and_no_figure(tmp_path: Path) -> None:
    write_run(tmp_path, 1, {"dut.platform": "wire"}, packets=2_000)
    report = write_report(tmp_path)
    assert 'aria-labelledby="losses"' not in report.page.read_text("utf-8")
    assert not [path for path in report.figures if path.stem == "losses"]
    [run] = (tmp_path / "runs").iterdir()
    with pytest.raises(InputError, match="no packet was lost, or it is not known which"):
        figure(Evaluation.load(run / "evaluation"), "losses")


def test_the_figure_of_one_evaluation(tmp_path: Path) -> None:
    lost = np.zeros(3_000, bool)
    lost[[5, 6, 7, 100]] = True
    [axes] = figure(measured(tmp_path, lost), "losses").axes
    [line] = axes.get_lines()
    shown: Any = line.get_xydata()
    np.testing.assert_allclose(shown, [[5 * STEP / 1e9, 3], [100 * STEP / 1e9, 1]])
