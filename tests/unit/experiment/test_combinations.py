"""Experiment files: what overrides, variables and scales make of them, and where they go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment_files import FIVE_LINES, check, complaint


def test_overrides_go_through_the_same_checks(tmp_path: Path) -> None:
    checked = check(tmp_path, FIVE_LINES, "traffic.rate=20 kpkt/s", "dut.cpus=[0, 1]", "repeat=1")
    experiment = checked.combinations[0][1]
    assert (experiment.traffic.rate, experiment.dut.cpus) == (20_000, (0, 1))
    assert checked.repeat == 1
    assert complaint(tmp_path, FIVE_LINES, "traffic.rate=20") == (
        "--set 'traffic.rate=20': traffic.rate: 20 has no unit: write '20 pkt/s', or take one "
        "of kpkt/s, Mpkt/s"
    )
    assert complaint(tmp_path, FIVE_LINES, "trafic.rate=20 pkt/s") == (
        "--set 'trafic.rate=20 pkt/s': trafic: unknown key: did you mean 'traffic'?"
    )
    assert "write it as path=value" in complaint(tmp_path, FIVE_LINES, "traffic.rate")
    assert "holds a single value" in complaint(tmp_path, FIVE_LINES, "name.first=x")


def test_a_varied_value_cannot_be_set_in_vain(tmp_path: Path) -> None:
    text = FIVE_LINES + "vary:\n  traffic.flows: [1, 2]\n"
    assert complaint(tmp_path, text, "traffic.flows=3") == (
        "--set 'traffic.flows=3': traffic.flows is varied by /e.yaml:7: "
        "set the list instead, --set 'vary.traffic.flows=[…]'"
    )
    checked = check(tmp_path, text, "vary.traffic.flows=[5, 6, 7]")
    assert [variables for variables, _ in checked.combinations] == [
        {"traffic.flows": 5},
        {"traffic.flows": 6},
        {"traffic.flows": 7},
    ]
    assert len(check(tmp_path, text, "traffic.flows=3", "vary={}").combinations) == 1


def test_a_combination_is_checked_as_a_whole(tmp_path: Path) -> None:
    # Each value is fine alone; packets of one rate for one of the durations are not.
    text = "name: a\ntraffic: {}\nvary:\n  traffic.rate: [1 pkt/s, 1 kpkt/s]\n"
    text += "  traffic.duration: [2 s, 100 ms]\nevaluation: {trim: 1 ms}\n"
    assert complaint(tmp_path, text) == (
        "/e.yaml:2: traffic: not a single packet fits: 1 pkt/s for 100 ms, with "
        "vary.traffic.rate[0] (/e.yaml:4) and vary.traffic.duration[1] (/e.yaml:5)"
    )


def test_too_many_combinations(tmp_path: Path) -> None:
    numbers = list(range(1, 151))
    text = f"name: a\ntraffic: {{}}\nvary:\n  traffic.flows: {numbers}\n  dut.cpus: "
    text += str([[number] for number in numbers])
    assert "22500 combinations, at most 10000" in complaint(tmp_path, text)


def test_one_path_cannot_vary_inside_another(tmp_path: Path) -> None:
    text = "name: a\ntraffic: {}\nvary:\n  dut.options: [{}]\n  dut.options.drop: [[1]]\n"
    assert complaint(tmp_path, text) == (
        "/e.yaml:5: vary.dut.options.drop: dut.options varies as a whole already"
    )


SCALES = """\
name: scaled
traffic: {rate: 10 kpkt/s, duration: 2 s}
vary:
  traffic.flows: [1, 2]
scales:
  paper: {traffic.rate: 1 Mpkt/s, traffic.duration: 160 s, repeat: 10}
  wide: {"vary.traffic.flows": [1, 100]}
"""


def test_a_scale_replaces_values_before_other_overrides(tmp_path: Path) -> None:
    plain = check(tmp_path, SCALES)
    assert [e.traffic.rate for _, e in plain.combinations] == [10_000, 10_000]
    paper = check(tmp_path, SCALES, "traffic.duration=1 s", "scale=paper")
    assert {(e.traffic.rate, e.traffic.duration) for _, e in paper.combinations} == {
        (1_000_000, 1_000_000_000)
    }
    assert paper.repeat == 10
    # What is stored with the runs is the experiment at that scale, and no other.
    assert "scales" not in paper.document.data
    assert paper.document.data["traffic"]["rate"] == "1 Mpkt/s"
    wide = check(tmp_path, SCALES, "scale=wide")
    assert [e.traffic.flows for _, e in wide.combinations] == [1, 100]


@pytest.mark.parametrize("overrides", [(), ("scale=paper",)])
def test_a_slip_in_a_scale_shows_whether_or_not_it_is_chosen(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    def said(values: str) -> str:
        text = f"name: a\ntraffic: {{}}\nvary: {{dut.cpus: [[0], [1]]}}\nscales:\n  paper: {values}"
        return complaint(tmp_path, text, *overrides)

    assert (
        said("{traffic.rat: 1 pkt/s}")
        == "/e.yaml:5: traffic.rat: unknown key: did you mean 'rate'?"
    )
    assert said("{traffic.rate: 1}").startswith("/e.yaml:5: traffic.rate: 1 has no unit")
    assert said("{dut.cpus: [1]}") == (
        "/e.yaml:5: scales.paper.dut.cpus: dut.cpus is varied by /e.yaml:3: set the list instead, "
        "as vary.dut.cpus"
    )
    assert said("{name: b}") == "/e.yaml:5: scales.paper.name: a scale cannot set name"
    assert said("7") == (
        "/e.yaml:5: scales.paper: write a mapping from key paths to values, such as {repeat: 10}"
    )
    assert said("{name.first: b}") == "/e.yaml:5: scales.paper.name.first: a scale cannot set name"
    assert said("{repeat.first: 2}") == (
        '/e.yaml:5: repeat: {"first": 2} is wrong, wanted: whole number, 1 to 10000, such as 3'
    )


def test_choosing_a_scale(tmp_path: Path) -> None:
    assert complaint(tmp_path, SCALES, "scale=papers") == (
        "--set 'scale=papers': there is no scale 'papers': did you mean 'paper'?"
    )
    assert complaint(tmp_path, FIVE_LINES, "scale=paper") == (
        "--set 'scale=paper': /e.yaml has no scales"
    )
    assert complaint(tmp_path, SCALES, "scale=wide", "scale=paper") == (
        "--set 'scale=paper': the scale is wide already: choose one"
    )
    assert complaint(tmp_path, SCALES, "scales.paper.repeat=2") == (
        "--set 'scales.paper.repeat=2': set the value itself, not that of a scale"
    )
    assert complaint(tmp_path, FIVE_LINES + "scale: paper\n") == (
        "/e.yaml:6: scale: unknown key: did you mean 'scales'?"
    )
    assert complaint(tmp_path, FIVE_LINES + "scales: paper\n") == (
        "/e.yaml:6: scales: this is a mapping from a name to key paths"
    )
