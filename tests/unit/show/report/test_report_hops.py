"""A line hop by hop in the report: who is named, what is drawn, and what is said of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from line_runs import LOST, PACKETS, STALL_NS, STALLED, write_line_run
from pages import visible
from runs import write_run

from tailtap.analysis.runs.groups import configurations
from tailtap.analysis.runs.reader import load_experiment
from tailtap.show.report import write_report
from tailtap.show.report.hops import NAMED, OTHERS, Line, hop_figures, labelled, lines, section
from tailtap.show.report.hops import PACKETS as SHOWN
from tailtap.show.report.printing import write_figure


def line_of(folder: Path, nodes: int) -> Line:
    write_line_run(folder / "runs", nodes)
    [line] = lines(configurations(load_experiment(folder)))
    return line


def test_the_page_says_which_node_was_slow_and_which_one_lost(tmp_path: Path) -> None:
    write_line_run(tmp_path / "runs")
    write_run(tmp_path / "runs", 2)
    page = write_report(tmp_path, figures=False).page.read_text()
    text = visible(page)
    assert "The line hop by hop" in text
    assert "Lost: dut2 1." in text
    assert "dut3 19 999 0" in text
    assert "3.9 ms" in text
    assert page.count('data-kind="hop-packets"') == page.count('data-kind="hops"') == 1


def test_figures_for_print_have_a_panel_for_each_line(tmp_path: Path) -> None:
    line = line_of(tmp_path, 3)
    assert hop_figures([]) == []
    made = hop_figures([line, line, line])
    assert [(figure.name, len(figure.panels)) for figure in made] == [
        ("hops", 3),
        ("hop-packets", 3),
    ]
    for figure in made:
        [path] = write_figure(figure, tmp_path, figure.name, ["png"])
        assert path.stat().st_size > 1_000


def test_runs_without_hops_have_no_such_section(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", 1)
    text = write_report(tmp_path, figures=False).page.read_text()
    assert "The line hop by hop" not in text
    assert not lines(configurations(load_experiment(tmp_path)))
    assert not section([]).lines


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
    _, packets = hop_figures([line])
    bars = packets.panels[0].marks
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


def test_percentiles_are_drawn_that_every_hop_supports(tmp_path: Path) -> None:
    line = line_of(tmp_path, 3)
    assert list(line.percentiles) == ["p50", "p99", "p99.9", "max"]
    for place, hop in enumerate(line.hops.rows):
        assert line.percentiles["max"][place].value == hop.max
        assert line.percentiles["p99"][place].value == hop.percentiles([0.99])[0].value
    assert line.hops.rows[2].counts.matched == PACKETS - 1


def test_a_long_line_names_some_of_its_nodes() -> None:
    nodes = [f"dut{number}" for number in range(1, 65)]
    assert list(labelled(nodes).values()) == nodes[::4]
    assert list(labelled(nodes[:5]).values()) == nodes[:5]
