"""`tailtap host export` on the machine that runs the tests."""

from __future__ import annotations

from pathlib import Path

from program import one_line_error, tailtap


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("vm.swappiness = 1\n")
    cases = {
        ("--format", "tund"): "'tund' is not one of 'tuned', 'sysctl', 'ansible'",
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
