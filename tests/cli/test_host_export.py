"""`tailtap host export` on the machine that runs the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from program import one_line_error, tailtap


@pytest.mark.parametrize("name", ["tuned", "sysctl", "ansible"])
def test_formats(name: str, tmp_path: Path) -> None:
    printed = tailtap("host", "export", "--format", name)
    assert printed.returncode == 0, printed.stderr
    out = tmp_path / "made"
    for _ in range(2):  # an earlier export is replaced
        written = tailtap("host", "export", "--format", name, "--out", out)
        assert written.returncode == 0, written.stderr
    assert written.stdout == ""
    assert "knobs to" in written.stderr
    content = json.loads(tailtap("host", "export", "--format", name, "--json").stdout)
    assert out.read_text() == content["text"] == printed.stdout
    assert content["schema"] == "tailtap.host-export/1"
    if name == "ansible":
        assert isinstance(yaml.safe_load(printed.stdout), list)


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("vm.swappiness = 1\n")
    cases = {
        ("--format", "tund"): "--format: there is no 'tund': did you mean 'tuned'?",
        ("--format", "tuned", "--out", str(mine)): "is there, and is no export: name another file",
        ("--format", "tuned", "nothing"): "there is no knob or group 'nothing'",
    }
    for options, said in cases.items():
        assert said in one_line_error(tailtap("host", "export", *options), 2)
    done = tailtap("host", "export", "--format", "tuned", "--out", str(mine / "x"))
    said = "x: cannot write: Not a directory: name another file by --out"
    assert said in one_line_error(done, 3)
    assert mine.read_text() == "vm.swappiness = 1\n"
    assert "--format" in tailtap("host", "export").stderr
