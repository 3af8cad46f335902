"""`tailtap testbed power` on a machine that is a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from program import one_line_error, tailtap

LAB = """\
hosts:
  dut:
    ssh: dut
    power:
      kind: command
      status: cat {state}
      switch_on: cp {folder}/on {state}
      switch_off: cp {folder}/off {state}
  other: {{ssh: other}}
cables: []
roles: {{dut: dut, generator: other, timestamper: other}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for word in ("on", "off"):
        (tmp_path / word).write_text(word)
    (tmp_path / "state").write_text("off")
    path = tmp_path / "lab.yaml"
    path.write_text(LAB.format(folder=tmp_path, state=tmp_path / "state"))
    return path


@pytest.mark.parametrize(
    ("actions", "state"),
    [(["status"], "off"), (["on"], "on"), (["on", "off"], "off"), (["cycle"], "on")],
)
def test_a_host_is_switched(lab: Path, actions: Sequence[str], state: str) -> None:
    for action in actions:
        done = tailtap("testbed", "power", str(lab), "dut", action, "--json")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"schema": "tailtap.power/1", "host": "dut", "power": state}


@pytest.mark.parametrize(
    ("words", "old", "new", "said"),
    [
        (["other", "on"], "", "", "hosts.other.power: this key is missing"),
        (["third", "on"], "", "", "has no host third: there are dut, other"),
        (["dut", "on"], "command", "magic", "lab.yaml:4: hosts.dut.power: kind: there is no power"),
        (["dut", "explode"], "", "", "explode"),
    ],
)
def test_mistakes_are_told(lab: Path, words: list[str], old: str, new: str, said: str) -> None:
    lab.write_text(lab.read_text().replace(old, new))
    done = tailtap("testbed", "power", str(lab), *words)
    assert said in done.stderr
    if words[1] != "explode":  # click shows how the command is used, too
        assert said in one_line_error(done, 2)
