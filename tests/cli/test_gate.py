"""`tailtap compare --worse-than` as a user runs it, and as `git bisect run` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from comparisons import write_run
from forms import fits
from program import TAILTAP, in_process, one_line_error, tailtap

REPEATS = 6
COMMITS = 16
SUPPORT = Path(__file__).parents[1] / "support"
STEP = """import sys
from pathlib import Path
sys.path[:0] = [{support!r}]
from comparisons import write_run
out = Path({out!r}, Path("number").read_text().strip())
for repeat in range(1, {repeats} + 1):
    write_run(out, 100 * int(out.name) + repeat, {{"dut.platform": "vm"}}, packets=2_000,
              repeat=repeat, scale=float(Path("scale").read_text()))
"""
SCRIPT = """{python} {step} || exit 128
{tailtap} compare {base} {out}/$(cat number) --worse-than '50 %' --at p99 --bisect --quiet
"""


def write(folder: Path, scale: float, *, repeats: int = REPEATS, seed: int = 0) -> Path:
    for repeat in range(1, repeats + 1):
        write_run(
            folder, seed + repeat, {"dut.platform": "vm"}, packets=2_000, repeat=repeat, scale=scale
        )
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gate") / "base", 1.0)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gate") / "slow", 4.0, seed=50)


def judge(*arguments: str | Path) -> tuple[int, str]:
    run = in_process("compare", *arguments, "--at", "p99", "--quiet")
    return run.returncode, run.stdout


def test_the_status_is_the_answer(base: Path, slow: Path, tmp_path: Path) -> None:
    same = write(tmp_path / "same", 1.0, seed=20)
    few = write(tmp_path / "few", 4.0, repeats=2, seed=30)
    for new, status, answer, bisecting in (
        (same, 0, "no worse", 0),
        (slow, 1, "worse", 1),
        (few, 5, "not shown", 125),
    ):
        found = judge(base, new, "--worse-than", "50 %")
        assert found[0] == status and found[1].splitlines()[-1] == f"answer: {answer}"
        assert judge(base, new, "--worse-than", "50 %", "--bisect")[0] == bisecting
    status, text = judge(slow, base, "--worse-than", "50 %", "--json")
    answer = json.loads(text)
    fits(answer)
    assert (status, answer["answer"], answer["rows"][0]["percentile"]) == (0, "better", 0.99)
    assert answer["rows"][0]["configuration"] == "vm"


def test_several_folders_are_one_side(base: Path, slow: Path, tmp_path: Path) -> None:
    """Measured by turns, two repeats each."""
    turns = [(f"{name}={tmp_path / name}-{turn}", scale, 40 * turn) for turn in (1, 2, 3)
             for name, scale in (("before", 1.0), ("after", 4.0))]  # fmt: skip
    for side, scale, seed in turns:
        write(Path(side.partition("=")[2]), scale, repeats=2, seed=seed)
    found = judge(*(side for side, *_ in turns), "--worse-than", "50 %")
    assert found[0] == 1 and "after against before" in found[1] and "of 6" in found[1]


def test_files(base: Path, slow: Path, tmp_path: Path) -> None:
    files = (tmp_path / "gate.xml", tmp_path / "gate.md")
    run = tailtap("compare", f"before={base}", f"after={slow}", "--worse-than", "50 %",
                  "--at", "99", "--junit", files[0], "--markdown", files[1])  # fmt: skip
    assert run.returncode == 1 and "worse" in run.stdout
    assert "<failure" in files[0].read_text()
    assert "after against before" in files[1].read_text()
    nowhere = tmp_path / "none" / "gate.md"
    run = tailtap("compare", base, slow, "--worse-than", "50 %", "--markdown", nowhere, "--quiet")
    assert "--markdown" in one_line_error(run, 3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--worse-than", "0 %"], "above 0"),
        (["--worse-than", "some"], "--worse-than"),
        (["--bisect"], "give that, too"),
    ],
)
def test_mistakes(arguments: list[str], told: str, base: Path, slow: Path) -> None:
    run = in_process("compare", base, slow, *arguments, "--quiet")
    assert told in one_line_error(run, 2)


def test_no_mistake_calls_a_commit_bad(base: Path, slow: Path, tmp_path: Path) -> None:
    """`git bisect run` takes 2 and 3 for bad, and goes on with the wrong half."""
    gate = ("--worse-than", "50 %", "--bisect", "--quiet")
    for arguments in ((base, tmp_path / "none"), (base,), (base, slow, "--at", "p200"),
                      (base, slow, "--unknown")):  # fmt: skip
        one_line_error(in_process("compare", *arguments, *gate), 128)
    invalid = write(tmp_path / "invalid", 1.0, repeats=1)
    record = next(invalid.glob("runs/*/run.json"))
    record.write_text(json.dumps({**json.loads(record.read_text()), "valid": False}))
    assert "no good run" in one_line_error(in_process("compare", base, invalid, *gate), 125)
    one_line_error(in_process("compare", base, invalid, *gate[:2], "--quiet"), 3)


def test_git_bisect_finds_the_commit(base: Path, tmp_path: Path) -> None:
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
    (tmp_path / "step.py").write_text(
        STEP.format(support=str(SUPPORT), out=str(tmp_path), repeats=REPEATS)
    )
    script = tmp_path / "measure.sh"
    script.write_text(
        SCRIPT.format(python=sys.executable, step=tmp_path / "step.py", tailtap=TAILTAP, base=base,
                      out=tmp_path)
    )  # fmt: skip
    git("bisect", "start", "HEAD", f"HEAD~{COMMITS - 1}")
    told = git("bisect", "run", "sh", str(script))
    assert "is the first bad commit" in told
    assert git("log", "-1", "--format=%s", "refs/bisect/bad").strip() == "change 11"
