"""`tailtap evaluate` as a user meets it."""

from __future__ import annotations

import json
import platform
import subprocess
from importlib.metadata import version as tailtap_version
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from captures import frame, pcap
from program import TAILTAP, one_line_error, tailtap

from tailtap.cli.registry import listed

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


def test_table_shows_the_tail(pair: Pair) -> None:
    run = tailtap("evaluate", *pair, "--percentiles", "50,99.9", "--quiet")
    assert run.returncode == 0
    assert "\x1b" not in run.stdout
    lines = {line.split()[0]: line for line in run.stdout.splitlines() if line.strip()}
    assert "0.599 " in lines["p50"]
    assert "p99.9" in lines and "p90" not in lines
    assert "0.0000%" in lines["lost"]


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
