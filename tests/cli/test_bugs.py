"""Bugs, numbers that take hours to make, and the plug-in of pytest: what others build on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from comparisons import write_run
from packages import install
from program import TAILTAP, one_line_error, tailtap

BROKEN = """
from tailtap.lab.platforms.bare_metal import BareMetal


class Broken(BareMetal):
    def foresee(self, *arguments):
        {statement}
"""
EXPERIMENT = "name: a\ndut: {platform: broken, cpus: [0]}\ntraffic: {cpu: 0}\n"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str | Path]:
    """The command line that asks a platform of others, and the folder that has it in Python's path.

    Files for nobody in particular go into the folder `spare`.
    """
    for name in ("packages", "spare"):
        (tmp_path / name).mkdir()
    install(tmp_path / "packages", "broken", {"tailtap.platforms": "broken = broken:Broken"})
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "spare"))
    return ["run", tmp_path / "e.yaml", "--check"]


def breaks(tmp_path: Path, statement: str) -> None:
    (tmp_path / "packages/broken.py").write_text(BROKEN.format(statement=statement))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("zip([1], [], strict=True).__next__()", "ValueError: zip() argument 2 is shorter"),
        ("self.foresee(*arguments)", "RecursionError: maximum recursion depth exceeded"),
        ("open('/proc/there/is/none')", "FileNotFoundError: [Errno 2]"),
        ("assert False", "AssertionError ("),
        ("import sys; sys.exit('enough')", "enough"),
    ],
)
def test_a_bug_has_a_status_of_its_own_and_keeps_its_traceback(
    tmp_path: Path, check: list[str | Path], statement: str, said: str
) -> None:
    breaks(tmp_path, statement)
    message = one_line_error(tailtap(*check), 70)
    if said == "enough":
        assert message == "tailtap: enough"
        return
    assert message.startswith(f"tailtap: a bug of tailtap: {said}")
    [file] = (tmp_path / "spare").glob("tailtap-bug-*.txt")
    assert message.endswith(f"; the traceback is in {file}: please report it")
    assert file.read_text().startswith("Traceback (most recent call last):\n")
    assert "in foresee" in file.read_text()


def test_what_python_lacks_is_named_once_it_is_needed(
    tmp_path: Path, check: list[str | Path]
) -> None:
    without = "import sys; sys.modules['_lzma'] = None"
    (tmp_path / "packages/sitecustomize.py").write_text(without)
    breaks(tmp_path, "print('asked'); import lzma")
    done = tailtap(*check)
    message = one_line_error(done, 3)
    assert "asked" in done.stdout  # nothing before it asks for that module
    assert message.startswith("tailtap: this Python is compiled without its module _lzma, which")
    assert "liblzma-dev" in message


def test_a_bug_that_cannot_be_kept_is_told_whole(
    tmp_path: Path, check: list[str | Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(tmp_path, "1 / 0")
    # Python takes the working folder where none of the usual places can be written.
    unwritable = "import tempfile; tempfile.mkstemp = lambda **_: open('/none/there')"
    (tmp_path / "packages/sitecustomize.py").write_text(unwritable)
    done = tailtap(*check)
    assert done.returncode == 70
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert "ZeroDivisionError" in done.stderr.splitlines()[-1]
    assert done.stderr.endswith("; the traceback is above: please report it\n")


@pytest.mark.parametrize(
    ("statement", "status", "said"),
    [
        ("raise MemoryError", 3, "tailtap: this machine has no memory left for it: end what else"),
        ("raise KeyboardInterrupt", 4, "tailtap: interrupted"),
        ("raise OSError(28, 'No space left on device', '/x')", 3, "tailtap: /x: No space left on "),
    ],
)
def test_what_is_no_bug_has_its_usual_status(
    tmp_path: Path, check: list[str | Path], statement: str, status: int, said: str
) -> None:
    breaks(tmp_path, statement)
    assert one_line_error(tailtap(*check), status).startswith(said)
    assert not list((tmp_path / "spare").iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_no_answer(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TAILTAP, "verdict", "--list-profiles"],
            check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("tailtap: ")
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1


def test_who_reads_no_more_gets_no_answer_that_was_not_given() -> None:
    """The pipe's reader is gone before the program begins: what it prints goes nowhere."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [TAILTAP, "--help"], check=False, stdout=writing, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


MANY_DIGITS = "9" * 5000
"""Python refuses to read so many."""
HUGE = ("1e999999999", "1e400", MANY_DIGITS, f"0.{MANY_DIGITS}", f"1e{MANY_DIGITS}")
PARSERS = """
import sys
from tailtap.cli.datapath import parse_ids
from tailtap.base.errors import InputError
from tailtap.analysis.tail.peaks import parse_threshold
from tailtap.lab.generators.flows import parse_ports
from tailtap.lab.generators.pattern import parse_pattern
from tailtap.lab.generators.flows import parse_sizes
from tailtap.base.units import parse_rate, parse_share, parse_size, parse_time
from tailtap.analysis.verdict.requirement import parse_requirement

for number in sys.argv[1:]:
    for parse, text in (
        (parse_rate, f"{number} pkt/s"),
        (parse_size, f"{number} B"),
        (parse_sizes, f"64 B, {number} B"),
        (parse_time, f"{number} s"),
        (parse_share, f"1{number}%"),
        (parse_threshold, number + "9"),
        (parse_threshold, f"{number} us"),
        (parse_ports, f"1-{number}"),
        (parse_pattern, f"burst:packets={number}"),
        (lambda text: parse_ids(text, "--hold"), f"1,{number}"),
        (parse_requirement, f"p99 < {number} ms"),
        (parse_requirement, f"p{number} < 1 ms"),
        (parse_requirement, f"loss < 1{number} %"),
        (parse_requirement, f"gap(p{number}) < 1 ms"),
        (parse_requirement, f"reliability({number} s) > 9 %"),
    ):
        try:
            print(parse, text[:40], parse(text))
        except InputError:
            pass
"""


def test_every_parser_refuses_what_takes_hours() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARSERS, *HUGE],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


TESTS = """
import pytest

@pytest.mark.parametrize("require", ["p99 < 1 s", ["p99 < 1 s", "loss == 0"]])
def test_holds(tail_latency, require):
    assert [run.number for run in tail_latency({folder!r}, require).runs] == [1]

def test_violated(tail_latency):
    tail_latency({folder!r}, require=["loss == 0", "max < 1 us"])

def test_not_shown(tail_latency):
    tail_latency({folder!r}, require="p99.999 < 1 s")

def test_not_shown_and_allowed(tail_latency):
    tail_latency({folder!r}, require="p99.999 < 1 s", allow_not_shown=True)

def test_mistake(tail_latency):
    tail_latency("missing.yaml", require="p99 < 1 s")
"""


def test_a_test_holds_while_a_tail_does(tmp_path: Path) -> None:
    write_run(tmp_path / "load", 1, {}, packets=2_000)
    (tmp_path / "test_tail.py").write_text(TESTS.format(folder=str(tmp_path / "load")))
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tailtap.pytest_plugin", "-p", "no:cacheprovider",
         "--rootdir", tmp_path, "-rA", "test_tail.py"],
        cwd=tmp_path, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "3 failed, 3 passed" in found.stdout, found.stdout
    assert "max < 1 us: violated: 001-run-r1:" in found.stdout
    assert "p99.999 < 1 s: not shown" in found.stdout
    assert "Failed: tailtap: missing.yaml: " in found.stdout
    assert "Traceback" not in found.stdout


def test_it_costs_other_tests_nothing() -> None:
    heavy = {"numpy", "tailtap.library", "tailtap._core"}
    code = f"import sys, tailtap.pytest_plugin; print({heavy} & {{*sys.modules}})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
