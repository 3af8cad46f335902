"""Curves and figures of reports."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import write_many
from experiment_folders import write_run
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from runs import LOST, PACKETS, STALL_NS, STALLED, write_line_run

from tailtap.analysis.evaluation import Evaluation, Histogram, Percentile, evaluate
from tailtap.analysis.figures.curves import (
    SUPPORT,
    Curve,
    bins_per_decade,
    confidence_band,
    log_histogram,
    outline,
    step_curve,
    tick_label,
    ticks_of_percentiles,
)
from tailtap.analysis.runs.groups import Configuration, configurations
from tailtap.analysis.runs.reader import experiment_of, load_experiment
from tailtap.analysis.runs.run import Integers
from tailtap.analysis.runs.text import as_words
from tailtap.base.errors import InputError
from tailtap.show.report import figure
from tailtap.show.report.figures import STEPS, bursts, cut_short, loss, losses, ticks
from tailtap.show.report.hops import NAMED, OTHERS, Line, hop_figures, labelled, lines
from tailtap.show.report.hops import PACKETS as SHOWN
from tailtap.show.report.loss import axes_of, loss_curves
from tailtap.show.report.printing import write_figure

SAMPLES = st.lists(st.integers(0, 5_000), min_size=1, max_size=400)


def value_at(curve: Curve, x: float) -> int:
    """The latency in ns that a curve shows at `x` = 1/(1-p)."""
    index = int(np.searchsorted(curve.x, x, side="left"))
    return int(curve.y[min(index, curve.y.size - 1)])


def counted(samples: list[int]) -> tuple[Integers, Integers]:
    values, counts = np.unique(np.array(samples, dtype=np.int64), return_counts=True)
    return values, counts


@given(SAMPLES)
def test_small_samples_are_drawn_exactly(samples: list[int]) -> None:
    # Up to 100 packets every rank has its own step: the curve is the empirical distribution.
    samples = samples[:100]
    n = len(samples)
    curve = step_curve(*counted(samples))
    ordered = sorted(samples)
    for rank in range(1, n + 1):
        p = (rank - 0.5) / n  # in the middle of the rank's step
        assert value_at(curve, 1 / (1 - p)) == ordered[rank - 1]


@given(SAMPLES)
def test_steps_join_and_ascend(samples: list[int]) -> None:
    curve = step_curve(*counted(samples))
    n = len(samples)
    assert curve.x[0] == 1
    assert curve.x[-1] == 2 * n
    assert curve.y[0] == min(samples)
    assert curve.y[-1] == max(samples)
    assert (np.diff(curve.x) >= 0).all()
    assert (np.diff(curve.y) >= 0).all()
    assert (curve.x[1:-1:2] == curve.x[2::2]).all()
    assert set(curve.y.tolist()) <= set(samples)


@given(SAMPLES)
def test_the_unsupported_part_has_fewer_than_ten_packets_above(samples: list[int]) -> None:
    curve = step_curve(*counted(samples))
    n = len(samples)
    if n <= SUPPORT:
        assert curve.split == 0
    else:
        assert curve.x[curve.split - 1] == pytest.approx(n / SUPPORT)


def test_a_million_packets_stay_few_corners_and_never_understate() -> None:
    samples = np.rint(4_000 * np.random.default_rng(1).pareto(1.5, 1_000_000)).astype(np.int64)
    values, counts = np.unique(samples, return_counts=True)
    curve = step_curve(values, counts)
    assert curve.x.size < 4_000
    ordered = np.sort(samples)
    for p in (0.1, 0.5, 0.9, 0.99, 0.9999, 0.99999, 0.999999):
        x = 1 / (1 - p)
        drawn = value_at(curve, x)
        exact = ordered[int(np.ceil(round(p * 1_000_000, 3))) - 1]
        later = 1 - 1 / (x * 10 ** (1 / 100))
        assert exact <= drawn <= ordered[int(later * 1_000_000)]


def test_many_equal_latencies_are_one_step_but_for_the_support() -> None:
    curve = step_curve(np.array([7]), np.array([1_000]))
    assert curve.x.tolist() == [1, 100, 100, 2_000]
    assert curve.y.tolist() == [7, 7, 7, 7]
    assert curve.split == 2


def percentile(p: float, low: int | None, high: int | None, supported: bool = True) -> Percentile:
    return Percentile(p, 50, low, high, 99, supported)


def test_the_band_spans_both_percentiles_that_enclose_it() -> None:
    rows = [
        percentile(0.5, 10, 20),
        percentile(0.75, 30, 40),
        percentile(0.8, None, 45),
        percentile(0.9, 50, 60),
        percentile(0.99, 70, 80, supported=False),
    ]
    x, low, high = confidence_band(rows)
    assert x.tolist() == pytest.approx([2, 4, 4, 10])
    assert low.tolist() == [10, 10, 30, 30]
    assert high.tolist() == [40, 40, 60, 60]
    x, low, high = confidence_band([percentile(0.5, 1, 2), percentile(0.9, 1, 2, supported=False)])
    assert x.size == low.size == high.size == 0  # not without two


@given(
    st.dictionaries(st.integers(0, 100_000), st.integers(1, 50), min_size=1, max_size=60),
    st.sampled_from([1, 100]),
    st.sampled_from([5, 40]),
)
def test_gathered_histograms_lose_nothing(
    buckets: dict[int, int], width: int, per_decade: int
) -> None:
    places = sorted(buckets)
    histogram = Histogram(
        np.array(places) * width, np.array([buckets[place] for place in places]), width
    )
    edges, counts = log_histogram(histogram, per_decade)
    assert edges.size == counts.size + 1
    assert counts.sum() == sum(buckets.values())
    assert (np.diff(edges) > 0).all()
    for place in places:
        bin_of = np.searchsorted(edges, place * width + width / 2, side="right") - 1
        assert 0 <= bin_of < counts.size
        assert counts[bin_of] >= buckets[place]


def test_bins_are_as_fine_as_the_range_is_narrow() -> None:
    narrow = Histogram(np.array([90_000, 110_000]), np.array([1, 1]), 100)
    wide = Histogram(np.array([0, 10_000_000]), np.array([1, 1]), 100)
    assert bins_per_decade([narrow]) > 1_000
    assert bins_per_decade([narrow, wide]) == 31  # five decades and a little
    none = np.empty(0, dtype=np.int64)
    assert bins_per_decade([Histogram(none, none, 100)]) == 1


def test_outlines_begin_and_end_on_the_floor() -> None:
    x, y = outline(np.array([1.0, 2.0, 4.0]), np.array([5, 0]), 0.7)
    assert x.tolist() == [1, 1, 2, 2, 4, 4]
    assert y.tolist() == [0.7, 5, 5, 0.7, 0.7, 0.7]
    none = np.empty(0, dtype=np.int64)
    edges, counts = log_histogram(Histogram(none, none, 100), 40)
    x, y = outline(edges, counts, 0.7)
    assert edges.size == counts.size == x.size == y.size == 0


def test_ticks_stand_at_round_percentiles() -> None:
    labels = [tick_label(x).replace("\u00a0", " ") for x in ticks_of_percentiles(2e6)]
    assert labels == [
        "50 %", "75 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tc-mirred", "tc-mirred"),
        ({"suricata": {"rules": "many", "mode": "dpdk"}}, "suricata (rules many, mode dpdk)"),
        ({"testpmd": {}}, "testpmd"),
        ({"external": {"command": "f () { :; }"}}, "external (command f () { :; })"),
        ({"kind": "burst", "packets": 32}, "kind burst, packets 32"),
        ({"without": ["timers", "same-pages"]}, "without timers and same-pages"),
        (["timers", "same-pages"], "timers and same-pages"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_varied_values_are_told_in_words(value: object, words: str) -> None:
    assert as_words(value) == words


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
