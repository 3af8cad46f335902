"""`tailtap evaluate`: pairs, pipes, both directions, two clocks, transactions."""

from __future__ import annotations

import ctypes.util
import json
import platform
import re
import struct
import subprocess
from importlib.metadata import version as tailtap_version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from captures import frame, pcap
from exchanges import dns, ping
from forms import fits
from program import TAILTAP, answer, in_process, one_line_error, tailtap
from runs import write_line_run
from two_clocks import TwoClocks

from tailtap.cli.program import listed
from tailtap.show.report import write_report

Pair = tuple[Path, Path]
START, GAP, TOOK = 1_700_000_000_000_000_000, 50_000, 7_000
COUNT = 100


def evaluated(*words: str | Path) -> dict[str, Any]:
    return answer("evaluate", *words)


def test_json_keeps_the_contract_and_tables_are_written(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    found = evaluated(*pair, "--out", out)
    assert (found["schema"], found["key"]) == ("tailtap.evaluation/1", "moonsniff")
    counts = "ingress egress matched lost unmatched_egress duplicate_ingress duplicate_egress"
    assert set(found["counts"]) >= {*counts.split(), "reordered", "noncausal"}
    latency = found["latency_ns"]
    assert (latency["min"], latency["max"], latency["mean"]) == (500, 699, 599.5)
    assert latency["percentiles"][0] == {
        "p": 0.5, "value": 599, "low": 598, "high": 601, "above": 10_000, "supported": True,
    }  # fmt: skip
    assert [p["supported"] for p in latency["percentiles"]] == [True] * 6 + [False] * 3
    assert set(found["worst"][0]) == {"latency", "ingress_ns", "egress_ns", "key"}
    tables = ("percentiles", "distribution", "histogram", "worst", "losses", "exceedances",
              "blocks", "gaps", "rates")  # fmt: skip
    names = {"evaluation.json", *(f"{table}.parquet" for table in tables)}
    assert {path.name for path in out.iterdir()} == names
    assert pq.read_table(out / "percentiles.parquet").num_rows >= 275
    assert pq.read_table(out / "worst.parquet").num_rows == len(found["worst"]) == 5000


def test_a_number_may_stand_elsewhere_behind_the_device(tmp_path: Path) -> None:
    """Both places are told, stored, and part of what another evaluation may not replace."""
    tagged = [(10**12 + 10_000 * n + 700, frame(n, tags=[9])) for n in range(100)]
    (tmp_path / "in").write_bytes(pcap([(10**12 + 10_000 * n, frame(n)) for n in range(100)]))
    (tmp_path / "out").write_bytes(pcap(tagged))
    words = (tmp_path / "in", tmp_path / "out", "--out", tmp_path / "kept", "--key")
    found = evaluated(*words, "42:4:le", "--key-after", "-18:4:le")
    assert (found["key"], found["key_after"]) == ("42:4:le", "-18:4:le")
    assert found["counts"]["matched"] == 100
    other = in_process("evaluate", *words, "42:4:le", "--key-after", "udp.payload+0:4:le")
    assert "there is an evaluation with other key_after in it" in one_line_error(other, 2)
    named = evaluated(*words, "udp.payload+0:4:le", "--replace")
    assert "key_after" not in named and named["counts"]["matched"] == 100


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
    assert run.stdout.splitlines()[-1] == "nobody knows which of equal packets were lost: 1 of them"
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


def test_a_rule_against_a_flow_is_seen_everywhere(tmp_path: Path) -> None:
    """Of ten flows the device drops the fourth."""
    packets = []
    for number in range(3_420):
        made = bytearray(frame(number))
        made[34:36] = struct.pack(">H", 1_000 + number % 10)
        packets.append((START + number * GAP, bytes(made)))
    kept = [(at + TOOK, made) for i, (at, made) in enumerate(packets) if i % 10 != 3]
    pair, out = (tmp_path / "in.pcap", tmp_path / "out.pcap"), tmp_path / "kept"
    for path, content in zip(pair, (packets, kept), strict=True):
        path.write_bytes(pcap(content))
    seen = "342 of 342 packets of flow udp 10.0.0.1:1003 > 10.1.0.1:53 are lost; no other flow"
    run = in_process("evaluate", *pair, "--by", "flow", "--out", out)
    assert f"lost: {seen} lost one\n" in run.stdout
    rows = [line.split() for line in run.stdout.splitlines() if line.startswith("udp 10.0.0.1:")]
    assert rows[0] == ["udp", "10.0.0.1:1003", ">", "10.1.0.1:53", "342", "342"]
    assert len(rows) == 10 and {tuple(row[4:6]) for row in rows[1:]} == {("342", "0")}
    [pattern] = json.loads((out / "evaluation.json").read_bytes())["loss_patterns"]
    assert pattern["kind"] == "flow" and pattern["text"].startswith(seen)
    page = write_report(out, figures=False).page.read_text("utf-8").replace("&gt;", ">")
    assert 'id="by-flow"' in page and seen in page
    assert "<b>heavy-loss</b>" in page and "overload" not in page and "traffic.rate" not in page
    if ctypes.util.find_library("pcap") is not None:
        counts = evaluated(*pair, "--filter", "src portrange 1000-1002")["counts"]
        assert (counts["ingress"], counts["lost"]) == (1_026, 0)


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
        ("cat in.pcap | tailtap evaluate - -", 2,
         "the standard input can be one of the captures only"),
        ("cat in.pcap | tailtap evaluate - out.pcap --scheduler tcp://127.0.0.1:1", 2,
         "its workers cannot read -"),
    ],
)  # fmt: skip
def test_what_pipes_cannot(folder: Path, line: str, status: int, said: str) -> None:
    assert said in one_line_error(shell(line, folder), status)


def test_the_way_back_is_shown_below_the_way_there(tmp_path: Path) -> None:
    """Requests and answers; the server's clock is 1 ms ahead."""
    client, server = [], []
    for number in range(COUNT):
        ask, answer = frame(number), frame(number + COUNT)
        # The addresses of an answer are those of its request, exchanged.
        answer = answer[:26] + answer[30:34] + answer[26:30] + answer[34:]
        time = START + number * 2 * GAP
        client += [(time, ask), (time + GAP + 9_000, answer)]
        server += [(time + 1_007_000, ask), (time + 1_000_000 + GAP, answer)]
    pair = (tmp_path / "client.pcap", tmp_path / "server.pcap")
    for path, packets in zip(pair, (client, server), strict=True):
        path.write_bytes(pcap(sorted(packets)))
    run = in_process("evaluate", *pair, "--out", tmp_path / "results")
    there, back = run.stdout.split("\nthe way back\n")
    for text in (there, back):
        assert "two clocks: that of egress is ahead by" in text and "latency in us" in text
    assert "aligned by the packets of both [both-directions]" in run.stderr
    for name in ("results", "results/back"):
        assert (tmp_path / name / "distribution.parquet").exists()
    printed = evaluated(*pair)
    assert printed["schema"] == printed["back"]["schema"] == "tailtap.evaluation/1"
    assert printed["clocks"]["back"] == [str(path) for path in pair[::-1]]
    assert evaluated(*pair, "--back", *pair[::-1])["clocks"] == printed["clocks"]
    one = evaluated(*pair, "--direction", "back")
    assert one["latency_ns"] == printed["back"]["latency_ns"] and "back" not in one


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of two clocks, both ways."""
    folder = tmp_path_factory.mktemp("clocks")
    TwoClocks(offset_ns=3_000_000, drift=2e-5, packets=20_000).write(folder, 1)
    return folder


def both_ways(folder: Path) -> list[str]:
    names = ("ingress", "egress", "back-before", "back-after")
    files = [str(folder / f"{name}.stamps") for name in names]
    return [*files[:2], "--back", *files[2:]]


def test_an_interval_of_two_clocks(clocks: Path, tmp_path: Path) -> None:
    pair = both_ways(clocks)[:2]
    found = evaluated(*pair, "--egress-ahead", "2.9 ms..3.1 ms")
    assert found["clocks"] == {
        "by": "interval",
        "ahead_ns": [[2_900_000, 3_100_000]],
        "widest_ns": 200_000,
        "within_ns": 100_000,
    }
    latency = found["latency_ns"]
    assert latency["bounds"]["max"] == [latency["max"] - 100_000, latency["max"] + 100_000]
    # Latencies below nothing are said as they are, and leave a logarithmic axis no lower end.
    low = in_process("evaluate", *pair, "--egress-ahead", "3 ms..3.4 ms", "--out", tmp_path / "low")
    assert re.search(r"min +-1\d\d\.\d{3} +-3\d\d\.\d{3} to \d+\.\d{3}", low.stdout)
    assert in_process("report", tmp_path / "low", "--quiet").returncode == 0


def test_verdict_and_model_include_what_two_clocks_leave_open(clocks: Path, tmp_path: Path) -> None:
    words = both_ways(clocks)
    found = evaluated(*words, "--out", tmp_path)
    assert found == evaluated(*words, "--chunk", "16 KiB", "--jobs", "2")
    run = in_process("verdict", tmp_path, "--require", "p90 < 1 ms", "--require", "loss < 2 %")
    assert run.returncode == 0, run
    p90 = next(row["value"] for row in found["latency_ns"]["percentiles"] if row["p"] == 0.9)
    run = in_process("verdict", tmp_path, "--require", f"p90 < {p90} ns")
    assert run.returncode == 1
    assert "not shown" in run.stdout and "as the clocks are two" in run.stdout
    assert re.search(r"us ± 7\.\d+ us", run.stdout)
    assert re.search(r"± 7\.\d+ us: two clocks", in_process("model", tmp_path, "--quiet").stdout)
    assert "within_ns" in json.loads((tmp_path / "tail.json").read_text())


def test_transactions_are_the_same_of_one_capture_and_of_two(tmp_path: Path) -> None:
    """Pings, and queries one of ten of which has no answer; other commands take their folders."""
    asks: list[tuple[int, bytes]] = []
    says: list[tuple[int, bytes]] = []
    for number in range(3 * COUNT):
        time = START + 1_000_000 * number
        asks += [(time, ping(True, number)), (time + 1, dns(True, number, "a.example"))]
        says.append((time + 50_000 + 97 * number, ping(False, number)))
        if number % 10:
            says.append((time + 300_001, dns(False, number, "a.example")))
    for name, content in {"asks": asks, "says": says, "both": sorted(asks + says)}.items():
        (tmp_path / f"{name}.pcap").write_bytes(pcap(content))
    out, again = tmp_path / "waits", tmp_path / "again"
    both, pair = (tmp_path / "both.pcap",), (tmp_path / "asks.pcap", tmp_path / "says.pcap")
    one, two = evaluated(*both, "--out", out), evaluated(*pair, "--out", again)
    for found, reason in ((one, "one capture"), (two, "no packet is in both")):
        fits(found)
        assert found["schema"] == "tailtap.transactions/1"
        assert found["reason"].startswith(reason)
    assert one["kinds"] == two["kinds"]
    assert [kind["kind"] for kind in one["kinds"]] == ["dns", "icmp-echo"]
    assert one["kinds"][1]["counts"]["answered"] == 3 * COUNT
    fits(json.loads((out / "transactions.json").read_text("utf-8")))
    # Most queries were unanswered for a whole window, and so their loss is sure.
    for words, status in (
        (("verdict", out / "icmp-echo", "--require", "p50 < 170 us", "--require", "loss < 9 %"), 0),
        (("verdict", out / "dns", "--require", "loss == 0"), 1),
        (("model", out / "icmp-echo"), 0),
        (("compare", out / "icmp-echo", again / "icmp-echo"), 0),
        (("evaluate", *both, "--out", out, "--window", "2 s"), 2),
        (("evaluate", *both, "--out", out, "--window", "2 s", "--replace"), 0),
    ):
        assert in_process(*words).returncode == status, words
