"""`tailtap host` asked more than once: no other test may tune this machine between the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from program import tailtap

pytestmark = pytest.mark.apart


def test_a_plan_says_what_apply_would_set_and_sets_nothing() -> None:
    audited = json.loads(tailtap("host", "audit", "--json").stdout)
    planned = json.loads(tailtap("host", "apply", "--dry-run", "--json").stdout)
    assert planned["dry_run"] is True
    assert {row["name"] for row in planned["changes"]} <= {
        row["name"]
        for row in audited["rows"]
        if row["answer"] == "not-met" and row["settable"] == "runtime"
    }
    left = {row["name"] for row in planned["left"]}
    assert {
        row["name"]
        for row in audited["rows"]
        if row["answer"] == "not-met" and row["settable"] == "boot"
    } <= left
    again = json.loads(tailtap("host", "audit", "--json").stdout)
    assert settable(again) == settable(audited)


def settable(audited: dict[str, Any]) -> dict[str, str]:
    """The answer of each knob that can be set; what only can be read changes by itself."""
    return {row["name"]: row["answer"] for row in audited["rows"] if row["settable"] == "runtime"}


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


def test_the_last_line_is_the_words() -> None:
    shown = tailtap("host", "bootline")
    assert shown.returncode == 0, shown.stderr
    content = json.loads(tailtap("host", "bootline", "--json").stdout)
    assert content["schema"] == "tailtap.bootline/1"
    assert shown.stdout.splitlines()[-1] == content["line"]
    assert tailtap("host", "bootline", "--quiet").stdout == f"{content['line']}\n"
    assert [row["word"] for row in content["words"]] == content["line"].split()
    assert "rcu_nocb_poll" in shown.stdout
    for clause in content["wrong"]:
        assert f"tailtap: {clause}\n" in shown.stderr
