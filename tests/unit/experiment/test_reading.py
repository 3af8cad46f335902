"""Experiment files: what is accepted, and what each error says and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailtap.errors import InputError
from tailtap.experiment.reading import CheckedExperiment, read_experiment

EXAMPLES = Path(__file__).parents[3] / "examples"

FIVE_LINES = """\
name: five-lines
traffic:
  rate: 50 kpkt/s
  duration: 2 s
repeat: 2
"""


def check(tmp_path: Path, text: str, *overrides: str) -> CheckedExperiment:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return read_experiment(path, overrides)


def complaint(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        check(tmp_path, text, *overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path), "")


def test_five_lines_are_enough(tmp_path: Path) -> None:
    [(variables, experiment)] = check(tmp_path, FIVE_LINES).combinations
    assert variables == {}
    assert experiment.parameters() == {
        "dut": {"platform": "bare-metal", "forwarder": "tc-mirred", "cpus": [1], "options": {}},
        "traffic": {
            "rate": 50_000,
            "size": 64,
            "duration": 2_000_000_000,
            "warm_up": 1_000_000_000,
            "flows": 1,
            "cpu": 0,
        },
        "evaluation": {"key": "auto", "trim": 0, "window": 5_000_000_000},
    }


@pytest.mark.parametrize("name", ["quickstart.yaml", "rates.yaml"])
def test_examples_are_valid(name: str) -> None:
    assert len(read_experiment(EXAMPLES / name).combinations) >= 2


def test_the_wire_has_no_forwarder(tmp_path: Path) -> None:
    checked = check(tmp_path, FIVE_LINES, "dut.platform=wire")
    assert checked.combinations[0][1].parameters()["dut"]["forwarder"] is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: a\ntrafic: {}\n",
            "/e.yaml:2: trafic: unknown key: did you mean 'traffic'? (and 1 more)",
        ),
        (
            "name: a\ntraffic:\n  rate: 10 kpkt/s\n  siez: 64 B\n",
            "/e.yaml:4: traffic.siez: unknown key: did you mean 'size'?",
        ),
        (
            "name: a\ntraffic:\n  rate: 10 kpps\n",
            (
                "/e.yaml:3: traffic.rate: '10 kpps' is not a packet rate: write a number and one "
                "of pkt/s, kpkt/s, Mpkt/s ('10 kpkt/s')"
            ),
        ),
        (
            "name: a\ntraffic:\n  duration: 10\n",
            (
                "/e.yaml:3: traffic.duration: 10 is not a time: write a number and one of "
                "ns, us, µs, ms, s, min, h ('10 s')"
            ),
        ),
        (
            "name: a\ntraffic: {}\ndut:\n  platform: bare_metal\n",
            (
                "/e.yaml:4: dut.platform: there is no platform 'bare_metal': "
                "did you mean 'bare-metal'?"
            ),
        ),
        (
            "name: a\ntraffic: {}\ndut:\n  cpus: 1\n",
            "/e.yaml:4: dut.cpus: input should be a valid tuple, not 1",
        ),
        (
            "name: a\ntraffic:\n  size: 60 B\n",
            (
                "/e.yaml:3: traffic.size: 60 B is no Ethernet frame: with its check sequence one "
                "has 64 B to 9018 B"
            ),
        ),
        (
            "name: a\ntraffic:\n  flows: true\n",
            "/e.yaml:3: traffic.flows: input should be a valid integer, not True",
        ),
        (
            "name: a\ntraffic:\n  rate: 1 pkt/s\n  duration: 1 ms\n",
            "/e.yaml:2: traffic: not a single packet fits: 1 pkt/s for 1 ms",
        ),
        (
            "name: a\ntraffic: {duration: 2 s}\nevaluation: {trim: 2 s}\n",
            "/e.yaml:1: evaluation.trim of 2 s leaves nothing of 2 s of traffic",
        ),
        (
            "name: a\ntraffic: {}\ndut:\n  options:\n    classifier: u32\n",
            "/e.yaml:5: dut.options.classifier: unknown key: known: ",
        ),
        (
            (
                "name: a\ntraffic: {}\ndut:\n  forwarder: fault\n  options:\n    hold:\n"
                "      ids: [1]\n      time: 5\n"
            ),
            (
                "/e.yaml:8: dut.options.hold.time: 5 is not a time: write a number and one of "
                "ns, us, µs, ms, s, min, h ('10 s')"
            ),
        ),
        (
            (
                "name: a\ntraffic: {}\ndut:\n  forwarder: fault\n  options: {drop: [3], "
                "duplicate: [3]}\n"
            ),
            "/e.yaml:5: dut.options: packet 3 cannot be dropped and duplicated",
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.rate:\n    - 1 kpkt/s\n    - 2 kpkts\n",
            (
                "/e.yaml:6: vary.traffic.rate[1]: '2 kpkts' is not a packet rate: write a number "
                "and one of pkt/s, kpkt/s, Mpkt/s ('10 kpkt/s')"
            ),
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.rat: [1 kpkt/s]\n",
            "/e.yaml:4: vary.traffic.rat[0]: unknown key: did you mean 'rate'?",
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  repeat: [1, 2]\n",
            (
                "/e.yaml:4: vary.repeat: only a path into dut, traffic, evaluation can vary, "
                "such as traffic.rate"
            ),
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.flows: 2\n",
            "/e.yaml:4: vary.traffic.flows: write a list of values, such as [1, 2]",
        ),
        (
            "name: a\ntraffic: {}\nvary:\n  traffic.flows: [2, 2]\n",
            "/e.yaml:4: vary.traffic.flows[1]: 2 is there already",
        ),
        (
            "name: a\ntraffic: {}\nevaluation: {key: moonsnif}\n",
            (
                "/e.yaml:3: evaluation.key: there is no key 'moonsnif' in a stamp file: did you "
                "mean 'moonsniff'? (others are for captures of whole packets, see `tailtap "
                "evaluate --key`)"
            ),
        ),
        ("traffic: {}\n", "/e.yaml:1: name: this key is missing"),
        ("name: a\nname: b\n", "/e.yaml:2: name: given twice, first on line 1"),
        ("name: &x a\n", "/e.yaml:1: anchors and aliases (&, *) are not supported"),
        ("- a\n", "/e.yaml:1: an experiment is a mapping with at least 'name' and 'traffic'"),
        ("", "/e.yaml:1: an experiment is a mapping with at least 'name' and 'traffic'"),
        ("name: a\n1: b\n", "/e.yaml:2: the key '1' is not a word"),
        (
            "name: a\ntraffic: {rate: [\n",
            (
                "/e.yaml:3: not valid YAML: while parsing a flow node expected the node content, "
                "but found '<stream end>'"
            ),
        ),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    assert complaint(tmp_path, text) == message


def test_files_that_are_no_experiments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_experiment(tmp_path / "none.yaml")
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_experiment(binary)
    large = tmp_path / "l.yaml"
    large.write_bytes(b"#" * 1_000_001)
    with pytest.raises(InputError, match="larger than 1 MB"):
        read_experiment(large)


def test_overrides_go_through_the_same_checks(tmp_path: Path) -> None:
    checked = check(tmp_path, FIVE_LINES, "traffic.rate=20 kpkt/s", "dut.cpus=[0, 1]", "repeat=1")
    experiment = checked.combinations[0][1]
    assert (experiment.traffic.rate, experiment.dut.cpus) == (20_000, (0, 1))
    assert checked.repeat == 1
    assert complaint(tmp_path, FIVE_LINES, "traffic.rate=20") == (
        "--set 'traffic.rate=20': traffic.rate: 20 is not a packet rate: write a number and one "
        "of pkt/s, kpkt/s, Mpkt/s ('10 kpkt/s')"
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
        "/e.yaml:2: traffic: not a single packet fits: 1 pkt/s for 100 ms"
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
