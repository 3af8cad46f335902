"""What commands print fits the terminal; a pipe gets whole lines without blanks at their ends."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from made_records import made as record
from terminals import command, shown

from tailtap.base.errors import Check
from tailtap.cli.console import print_table
from tailtap.cli.machine import print_checks
from tailtap.cli.progress import listener
from tailtap.cli.spectrum import print_worst
from tailtap.cli.terminal import folded, words
from tailtap.experiment.plan import make_plan
from tailtap.experiment.reading import read_experiment
from tailtap.show.sections import Column, row, table
from tests.golden import folders


@pytest.fixture(scope="module", autouse=True)
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder with what is shown; its own name is no part of what is printed."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("terminal"))
    for name in ("modelled", "line", "described"):
        folders.FOLDERS[name](Path(name))
    yield
    os.chdir(before)


def checks() -> list[Check]:
    remedy = "take a machine on which guests boot: here QEMU emulates their CPU (TCG)"
    return [
        Check("kernel", "namespaces and veth", "ok", "a lab was built and removed", "", True),
        Check("platforms", "vm: KVM", "poor", "/dev/kvm is there, but hung for 10 s", remedy),
        Check("machines with a controller", "libvirt", "missing", "no virsh", remedy, True),
    ]


def progress() -> None:
    """A run's bar, its time and its complaints."""
    runs = make_plan(read_experiment(Path("described/network.yaml"), ()))
    message = "the hypervisor took 3 % of CPU 1's time" + 4 * ", and more"
    told = listener(quiet=False)
    told.begun(runs, len(runs))
    for run in runs:
        told.started(run)
        if told.wants_ticks:
            told.tick(0.5)
        told.finished(run, record(warnings=[{"code": "steal", "message": message}]))
    told.ended()


SHOWS: dict[str, Callable[[], object]] = {
    "run --check": partial(command, "run", "described/network.yaml", "--check"),
    "run, progress": progress,
    "evaluate, percentiles": partial(
        command, "evaluate", "line", "--percentiles", "10,20,30,40,50,60,70,80,90,95,99,99.9"
    ),
    "model": partial(command, "model", "modelled"),
    "verdict": partial(command, "verdict", "modelled", "--require", "p99.9 < 1 ms"),
    "compare": partial(command, "compare", "one=modelled", "two=line", "--at", "50"),
    "host audit": partial(command, "host", "audit", "--all", "--why"),
    "host apply": partial(command, "host", "apply", "--dry-run"),
    "host bootline": partial(command, "host", "bootline", "--with", "nohz-full"),
    "host export": partial(command, "host", "export", "--format", "sysctl", "--out", "x.conf"),
    "host revert": partial(command, "host", "revert", "--dry-run"),
    "clean": partial(command, "clean", "--dry-run"),
    "doctor": lambda: print_checks(checks(), able=True),
    "bad usage": partial(command, "evaluate", "a", "b", "--key", "x" * 20 + " y" * 90),
    "help": partial(command, "help", "verdict"),
    "run, the tail": lambda: print_worst(Path("modelled")),
}
"""What no golden shows: of this machine, of what runs, of tables with many columns."""
CUT = re.compile(r"\d\n *([num]s|%|[kM]?pkt/s)(?![\w/])")
"""A number on one line, and its unit on the next."""
WIDE = re.compile(r"isolcpus=\S+( \S+)*")
"""Words to copy: they stay one line on every terminal."""


@pytest.fixture(scope="module")
def piped(made: None) -> dict[str, str]:
    """What each of them prints into a pipe."""
    found = {}
    for name, function in SHOWS.items():
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            function()
        found[name] = stream.getvalue()
    return found


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SHOWS)
def test_no_line_is_wider_than_the_terminal(piped: dict[str, str], name: str, columns: int) -> None:
    lines = shown(columns, SHOWS[name])
    assert len(" ".join(lines)) > 10
    wide = [line for line in lines if len(line) > columns and not WIDE.fullmatch(line)]
    assert not wide
    assert [pair for pair in pairwise(lines) if CUT.search("\n".join(pair))] == []
    assert "Traceback" not in "".join(lines)


@pytest.mark.parametrize("name", SHOWS)
def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends(
    piped: dict[str, str], name: str
) -> None:
    lines = piped[name].splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert "left out for want of room" not in piped[name]
    assert "\x1b" not in piped[name]


def test_what_is_left_out_is_named(piped: dict[str, str]) -> None:
    [heading, *_] = [row for row in piped["model"].splitlines() if row.startswith("threshold")]
    words = [word.strip() for word in heading.split("  ") if word.strip()]
    lines = shown(80, SHOWS["model"])
    narrow = next(row for row in lines if row.startswith("threshold")).split()
    told = " ".join(" ".join(lines).split())
    found = re.search(r"left out for want of room: (.*?); --json has all", told)
    assert found is not None
    left = found.group(1).split(", ")
    assert "level" in narrow and set(left).isdisjoint(narrow)
    assert set(" ".join(words).split()) == {*narrow, *" ".join(left).split()}
    assert max(map(len, piped["model"].splitlines())) > 120
    assert "left out for want of room" not in " ".join(shown(250, SHOWS["model"]))


def test_no_word_is_lost_where_lines_are_folded(piped: dict[str, str]) -> None:
    """A table of words has all of them on 80 columns, in its cells."""
    told = [word for check in checks() for word in f"{check.found} {check.remedy}".split()]
    narrow = " ".join(shown(80, SHOWS["doctor"]))
    assert [word for word in told if word not in narrow] == []


def test_a_bar_tells_the_time_that_is_left() -> None:
    assert re.search(r"001-\S+.* 0:\d\d:\d\d left", "\n".join(shown(120, progress)))


def test_the_program_itself_on_a_terminal() -> None:
    """As another process, whose width is the terminal's own."""
    words = [sys.executable, "-m", "tailtap", "verdict", "--list-profiles"]
    done = shown(80, lambda: subprocess.run(words, check=True, stdout=sys.stdout, timeout=60))
    assert max(map(len, done)) <= 80 and len(done) > 10


@pytest.mark.parametrize("columns", range(20, 200, 3))
def test_any_table_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailtap.cli.console.width_of", lambda _stream: columns)
    random = np.random.default_rng(columns)
    headings = [
        Column(
            f"column {at}",
            right=bool(random.integers(2)),
            wrap=int(random.integers(3)) * 8,
            spare=at % 5,
        )
        for at in range(8)
    ]
    lines = [row(*("word " * int(size) for size in random.integers(0, 9, 8))) for _ in range(20)]
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        print_table(table("", headings, lines))
    rows = stream.getvalue().splitlines()
    assert max(len(row) for row in rows if "left out" not in row) <= columns


def test_a_long_word_stays_whole_and_a_list_is_indented() -> None:
    path = "/a/path/" + 80 * "x"
    assert folded(f"results: {path} and more", 30) == f"results:\n  {path}\n  and more"
    assert folded("  - one two three", 12) == "  - one two\n    three"
    assert folded("short", 12) == "short" and folded("", 12) == ""
    parts = ["/system.slice/", "batch.service at", "10 pkt/s"]
    assert words("/system.slice/batch.service at 10 pkt/s", 20, break_words=True) == parts
