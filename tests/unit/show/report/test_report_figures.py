"""Figures of losses, of loss against the rate, and of hops: what is marked, and where."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import write_many
from experiment_folders import Integers, write_run
from numpy.typing import NDArray
from runs import LOST, PACKETS, STALL_NS, STALLED, write_line_run

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.runs.groups import Configuration, configurations
from tailtap.analysis.runs.reader import experiment_of, load_experiment
from tailtap.base.errors import InputError
from tailtap.show.report import figure
from tailtap.show.report.figures import STEPS, bursts, cut_short, loss, losses, ticks
from tailtap.show.report.hops import NAMED, OTHERS, Line, hop_figures, labelled, lines
from tailtap.show.report.hops import PACKETS as SHOWN
from tailtap.show.report.loss import axes_of, loss_curves
from tailtap.show.report.printing import write_figure

STEP = 10_000
RATES = (20_000, 40_000, 80_000)


def measured(folder: Path, lost: NDArray[np.bool_]) -> Evaluation:
    """Captures of a packet each 10 us, without the `lost` ones behind the device."""
    folder.mkdir(exist_ok=True)
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
    found = measured(tmp_path, lost)
    time, packets = drawn(found)
    assert packets.tolist() == list(wanted.values())
    # Nothing came before the first packet, which was lost itself.
    np.testing.assert_allclose(time, np.array(list(wanted)) * STEP / 1e9, atol=1e-9)
    [axes] = figure(found, "losses").axes
    shown: Any = axes.get_lines()[0].get_xydata()
    np.testing.assert_allclose(shown, np.column_stack([time, packets]), atol=1e-9)
    with pytest.raises(InputError, match="no packet was lost, or it is not known which"):
        figure(measured(tmp_path / "none", np.zeros(3_000, bool)), "losses")


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
    labels = ticks(groups)
    assert labels[0] == 1 and labels[-1] >= longest
    assert len(labels) <= 10
    made = losses(groups)
    _, y = made.axes(made.panels[0])
    assert y.low is not None and y.low < 1 and y.high is not None and y.high > longest


def test_the_first_of_very_many_are_shown_and_that_is_said(tmp_path: Path) -> None:
    lost = np.arange(270_000) < 265_000
    said = cut_short(grouped(measured(tmp_path, lost)))
    assert said == "Of this only the first 262,144 lost packets are shown."
    assert cut_short(grouped(measured(tmp_path / "few", np.arange(3_000) < 5))) == ""


def test_loss_is_a_curve_of_each_configuration_and_a_mark_of_each_run(tmp_path: Path) -> None:
    """A sharp limit, a little lower in each repeat; of the last run the generator failed."""
    made = [(platform, rate, repeat) for platform in ("wire", "bare-metal") for rate in RATES
            for repeat in (1, 2)]  # fmt: skip
    wanted: dict[str, list[tuple[int, int, float]]] = {"wire": [], "bare-metal": []}
    for number, (platform, rate, repeat) in enumerate(made, 1):
        limit = {"wire": 1e9, "bare-metal": 50_000}[platform] * (1.02 - 0.02 * repeat)
        share = max(0.0, 1 - limit / rate)
        wanted[platform].append((rate, repeat, round(share, 3)))
        write_run(
            tmp_path, number, {"dut.platform": platform, "traffic.rate": f"{rate // 1000} kpkt/s"},
            repeat=repeat, packets=1_000, rate=rate, loss=share,
            achieved=70_400.0 if number == len(made) else None,
        )  # fmt: skip
    groups = configurations(load_experiment(tmp_path))
    curves = loss_curves(groups)
    assert {
        curve.label: [(p.asked, p.member.run.repeat, round(p.loss, 3)) for p in curve.points]
        for curve in curves
    } == wanted
    points = [point for curve in curves for point in curve.points]
    assert [(point.asked, point.rate) for point in points if not point.valid] == [(80_000, 70_400)]
    line = [(point.asked, point.member.run.repeat) for point in curves[1].line]
    # Equal losses: the first repeat; at the highest rate the worse one is invalid.
    assert line == [(20_000, 1), (40_000, 1), (80_000, 1)]
    rates, losses = axes_of(curves)
    labels = losses.ticks or {}
    floor = min(labels)
    assert floor < min(p.loss for p in points if p.loss) / 10 and labels[floor] == "0"
    assert list(labels)[-1] == 1.0 and labels[1.0].startswith("100")
    assert not rates.log
    drawing = loss(groups)
    marks = [mark for mark in drawing.panels[0].marks if mark.form == "dots"]
    shown = sorted((float(mark.x[0]), float(mark.y[0])) for mark in marks)
    assert shown == sorted((p.rate, max(p.loss, floor)) for p in points)
    [hollow] = [mark for mark in marks if mark.role == "hollow"]
    assert hollow.x[0] == 70_400 and drawing.series[hollow.series].label == "bare-metal"
    assert drawing.legend[-1].label.startswith("invalid")


def line_of(folder: Path, nodes: int) -> Line:
    write_line_run(folder / "runs", nodes)
    [line] = lines(configurations(load_experiment(folder)))
    return line


@pytest.mark.parametrize("nodes", [3, 9])
def test_the_nodes_that_took_most_of_the_time_have_colours(tmp_path: Path, nodes: int) -> None:
    line = line_of(tmp_path, nodes)
    assert line.nodes == [f"dut{number}" for number in range(1, nodes + 1)]
    named = [place for place, colour in enumerate(line.colours) if colour != OTHERS]
    assert len(named) == min(nodes, NAMED)
    spent = line.times.sum(axis=0)
    assert spent[named].min() >= np.delete(spent, named).max(initial=0)
    assert len({line.colours[place] for place in named}) == len(named)
    assert ("other nodes", OTHERS) in line.legend or nodes <= NAMED
    # The held packet is the worst one, and its time is the third node's.
    assert line.times[0].argmax() == 2 and line.times[0, 2] == STALL_NS
    assert line.member.run.stored.worst_packets.key[line.shown[0]] == str(STALLED)
    assert str(LOST) not in line.member.run.stored.worst_packets.key


def test_bars_are_stacked_to_the_latency_of_each_packet(tmp_path: Path) -> None:
    line = line_of(tmp_path, 3)
    for place, hop in enumerate(line.hops.rows):
        assert line.percentiles["max"][place].value == hop.max
        assert line.percentiles["p99"][place].value == hop.percentiles([0.99])[0].value
    assert list(line.percentiles) == ["p50", "p99", "p99.9", "max"]  # that every hop supports
    assert line.hops.rows[2].counts.matched == PACKETS - 1
    assert hop_figures([]) == []
    made = hop_figures([line, line])
    assert [(one.name, len(one.panels)) for one in made] == [("hops", 2), ("hop-packets", 2)]
    for one in made:
        [path] = write_figure(one, tmp_path, one.name, ["png"])
        assert path.stat().st_size > 1_000
    bars = made[1].panels[0].marks
    assert all(bar.high is not None and len(bar.high) == SHOWN for bar in bars)
    for below, above in pairwise(bars):
        assert np.array_equal(np.asarray(below.high), np.asarray(above.low))
    assert not np.asarray(bars[0].low).any()
    latency = line.member.run.stored.worst_packets.latency_ns[line.shown]
    assert np.array_equal(np.asarray(bars[-1].high), latency)
    assert bars[2].told[0] == (
        f"dut3: 3.9\N{NO-BREAK SPACE}ms of "
        f"{round(latency[0] / 1e6, 3):g}\N{NO-BREAK SPACE}ms, packet {STALLED}"
    )


def test_a_long_line_names_some_of_its_nodes() -> None:
    nodes = [f"dut{number}" for number in range(1, 65)]
    assert list(labelled(nodes).values()) == nodes[::4]
    assert list(labelled(nodes[:5]).values()) == nodes[:5]
