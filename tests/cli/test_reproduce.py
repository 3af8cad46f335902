"""`tailtap reproduce` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from program import one_line_error, tailtap
from small_crates import write_crate


def test_what_is_said(tmp_path: Path) -> None:
    """Not shown without checksums, and contradicted when a file is another."""
    crate = write_crate(tmp_path / "crate")
    run = tailtap("reproduce", f"file://{crate}", "--quiet")
    assert (run.returncode, run.stderr) == (5, "")
    assert run.stdout.splitlines()[0] == "A crate: crate of the RISE profile"
    assert run.stdout.splitlines()[-1] == "answer: not shown"
    (crate / "result.csv").write_text("A result")
    run = tailtap("reproduce", crate, "--quiet")
    assert run.returncode == 1 and run.stdout.splitlines()[-1] == "answer: contradicted"
    assert "it was changed: its checksum is another" in " ".join(run.stdout.split())
    run = tailtap("reproduce", crate, "--json", "--quiet")
    found = json.loads(run.stdout)
    assert (run.returncode, found["schema"], found["kind"], found["answer"]) == (
        1, "tailtap.reproduction/1", "crate", "contradicted",
    )  # fmt: skip


def test_errors_are_one_line(tmp_path: Path) -> None:
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        ((tmp_path,), "no site.json in it"),
        ((tmp_path / "nothing",), "no such folder"),
        ((tmp_path, "--out", tmp_path / "x"), "add --level small"),
        ((tmp_path, "--fetch", "2"), "2 has no unit"),
        (("http://127.0.0.1:1/site",), "Connection refused"),
    ]
    for arguments, said in cases:
        run = tailtap("reproduce", *arguments)
        assert said in one_line_error(run, 2)
