"""`tailtap evaluate`: pairs, pipes and hops; goldens have two clocks, both ways and requests."""

from __future__ import annotations

import ctypes.util
import json
import platform
import subprocess
from importlib.metadata import version as tailtap_version
from pathlib import Path
from typing import Any

import pytest
from captures import frame, pcap
from program import TAILTAP, answer, in_process, one_line_error, tailtap
from runs import write_line_run

from tailtap.cli.program import listed

Pair = tuple[Path, Path]
START, GAP, TOOK = 1_700_000_000_000_000_000, 50_000, 7_000
COUNT = 100
HAS_FILTERS = ctypes.util.find_library("pcap") is not None


def evaluated(*words: str | Path) -> dict[str, Any]:
    return answer("evaluate", *words)


def test_warnings_are_told_but_for_quiet(pair: Pair) -> None:
    pair[1].write_bytes(pair[1].read_bytes()[:-7])
    run = tailtap("evaluate", *pair)
    assert run.returncode == 0
    assert "warning: " in run.stderr and "[capture-damaged]" in run.stderr
    assert tailtap("evaluate", *pair, "--quiet").stderr == ""


def test_help_is_complete_and_the_version_says_what_it_runs_on() -> None:
    run = tailtap("--help")
    assert run.returncode == 0
    assert all(f"\n  {command} " in run.stdout for command in listed())
    without = tailtap()
    assert (without.returncode, without.stderr) == (2, run.stdout)
    run = tailtap("--version")
    assert run.returncode == 0
    assert dict(line.split(maxsplit=1) for line in run.stdout.splitlines()) == {
        "tailtap": tailtap_version("tailtap"),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def test_where_nobody_knows_which_were_lost_that_is_said(tmp_path: Path) -> None:
    same, other = frame(0, marker=0), frame(1, marker=0)
    came = [(number * 1_000_000, same) for number in range(50)] + [(60_000_000, other)]
    left = [(time + 700, packet) for time, packet in came if time != 7_000_000]
    (tmp_path / "in.pcap").write_bytes(pcap(came))
    (tmp_path / "out.pcap").write_bytes(pcap(left))
    words = (tmp_path / "in.pcap", tmp_path / "out.pcap", "--key", "packet", "--losses", "3")
    run = in_process("evaluate", *words, "--quiet")
    assert run.stdout.splitlines()[-1] == "not listed, as others are equal: 1 lost packet"
    assert "lost packets" not in run.stdout
    # With a window as long as packets are in the device at most, each is alone.
    run = in_process("evaluate", *words, "--window", "100 us", "--quiet")
    title, _, row = run.stdout.splitlines()[-3:]
    assert (title, row.split()[:2]) == ("lost packets", ["0.007000000", "7"])


def test_hops_are_the_same_in_pieces_and_stay_where_a_capture_is_gone(tmp_path: Path) -> None:
    run = write_line_run(tmp_path)
    whole = evaluated(run)
    files = {path.name: path.read_bytes() for path in (run / "evaluation").iterdir()}
    assert evaluated(run, "--chunk", "50 kB", "--jobs", "2") == whole
    assert {path.name: path.read_bytes() for path in (run / "evaluation").iterdir()} == files
    (run / "dut3.stamps").unlink()
    assert "dut3.stamps" in one_line_error(in_process("evaluate", run, "--quiet"), 2)
    assert {path.name: path.read_bytes() for path in (run / "evaluation").iterdir()} == files


def passing(later: int = 0) -> list[tuple[int, bytes]]:
    return [(START + number * GAP + later, frame(number)) for number in range(COUNT)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    before, behind = passing(), passing(TOOK)
    for name, content in {"in": before, "out": behind, "both": sorted(before + behind)}.items():
        (tmp_path / f"{name}.pcap").write_bytes(pcap(content))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"export TMPDIR=$PWD/tmp; {line.replace('tailtap', str(TAILTAP))}"],
        check=False, capture_output=True, text=True, cwd=folder, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "cat in.pcap | tailtap evaluate - out.pcap --json",
        "tailtap evaluate in.pcap - --json < out.pcap",
        "tailtap evaluate <(cat in.pcap) <(cat out.pcap) --json",
        "cat in.pcap | tailtap evaluate - <(gzip -c out.pcap) --json --jobs 2",
        "cat both.pcap | tailtap evaluate - --json",
        "tailtap evaluate both.pcap --ingress copy:1 --egress copy:2 --json",
        *["tailtap evaluate in.pcap out.pcap --filter 'udp port 53' --json"] * HAS_FILTERS,
    ],
)
def test_captures_come_through_pipes_of_which_nothing_is_left(folder: Path, line: str) -> None:
    run = shell(line, folder)
    assert run.returncode == 0 and not list((folder / "tmp").iterdir()), run.stderr
    found = json.loads(run.stdout)
    assert found["counts"]["matched"] == COUNT
    assert found["latency_ns"]["min"] == found["latency_ns"]["max"] == TOOK
    assert "back" not in found
    assert " - out" not in line or found["inputs"]["ingress"]["path"] == "-"


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        # No file may be longer than a kilobyte here, which stands for a disk that is full.
        ("ulimit -f 1; cat in.pcap | tailtap evaluate - out.pcap", 3,
         "the disk is full: set TMPDIR to a folder with more room"),
        ("tailtap evaluate <(echo no capture of any kind) out.pcap", 2,
         "not a capture that tailtap reads"),
        ("cat in.pcap | tailtap evaluate - -", 2,
         "the standard input can be one of the captures only"),
        ("cat in.pcap | tailtap evaluate - out.pcap --scheduler tcp://127.0.0.1:1", 2,
         "its workers cannot read -"),
    ],
)  # fmt: skip
def test_what_pipes_cannot(folder: Path, line: str, status: int, said: str) -> None:
    assert said in one_line_error(shell(line, folder), status)
