"""Curves and figures of reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from captures import write_many
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from runs import LOST, STALL_NS, STALLED, write_line_run

from tailtap.analysis.evaluation import Evaluation, Histogram, evaluate
from tailtap.analysis.figures.curves import (
    SUPPORT,
    Curve,
    bins_per_decade,
    log_histogram,
    step_curve,
    tick_label,
    ticks_of_percentiles,
)
from tailtap.analysis.runs.groups import Configuration, configurations
from tailtap.analysis.runs.reader import experiment_of, load_experiment
from tailtap.analysis.runs.run import Integers
from tailtap.analysis.runs.text import as_words
from tailtap.show.report.figures import STEPS, bursts, cut_short, losses, ticks
from tailtap.show.report.hops import NAMED, OTHERS, Line, labelled, lines

SAMPLES = st.lists(st.integers(0, 5_000), min_size=1, max_size=400)


def value_at(curve: Curve, x: float) -> int:
    """The latency in ns that a curve shows at `x` = 1/(1-p)."""
    index = int(np.searchsorted(curve.x, x, side="left"))
    return int(curve.y[min(index, curve.y.size - 1)])


def counted(samples: list[int]) -> tuple[Integers, Integers]:
    values, counts = np.unique(np.array(samples, dtype=np.int64), return_counts=True)
    return values, counts


@given(SAMPLES)
def test_a_step_curve_is_the_sample(samples: list[int]) -> None:
    """Steps join and ascend; up to 100 packets every rank has its own; few packets support none."""
    curve = step_curve(*counted(samples))
    n, ordered = len(samples), sorted(samples)
    assert (curve.x[0], curve.x[-1]) == (1, 2 * n)
    assert (curve.y[0], curve.y[-1]) == (ordered[0], ordered[-1])
    assert (np.diff(curve.x) >= 0).all() and (np.diff(curve.y) >= 0).all()
    assert (curve.x[1:-1:2] == curve.x[2::2]).all()
    assert set(curve.y.tolist()) <= set(samples)
    for rank in range(1, n + 1) if n <= 100 else ():
        p = (rank - 0.5) / n  # in the middle of the rank's step
        assert value_at(curve, 1 / (1 - p)) == ordered[rank - 1]
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


def test_a_long_line_names_some_of_its_nodes() -> None:
    nodes = [f"dut{number}" for number in range(1, 65)]
    assert list(labelled(nodes).values()) == nodes[::4]
    assert list(labelled(nodes[:5]).values()) == nodes[:5]
