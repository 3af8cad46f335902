"""`tailtap evaluate` as a user meets it."""

from __future__ import annotations

import json
import platform
import subprocess
from importlib.metadata import version as tailtap_version
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from captures import frame, pcap, write_many
from forms import fits
from program import TAILTAP, one_line_error, tailtap

from tailtap.cli.program import listed

Pair = tuple[Path, Path]


def test_json_keeps_the_contract(pair: Pair) -> None:
    run = tailtap("evaluate", *pair, "--json", "--quiet")
    assert (run.returncode, run.stderr) == (0, "")
    found = json.loads(run.stdout)
    assert found["schema"] == "tailtap.evaluation/1"
    assert found["key"] == "moonsniff"
    counts = "ingress egress matched lost unmatched_egress duplicate_ingress duplicate_egress"
    assert set(found["counts"]) >= {*counts.split(), "reordered", "noncausal"}
    latency = found["latency_ns"]
    assert (latency["min"], latency["max"], latency["mean"]) == (500, 699, 599.5)
    assert [p["p"] for p in latency["percentiles"]] == [
        0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999,
    ]  # fmt: skip
    assert latency["percentiles"][0] == {
        "p": 0.5, "value": 599, "low": 598, "high": 601, "above": 10_000, "supported": True,
    }  # fmt: skip
    assert [p["supported"] for p in latency["percentiles"]] == [True] * 6 + [False] * 3
    assert len(found["worst"]) == 5000
    assert set(found["worst"][0]) == {"latency", "ingress_ns", "egress_ns", "key"}
    assert found["warnings"] == []


def test_a_number_may_stand_elsewhere_behind_the_device(tmp_path: Path) -> None:
    """Both places are told, stored, and part of what another evaluation may not replace."""
    tagged = [(10**12 + 10_000 * n + 700, frame(n, tags=[9])) for n in range(100)]
    (tmp_path / "in").write_bytes(pcap([(10**12 + 10_000 * n, frame(n)) for n in range(100)]))
    (tmp_path / "out").write_bytes(pcap(tagged))
    words = ("evaluate", tmp_path / "in", tmp_path / "out", "--out", tmp_path / "kept")
    keys = ("--key", "42:4:le", "--key-after", "-18:4:le")
    run = tailtap(*words, *keys)
    assert run.stdout.startswith("matched by 42:4:le, behind the device by -18:4:le\n")
    found = json.loads(tailtap(*words, *keys, "--json").stdout)
    assert (found["key"], found["key_after"], found["counts"]["matched"]) == (
        "42:4:le",
        "-18:4:le",
        100,
    )
    other = tailtap(*words, "--key", "42:4:le", "--key-after", "udp.payload+0:4:le")
    assert "there is an evaluation with other key_after in it" in one_line_error(other, 2)
    named = json.loads(tailtap(*words, "--replace", "--key", "udp.payload+0:4:le", "--json").stdout)
    assert "key_after" not in named and named["counts"]["matched"] == 100


def test_tables_are_written(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert tailtap("evaluate", *pair, "--out", out).returncode == 0
    names = {path.name for path in out.iterdir()}
    assert names == {
        "evaluation.json",
        *(
            f"{table}.parquet"
            for table in (
                "percentiles",
                "distribution",
                "histogram",
                "worst",
                "losses",
                "exceedances",
                "blocks",
                "gaps",
                "rates",
            )
        ),
    }
    assert pq.read_table(out / "percentiles.parquet").num_rows >= 275
    assert pq.read_table(out / "worst.parquet").num_rows == 5000


def test_bad_captures_exit_with_2_and_one_line(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk" * 10)
    for arguments in (
        [pair[0], tmp_path / "missing"],
        [tmp_path / "junk", pair[1]],
        [pair[1], pair[0]],
        [*pair, "--key", "nonsense"],
        [*pair, "--key-after", "ip.id"],
        [*pair, "--key", "-4:4:le", "--key-after", "-2:2:le"],
        [*pair, "--trim", "1 parsec"],
        [*pair, "--percentiles", "101"],
        [*pair, "--format", "pcapp"],
    ):
        run = tailtap("evaluate", *arguments)
        one_line_error(run, 2)
        assert run.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["evaluate", "a", "b", "--tirm", "1 s"],
            ["'--tirm'", "'--trim'", "tailtap evaluate --help"],
        ),
        (["evaluate"], ["missing argument 'INGRESS'", "tailtap evaluate --help"]),
        (["evaluate", "a", "b", "--worst", "-1"], ["'--worst'", "-1"]),
        (["evalaute"], ["'evalaute'", "tailtap --help"]),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], said: list[str]) -> None:
    message = one_line_error(tailtap(*arguments), 2)
    assert all(part in message for part in said), message


def test_warnings_are_told_but_for_quiet(pair: Pair) -> None:
    data = pair[1].read_bytes()
    pair[1].write_bytes(data[:-7])
    run = tailtap("evaluate", *pair)
    assert run.returncode == 0
    assert "warning: " in run.stderr and "[capture-damaged]" in run.stderr
    assert tailtap("evaluate", *pair, "--quiet").stderr == ""


def test_output_that_nobody_reads_is_no_error(pair: Pair) -> None:
    command = f"'{TAILTAP}' evaluate '{pair[0]}' '{pair[1]}' | head -n 1"
    run = subprocess.run(
        ["bash", "-c", command], check=True, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.startswith("matched by moonsniff")
    assert run.stderr == ""


def test_help_is_quick_and_complete() -> None:
    run = tailtap("--help")
    assert run.returncode == 0
    for command in listed():
        assert f"\n  {command} " in run.stdout


def test_the_program_without_a_command_shows_its_help() -> None:
    run = tailtap()
    assert run.returncode == 2
    assert run.stderr == tailtap("--help").stdout


def test_the_version_is_shown_with_what_it_runs_on() -> None:
    run = tailtap("--version")
    assert run.returncode == 0
    shown = dict(line.split(maxsplit=1) for line in run.stdout.splitlines())
    assert shown == {
        "tailtap": tailtap_version("tailtap"),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


@pytest.fixture
def lossy(tmp_path: Path) -> Pair:
    """Captures of 1000 packets, of which the sixth to the eighth and the last are lost."""
    times = np.arange(1000) * 2_000_000 + 10**9
    kept = [packet for packet in range(999) if packet not in (5, 6, 7)]
    write_many(tmp_path / "in.pcap", times, range(1000))
    write_many(tmp_path / "out.pcap", times[kept] + 700, kept)
    return tmp_path / "in.pcap", tmp_path / "out.pcap"


def test_lost_packets_are_printed(lossy: Pair) -> None:
    run = tailtap("evaluate", *lossy, "--throughout", "--losses", "3", "--quiet")
    assert (run.returncode, run.stderr) == (0, "")
    title, heads, *rows = run.stdout.splitlines()[-5:]
    assert title == "lost packets, the first 3"
    assert heads.split() == ["time", "in", "s", "position", "bytes", "lost", "in", "a", "row",
                             "flow", "key"]  # fmt: skip
    flow = "udp 10.0.0.1:1024 > 10.1.0.1:53"
    assert [" ".join(row.split()) for row in rows] == [
        f"0.010000000 5 60 3 {flow} 5",
        f"0.012000000 6 60 3 {flow} 6",
        f"0.014000000 7 60 3 {flow} 7",
    ]
    every = tailtap(
        "evaluate", *lossy, "--throughout", "--losses", "100", "--quiet"
    ).stdout.splitlines()
    assert every[-6] == "lost packets"
    assert " ".join(every[-1].split()) == f"1.998000000 999 60 1 {flow} 999"
    assert "lost packets" not in tailtap("evaluate", *lossy, "--throughout", "--quiet").stdout


def test_where_nobody_knows_which_were_lost_that_is_said(tmp_path: Path) -> None:
    same, other = frame(0, marker=0), frame(1, marker=0)
    came = [(number * 1_000_000, same) for number in range(50)] + [(60_000_000, other)]
    left = [(time + 700, packet) for time, packet in came if time != 7_000_000]
    (tmp_path / "in.pcap").write_bytes(pcap(came))
    (tmp_path / "out.pcap").write_bytes(pcap(left))
    pair = tmp_path / "in.pcap", tmp_path / "out.pcap"
    run = tailtap("evaluate", *pair, "--key", "packet", "--losses", "3", "--quiet")
    assert run.stdout.splitlines()[-1] == "nobody knows which of equal packets were lost: 1 of them"
    assert "lost packets" not in run.stdout
    # With a window as long as packets are in the device at most, each is alone.
    run = tailtap(
        "evaluate", *pair, "--key", "packet", "--losses", "3", "--window", "100 us", "--quiet"
    )
    title, _, row = run.stdout.splitlines()[-3:]
    assert (title, row.split()[:2]) == ("lost packets", ["0.007000000", "7"])


def test_lost_packets_are_in_the_object_when_asked_for(lossy: Pair) -> None:
    found = json.loads(tailtap("evaluate", *lossy, "--losses", "2", "--json", "--quiet").stdout)
    fits(found)
    same = {"length": 60, "burst": 3, "flow": "udp 10.0.0.1:1024 > 10.1.0.1:53"}
    assert found["losses"] == [
        {"ingress_ns": 1_010_000_000, "position": 5, "key": "5", **same},
        {"ingress_ns": 1_012_000_000, "position": 6, "key": "6", **same},
    ]
    assert "losses" not in json.loads(tailtap("evaluate", *lossy, "--json", "--quiet").stdout)
