"""Runs in the formats of other tools and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from comparisons import write_run
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from program import answer, in_process, one_line_error

from tailtap.analysis.runs.groups import configurations, finding
from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.runs.run import Run
from tailtap.results.history import load

REPEATS = 6


def latency(run: Run, p: float) -> int:
    row = run.percentile(p)
    assert row is not None
    return row.value


def test_logs_out_and_in_again(tmp_path: Path) -> None:
    experiment, logs, back = (tmp_path / name for name in ("load", "logs", "back"))
    for repeat in range(1, REPEATS + 1):
        write_run(experiment, repeat, {"dut.platform": "vm"}, packets=2_000, repeat=repeat)
    assert in_process("export", experiment, "--to", "hlog", "--out", logs).returncode == 0
    assert in_process("import", logs, "--into", back, "--quiet").returncode == 0
    own, again = read_runs(experiment).runs, read_runs(back).runs
    assert [run.repeat for run in again] == list(range(1, REPEATS + 1))
    for run, other in zip(own, again, strict=True):
        theirs = HistogramLogReader(str(logs / f"{run.slug}.hlog"), HdrHistogram(1, 10**12, 5))
        interval = theirs.get_next_interval_histogram()
        assert interval is not None and interval.get_total_count() == run.packets
        value = pytest.approx(latency(run, 0.99), rel=1e-5)
        assert interval.get_value_at_percentile(99) == value
        assert latency(other, 0.99) == value
    sides = (f"a={experiment}", f"b={back}")
    gate = in_process("compare", *sides, "--worse-than", "5 %", "--at", "p99", "--quiet")
    assert gate.returncode in (0, 5), gate  # the same latencies are not worse


def fortio(folder: Path, scale: float, failed: int, *, repeats: int = REPEATS) -> Path:
    """Results of 10,000 requests a repeat, of which some are answered by 503 within 0.1 ms."""
    made = folder / "made"
    made.mkdir(parents=True)
    for repeat in range(1, repeats + 1):
        at = 1e-3 * scale * (1 + repeat / 100)
        good = 10_000 - failed
        data = [(8e-5, 1e-4, failed), (0.9 * at, at, good - good // 50), (at, 2 * at, good // 50)]
        histogram = {
            "Min": 8e-5, "Max": 2 * at, "Avg": at,
            "Data": [{"Start": a, "End": b, "Count": n} for a, b, n in data],
        }  # fmt: skip
        text = {"RunType": "HTTP", "RequestedQPS": "1000", "DurationHistogram": histogram,
                "RetCodes": {"200": good, "503": failed}}  # fmt: skip
        (made / f"load-{repeat}.json").write_text(json.dumps(text))
    assert in_process("import", made, "--into", folder, "--quiet").returncode == 0
    return folder


@pytest.mark.parametrize(
    ("scale", "failed", "wanted"),
    [
        (0.5, 9_700, "worse"),  # more failed than the percentile leaves
        (0.5, 50, "not shown"),  # quicker, and it fails more
        (1.0, 50, "not shown"),
        (0.5, 0, "better"),
    ],
)
def test_a_change_that_fails_more_is_not_better(
    scale: float, failed: int, wanted: str, tmp_path: Path
) -> None:
    sides = fortio(tmp_path / "base", 1.0, 0), fortio(tmp_path / "new", scale, failed)
    pairs = [f"{name}={side}" for name, side in zip(("base", "new"), sides, strict=True)]
    gate = answer("compare", *pairs, "--worse-than", "10 %", "--at", "p99", status=None)
    [row] = gate["rows"]
    assert row["answer"] == wanted, row
    assert in_process("compare", *pairs, "--at", "p99", "--quiet").returncode == 0


def test_failures_are_judged(tmp_path: Path) -> None:
    """They violate, and what they could carry is not shown."""
    wanted = {
        "errors < 1 %": "violated",
        "errors < 10 %": "holds",
        "p99 < 5 ms": "not shown",  # 5 % failed
        "p50 < 5 ms": "holds",
        "p90 < 0.5 ms": "violated",
        "mean < 5 ms": "holds",
        "max < 1 ms": "violated",
        "reliability(5 ms) >= 90 %": "holds",
        "reliability(5 ms) >= 99 %": "violated",
        "loss < 1 %": "not shown",  # nobody says
    }
    folder = fortio(tmp_path / "some", 1.0, 500, repeats=1)
    arguments = [part for text in wanted for part in ("--require", text)]
    found = answer("verdict", folder, *arguments, status=1)["verdicts"]
    assert {one["requirement"]: one["answer"] for one in found} == wanted
    assert "requests-failed" in found[0]["runs"][0]["doubts"]
    [configuration] = configurations(read_runs(folder))
    said = finding(configuration, [configuration])
    assert (said.name, said.value) == ("failed", "5\N{NO-BREAK SPACE}%")


def test_what_others_measured_goes_out_again(tmp_path: Path) -> None:
    folder = fortio(tmp_path / "others", 1.0, 0, repeats=2)
    for kind in ("hlog", "hgrm"):
        out, back = tmp_path / kind, tmp_path / f"{kind}-back"
        assert in_process("export", folder, "--to", kind, "--out", out).returncode == 0
        again = in_process("import", out, "--into", back, "--json")
        assert "unit-unknown" not in again.stdout and again.returncode == 0
        for one, other in zip(read_runs(folder).runs, read_runs(back).runs, strict=True):
            assert one.packets == other.packets
            assert latency(other, 0.9) == pytest.approx(latency(one, 0.9), rel=1e-4)
    refused = in_process("export", folder, "--to", "papers", "--out", tmp_path / "papers")
    assert "import the captures" in one_line_error(refused, 2)


def test_folders_named_by_their_commit_are_one_series(tmp_path: Path) -> None:
    history = tmp_path / "history.duckdb"
    for day, commit in enumerate(("a1b2c3d4e5f6", "b1b2c3d4e5f6"), 1):
        for name in (commit, f"results-{commit[:7]}"):
            made = fortio(tmp_path / name, 1.0, 0, repeats=1) / "made"
            tree = made.rename(made.parent / name)
            (tmp_path / name / "results.duckdb").unlink()
            assert in_process("import", tree, "--into", made.parent, "--quiet").returncode == 0
            more = ("--commit", commit, "--date", f"2026-11-{day:02}", "--history", history)
            assert in_process("history", "add", made.parent, *more).returncode == 0
    assert len({run.series for run in load(history)}) == 2
    shown = in_process("history", "show", "--history", history, "--at", "p90", "--quiet")
    assert "not decided yet: 2 commits, and 6 are the fewest" in shown.stdout
