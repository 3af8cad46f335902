"""`figures` of an experiment file: each mistake is an error at its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_files import check, complaint

FILE = """\
name: drawn
traffic: {rate: 50 kpkt/s, duration: 2 s}
vary:
  dut.platform: [wire, bare-metal]
  traffic.rate: [10 kpkt/s, 20 kpkt/s]
figures:
  - kind: hdr
    panels: traffic.rate
    series: {by: dut.platform, order: [bare-metal], names: {wire: Floor}}
    runs: {traffic.rate: [10 kpkt/s]}
    axes: {y: {scale: linear, range: [0 us, 200 us]}}
    line: p99.9 < 1 ms
    beside: {path: tree, where: {vm/rt: {dut.platform: bare-metal}}}
"""


def test_a_figure_is_read_and_is_no_parameter_of_a_run(tmp_path: Path) -> None:
    experiment = check(tmp_path, FILE).combinations[0][1]
    (figure,) = experiment.figures
    assert figure.panels is not None and figure.series is not None
    assert [along.by for along in figure.panels] == [["traffic.rate"]]
    assert figure.series.place(("bare-metal",)) < figure.series.place(("wire",))
    assert figure.axes.y.bounds(figure.made.y.quantity) == (0, 200_000)
    assert [wanted.limit for wanted in figure.required] == [1_000_000]
    assert "figures" not in experiment.parameters()
    again = check(tmp_path, str(experiment.document()).replace("None", "null"))
    assert again.combinations[0][1].figures == experiment.figures


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: hdr", "kind: hdrs", ":7: figures[0].kind: there is no kind of figure 'hdrs'"),
        ("panels: traffic.rate", "panels: traffic.rat", ":8: figures[0].panels: nothing varies by"),
        ("order: [bare-metal]", "order: [vm]", ":9: figures[0].series: 'vm' is no value of dut.pl"),
        ("names: {wire", "names: {wires", "'wires' is no value of dut.platform"),
        ("[10 kpkt/s]}", "[30 kpkt/s]}", ":10: figures[0].runs.traffic.rate: '30 kpkt/s' is no"),
        ("200 us", "200", ":11: figures[0].axes.y.range: 200 has no unit"),
        ("0 us, 200", "300 us, 200", "the axis ends before it begins"),
        ("scale: linear", "scale: log", "a logarithmic axis does not reach 0"),
        ("p99.9 < 1 ms", "loss < 1 %", ":12: figures[0].line: 'loss < 1 %' is no line in a figure"),
        ("path: tree", "tree: tree", ":13: figures[0].beside.tree: unknown key"),
        ("{dut.platform: bare", "{dut.kernel: bare", "nothing varies by 'dut.kernel'"),
        ("kind: hdr", "kind: hdr\n    over: traffic.rate", "hdr does not have this key"),
        ("kind: hdr", "kind: percentile\n    percentile: p100", "is no percentile"),
        ("kind: hdr", "kind: counter", "name what is counted"),
        ("kind: hdr", "kind: counter\n    counter: LOC", "'0 us' is no number"),
        (
            "name: drawn",
            "name: drawn\nscales: {more: {vary.traffic.rate: [1 Mpkt/s]}}",
            "10 kpkt/s",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert FILE.count(old) == 1
    assert said in complaint(tmp_path, FILE.replace(old, new))


def test_counters_must_be_asked_for(tmp_path: Path) -> None:
    file = FILE[: FILE.index("figures:")] + "figures: [{kind: counter, counter: LOC}]\n"
    assert "nothing is counted" in complaint(tmp_path, file)
    assert check(tmp_path, f"{file}interrupts: counters\n").combinations[0][1].figures


def test_two_figures_need_two_names(tmp_path: Path) -> None:
    file = FILE[: FILE.index("figures:")]
    twice = "figures: [{kind: hdr, name: one}, {kind: worst, name: one}]\n"
    assert "figures[1].name: one is taken already" in complaint(tmp_path, file + twice)
