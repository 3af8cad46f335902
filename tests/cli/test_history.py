"""`tailtap history` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from comparisons import write_run
from forms import fits
from program import Finished, in_process

from tailtap.base.duck import connect
from tailtap.base.errors import InputError
from tailtap.records.machine import NOISE, NoiseRecord, NoisyCpu
from tailtap.records.record import as_json
from tailtap.results.history import load

COMMITS = 16
SLOW = 9
"""The first commit whose tail is longer."""


def add(history: Path, folder: Path, commit: str, *more: str) -> Finished:
    done = in_process("history", "add", folder, "--commit", commit, "--history", history, *more)
    assert done.returncode == 0, done
    return done


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of each commit, and two without a device."""
    folder = tmp_path_factory.mktemp("history")
    for commit in range(COMMITS):
        home = folder / "load" / f"{commit:02}" / "nightly"
        for number, (platform, scale) in enumerate(
            [("wire", 0.1), ("vm", 1.0 if commit < SLOW else 5.0)] * 2, 1
        ):
            write_run(home, number, {"dut.platform": platform}, scale=scale, packets=1_500,
                      repeat=(number + 1) // 2)  # fmt: skip
        date = f"2026-11-{commit + 1:02}T10:00:00"
        add(folder / "history.duckdb", home, f"commit{commit:02}", "--date", date, "--quiet")
    return folder / "history.duckdb"


def test_the_commit_is_named(history: Path, tmp_path: Path) -> None:
    show = ("history", "show", "--history", history)
    run = in_process(*show, "--at", "p99")
    assert (run.returncode, run.stderr) == (0, ""), run
    assert "nightly: vm, 10 kpkt/s, p99 in us" in run.stdout
    assert "nightly: wire, 10 kpkt/s, p99 in us, the floor" in run.stdout
    [said] = [line for line in run.stdout.splitlines() if "was the last before it" in line]
    assert f"from commit{SLOW:02} on" in said and "the program; the floor by x1.0" in said
    assert "no change is shown in 16 commits" in run.stdout
    page = tmp_path / "page" / "history.html"
    found = json.loads(in_process(*show, "--json", "--page", page).stdout)
    fits(found)
    assert len(found["commits"]) == COMMITS and len(found["series"]) == 2
    [mark] = [mark for series in found["series"] for mark in series["marks"]]
    assert (mark["place"], mark["origin"]) == (SLOW, "program")
    text = page.read_text()
    assert text.count("<svg") == 2 and text.count("<circle") == 2 * COMMITS
    assert f">commit{SLOW:02}<" in text and "http" not in text.replace("http-equiv", "")
    wrong = in_process(*show, "--at", "p98")
    assert wrong.returncode == 2 and "p98 is not kept" in wrong.stderr


def test_the_noise_beside_the_runs_is_kept(tmp_path: Path) -> None:
    """That of the noisiest core, where somebody measured it."""
    cpus = [
        NoisyCpu(cpu=cpu, elapsed_ns=1_000_000, reads=9, least_ns=20, gaps=1, gap_ns=ns, unkept=0,
                 median_ns=ns, p99_ns=ns, worst_ns=ns)
        for cpu, ns in ((0, 2_000), (1, 30_000))
    ]  # fmt: skip
    noise = NoiseRecord(above_ns=1_000, boot_id="b", kernel="6.1", cpus=cpus, causes=[],
                        named=None, worst=[], warnings=[])  # fmt: skip
    history = tmp_path / "history.duckdb"
    for commit in ("quiet", "loud"):
        write_run(tmp_path / commit, 1, {"dut.platform": "vm"}, packets=1_500)
        if commit == "loud":
            (tmp_path / commit / NOISE).write_text(json.dumps(as_json(noise)))
        add(history, tmp_path / commit, commit, "--date", "2026-11-01T10:00:00")
    assert {run.commit: run.noise for run in load(history)} == {"quiet": None, "loud": 0.03}


def test_the_same_again_replaces(history: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(history.read_bytes())
    home = history.parent / "load" / "03" / "nightly"
    found = json.loads(add(copy, home, "commit03", "--json", "--date", "2026-12-24").stdout)
    fits(found)
    assert (found["runs"], found["replaced"], found["left_out"]) == (4, 4, [])
    rows = load(copy)
    assert len(rows) == 4 * COMMITS and rows[-1].commit == "commit03"


def test_the_order_is_that_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    date = "2020-02-02T02:02:02+02:00"
    who = {f"GIT_{role}_{what}": "tester@example.org"
           for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    variables = {**os.environ, **who, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for line in ("git init --quiet", "git commit --quiet --allow-empty --message first"):
        subprocess.run(line.split(), env=variables, check=True)
    write_run(tmp_path / "load", 1, {}, packets=1_500)
    add(Path("history.duckdb"), Path("load"), "HEAD")
    assert load(Path("history.duckdb"))[0].date == "2020-02-02T00:02:02+00:00"


def test_a_strangers_history_runs_no_sql(tmp_path: Path) -> None:
    file = tmp_path / "history.duckdb"
    with connect(file) as connection:
        connection.execute("CREATE VIEW history_runs AS SELECT 1 AS id")
    with pytest.raises(InputError, match="a view instead of a table"):
        load(file)
