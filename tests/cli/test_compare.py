"""Runs compared: ranked, by `git bisect run` as a gate, and commit by commit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from comparisons import write_run
from forms import fits
from program import TAILTAP, Finished, answer, in_process

from tailtap.base.duck import connect
from tailtap.base.errors import InputError
from tailtap.records.causes import NOISE, NoiseRecord, NoisyCpu
from tailtap.records.record import as_json
from tailtap.results.history import load

COMMITS, REPEATS = 16, 6
SUPPORT = Path(__file__).parents[1] / "support"
STEP = """import sys
from pathlib import Path
sys.path[:0] = [{support!r}, {top!r}]
from comparisons import write_run
out = Path({out!r}, Path("number").read_text().strip())
for repeat in range(1, {repeats} + 1):
    write_run(out, 100 * int(out.name) + repeat, {{"dut.platform": "vm"}}, packets=2_000,
              repeat=repeat, scale=float(Path("scale").read_text()))
"""
SCRIPT = """{python} {step} || exit 128
{tailtap} compare {base} {out}/$(cat number) --worse-than '50 %' --at p99 --bisect --quiet
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two devices, four repeats each, one twice as slow."""
    folder = tmp_path_factory.mktemp("runs") / "two"
    for number in range(1, 9):
        platform, scale = (("bare-metal", 1.0), ("container", 2.0))[number > 4]
        write_run(
            folder, number, {"dut.platform": platform}, scale=scale, repeat=(number - 1) % 4 + 1
        )
    return folder


def compared(*words: str | Path) -> dict[str, Any]:
    return answer("compare", *words)


def test_the_same_experiment_before_and_after(experiment: Path, tmp_path: Path) -> None:
    """Folders are configurations of their own; what was given twice counts once."""
    after = Path(shutil.copytree(experiment, tmp_path / "after"))
    [load] = compared(experiment, after, experiment)["loads"]
    assert sorted((entry["label"], len(entry["repeats"])) for entry in load["configurations"]) == [
        (f"{folder} · {platform}", 4)
        for folder in ("after", "two")
        for platform in ("bare-metal", "container")
    ]


@pytest.mark.parametrize(
    ("required", "by", "p"),
    [
        ("[p50 < 1 ms, p90 < 1 ms, p99.99 < 1 ms, loss == 0]", "require", 0.9),
        ("[median < 1 ms, loss == 0]", "require", 0.5),
        ("[median < 1 ms, p99.999 < 1 ms]", "support", 0.999),
        ("[max < 1 ms]", "require", 1.0),
        ("['reliability(1 ms) >= 99 %']", "require", 0.99),
        ("[p99.999 < 1 ms]", "support", 0.999),
    ],
)
def test_what_the_experiments_require_is_what_they_are_judged_by(
    experiment: Path, tmp_path: Path, required: str, by: str, p: float
) -> None:
    folder = tmp_path / "required"
    shutil.copytree(experiment, folder, ignore=shutil.ignore_patterns("*-r3", "*-r4"))
    (folder / "experiment.yaml").write_text(f"name: a\nrequire: {required}\n")
    found = compared(folder)
    [load] = found["loads"]
    assert (load["percentile"], load["percentile_by"]) == (p, by)
    said = [w["message"] for w in found["warnings"] if "p99.999 is required" in w["message"]]
    assert len(said) == (by == "support")
    [load] = compared(folder, "--percentile", "99")["loads"]
    assert (load["percentile"], load["percentile_by"]) == (0.99, "option")


def write(folder: Path, scale: float, *, repeats: int = REPEATS, seed: int = 0) -> Path:
    for repeat in range(1, repeats + 1):
        write_run(
            folder, seed + repeat, {"dut.platform": "vm"}, packets=2_000, repeat=repeat, scale=scale
        )
    return folder


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Runs of a base, and slower ones."""
    folder = tmp_path_factory.mktemp("gate")
    return write(folder / "base", 1.0), write(folder / "slow", 4.0, seed=50)


def judged(*words: str | Path) -> Finished:
    return in_process("compare", *words, "--worse-than", "50 %", "--at", "p99", "--quiet")


def test_the_status_is_the_answer(sides: tuple[Path, Path], tmp_path: Path) -> None:
    base, slow = sides
    same = write(tmp_path / "same", 1.0, seed=20)
    few = write(tmp_path / "few", 4.0, repeats=2, seed=30)
    for new, status, said, bisecting in (
        (same, 0, "no worse", 0),
        (slow, 1, "worse", 1),
        (few, 5, "not shown", 125),
    ):
        found = judged(base, new)
        assert found.returncode == status
        assert found.stdout.splitlines()[-1] == f"answer: {said}"
        assert judged(base, new, "--bisect").returncode == bisecting
    better = answer("compare", slow, base, "--worse-than", "50 %", "--at", "p99")
    [row] = better["rows"]
    assert (better["answer"], row["percentile"], row["configuration"]) == ("better", 0.99, "vm")
    files = (tmp_path / "gate.xml", tmp_path / "gate.md")
    named = (f"before={base}", f"after={slow}")
    assert judged(*named, "--junit", files[0], "--markdown", files[1]).returncode == 1
    assert "<failure" in files[0].read_text()
    assert "after against before" in files[1].read_text()


def test_several_folders_are_one_side(tmp_path: Path) -> None:
    """Measured by turns, two repeats each."""
    turns = []
    for turn in (1, 2, 3):
        for name, scale in (("before", 1.0), ("after", 4.0)):
            folder = write(tmp_path / f"{name}-{turn}", scale, repeats=2, seed=40 * turn)
            turns.append(f"{name}={folder}")
    found = judged(*turns)
    assert found.returncode == 1
    assert "after against before" in found.stdout and "of 6" in found.stdout


def test_git_bisect_finds_the_commit(sides: tuple[Path, Path], tmp_path: Path) -> None:
    """Of sixteen commits the eleventh makes the tail worse."""
    source = tmp_path / "source"
    source.mkdir()
    who = {f"GIT_{role}_{what}": "tester@example.org"
           for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
    variables = {**os.environ, **who, "GIT_CONFIG_GLOBAL": "/dev/null"}

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=source, env=variables, check=True,
                              capture_output=True, text=True).stdout  # fmt: skip

    git("init", "--quiet")
    for number in range(1, COMMITS + 1):
        (source / "number").write_text(f"{number}\n")
        (source / "scale").write_text("4.0" if number >= 11 else "1.0")
        git("add", ".")
        git("commit", "--quiet", "--message", f"change {number}")
    step, script = tmp_path / "step.py", tmp_path / "measure.sh"
    step.write_text(
        STEP.format(
            support=str(SUPPORT), top=str(SUPPORT.parents[1]), out=str(tmp_path), repeats=REPEATS
        )
    )
    script.write_text(
        SCRIPT.format(
            python=sys.executable, step=step, tailtap=TAILTAP, base=sides[0], out=tmp_path
        )
    )
    git("bisect", "start", "HEAD", f"HEAD~{COMMITS - 1}")
    assert "is the first bad commit" in git("bisect", "run", "sh", str(script))
    assert git("log", "-1", "--format=%s", "refs/bisect/bad").strip() == "change 11"


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
    found = answer(*show, "--page", page)
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
