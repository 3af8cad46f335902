"""`dut.tuning`: what may be written, and which knobs it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
from scratch_machine import scratch_machine

from tailtap.base.errors import InputError
from tailtap.experiment.model import Experiment
from tailtap.experiment.reading import read_experiment
from tailtap.experiment.tuning import Without, ablation, knobs_of, purpose_of
from tailtap.host.knobs import KNOBS
from tailtap.host.knobs.purpose import Purpose
from tailtap.host.knobs.tree import Tree
from tailtap.measure.campaign import experiment_text

RUNTIME = [knob.name for knob in KNOBS if knob.settable == "runtime" and knob.recommended]
FIRST = RUNTIME[0]
TEXT = """\
name: tuned
dut: {tuning: TUNING}
traffic: {rate: 1 kpkt/s, duration: 1 s}
"""
VARIED = "vary: {dut.tuning: ablation}\n"


def read(tmp_path: Path, tuning: str) -> Experiment:
    path = tmp_path / "tuned.yaml"
    path.write_text(TEXT.replace("TUNING", tuning))
    [(_, experiment)] = read_experiment(path).combinations
    return experiment


@pytest.mark.parametrize(
    ("written", "knobs"),
    [
        ("none", []),
        ("runtime", RUNTIME),
        ("full", RUNTIME),
        ("[]", []),
        (f"[{FIRST}]", [FIRST]),
        (f"{{without: {FIRST}}}", RUNTIME[1:]),
        (f"{{without: [{', '.join(RUNTIME)}]}}", []),
        ("{without: []}", RUNTIME),
        ("[memory]", [k.name for k in KNOBS if k.name in RUNTIME and k.group == "memory"]),
    ],
)
def test_what_it_stands_for(tmp_path: Path, written: str, knobs: list[str]) -> None:
    experiment = read(tmp_path, written)
    assert knobs_of(experiment.dut.tuning) == knobs
    again = Experiment.model_validate(experiment.document())
    assert again.dut.tuning == experiment.dut.tuning


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("fast", "dut.tuning"),
        ("[no-such-knob]", "there is no knob or group 'no-such-knob'"),
        ("{without: no-such-knob}", "there is no knob or group 'no-such-knob'"),
        ("{with: timers}", "dut.tuning"),
        ("ablation", "dut.tuning"),
    ],
)
def test_what_is_refused(tmp_path: Path, written: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, written)
    assert "tuned.yaml:2" in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_only_a_boot_sets_is_refused(tmp_path: Path) -> None:
    boot = [knob.name for knob in KNOBS if knob.settable == "boot"]
    assert boot
    for name in boot:
        with pytest.raises(InputError, match="cannot be set while the machine runs: set it with"):
            read(tmp_path, f"[{name}]")


def test_ablation_leaves_out_each_knob_that_the_machine_does_not_meet(
    tmp_path: Path,
) -> None:
    tree = Tree(scratch_machine(tmp_path))
    values = ablation(Purpose.of(tree, "bare-metal", [1]), tree)
    left_out = [value["without"] for value in values[1:-1]]
    assert (values[0], values[-1]) == ("runtime", "none")
    assert left_out == [name for name in RUNTIME if name in left_out]
    assert left_out
    for name in left_out:
        assert name not in knobs_of(Without(without=name))


def test_somebody_must_do_the_housekeeping(tmp_path: Path) -> None:
    tree = Tree(scratch_machine(tmp_path))
    online = list(tree.online)
    with pytest.raises(InputError, match="leave no other CPU"):
        purpose_of("none", online, (), tree)
    assert purpose_of("container", online[1:], (), tree).role == "container"
    assert purpose_of("machine", online[1:], (), tree).role == "vm-host"


def test_the_stored_file_has_the_knobs_written_out(tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(TEXT.replace("{tuning: TUNING}", "{cpus: [1]}") + VARIED)
    checked = read_experiment(path)
    values = [variables["dut.tuning"] for variables, _ in checked.combinations]
    assert values[0] == "runtime" and values[-1] == "none"
    text = experiment_text(checked, path)
    assert text.startswith("# tuned.yaml with ablation written out for this machine\n")
    path.write_text(text)
    again = read_experiment(path)
    assert [variables["dut.tuning"] for variables, _ in again.combinations] == values
    assert experiment_text(again, path) == text
