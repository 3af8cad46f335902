"""`tailtap evaluate` of pipes, of one file with both sides, and of captures of both directions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from captures import frame, pcap
from program import TAILTAP, one_line_error, tailtap

START, GAP, TOOK = 1_700_000_000_000_000_000, 50_000, 7_000
COUNT = 100


def passing(later: int = 0) -> bytes:
    return pcap((START + number * GAP + later, frame(number)) for number in range(COUNT))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.pcap").write_bytes(passing())
    (tmp_path / "out.pcap").write_bytes(passing(TOOK))
    both = sorted(
        (START + number * GAP + later, frame(number))
        for number in range(COUNT)
        for later in (0, TOOK)
    )
    (tmp_path / "both.pcap").write_bytes(pcap(both))
    return tmp_path


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line.replace("tailtap", str(TAILTAP))],
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
    ],
)
def test_captures_come_through_pipes(folder: Path, line: str) -> None:
    run = shell(line, folder)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["counts"]["matched"] == COUNT
    assert found["latency_ns"]["min"] == found["latency_ns"]["max"] == TOOK
    assert "back" not in found
    if " - out" in line:
        assert found["inputs"]["ingress"]["path"] == "-"


def test_nothing_is_left_of_a_pipe(folder: Path) -> None:
    (folder / "tmp").mkdir()
    run = shell("cat in.pcap | TMPDIR=$PWD/tmp tailtap evaluate - out.pcap", folder)
    assert run.returncode == 0 and not list((folder / "tmp").iterdir())


def test_a_full_disk_ends_in_a_sentence(folder: Path) -> None:
    """No file may be longer than a kilobyte here, which stands for a disk that is full."""
    run = shell("ulimit -f 1; cat in.pcap | tailtap evaluate - out.pcap", folder)
    message = one_line_error(run, 3)
    assert "-: what comes through it cannot be kept in " in message
    assert "the disk is full: set TMPDIR to a folder with more room" in message


def test_the_standard_input_is_one_capture(folder: Path) -> None:
    run = shell("cat in.pcap | tailtap evaluate - -", folder)
    assert "the standard input can be one of the captures only" in one_line_error(run, 2)
    run = shell("cat in.pcap | tailtap evaluate - out.pcap --scheduler tcp://127.0.0.1:1", folder)
    assert "its workers cannot read -" in one_line_error(run, 2)


def test_what_was_taken_of_a_file_is_told(folder: Path) -> None:
    run = tailtap("evaluate", folder / "both.pcap", "--quiet")
    lines = run.stdout.splitlines()
    assert lines[0] == f"before: {folder / 'both.pcap'}, copy:1"
    assert lines[1] == f"behind: {folder / 'both.pcap'}, copy:2"


def both_ways(folder: Path) -> None:
    """Requests and answers; the server's clock is 1 ms ahead."""
    client, server = [], []
    for number in range(COUNT):
        ask, answer = frame(number), frame(number + COUNT)
        # The addresses of an answer are those of its request, exchanged.
        answer = answer[:26] + answer[30:34] + answer[26:30] + answer[34:]
        time = START + number * 2 * GAP
        client += [(time, ask), (time + GAP + 9_000, answer)]
        server += [(time + 1_007_000, ask), (time + 1_000_000 + GAP, answer)]
    (folder / "client.pcap").write_bytes(pcap(sorted(client)))
    (folder / "server.pcap").write_bytes(pcap(sorted(server)))


def test_the_way_back_is_shown_below_the_way_there(folder: Path) -> None:
    both_ways(folder)
    pair = (folder / "client.pcap", folder / "server.pcap")
    run = tailtap("evaluate", *pair, "--out", folder / "results")
    assert run.returncode == 0, run.stderr
    there, back = run.stdout.split("\nthe way back\n")
    for text in (there, back):
        assert "two clocks: that of egress is ahead by" in text and "latency in us" in text
    assert "aligned by the packets of both [both-directions]" in run.stderr
    for name in ("results", "results/back"):
        assert (folder / name / "distribution.parquet").exists()
    printed = json.loads(tailtap("evaluate", *pair, "--json").stdout)
    assert printed["schema"] == printed["back"]["schema"] == "tailtap.evaluation/1"
    assert [path.rsplit("/", 1)[1] for path in printed["clocks"]["back"]] == [
        "server.pcap",
        "client.pcap",
    ]
    by_hand = tailtap("evaluate", *pair, "--back", *pair[::-1], "--json")
    assert json.loads(by_hand.stdout)["clocks"] == printed["clocks"]
    one = json.loads(tailtap("evaluate", *pair, "--direction", "back", "--json").stdout)
    assert one["latency_ns"] == printed["back"]["latency_ns"] and "back" not in one
