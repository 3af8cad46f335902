"""Runs in the formats of other tools and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from comparisons import write_run
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from program import in_process

from tailtap.analysis.runs.groups import configurations, finding
from tailtap.analysis.runs.reader import read_runs
from tailtap.results.history import load

REPEATS = 6


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats") / "load"
    for repeat in range(1, REPEATS + 1):
        write_run(folder, repeat, {"dut.platform": "vm"}, packets=2_000, repeat=repeat)
    return folder


def test_logs_out_and_in_again(experiment: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert in_process("export", experiment, "--to", "hlog", "--out", logs).returncode == 0
    own = read_runs(experiment).runs
    for run in own:
        theirs = HistogramLogReader(str(logs / f"{run.slug}.hlog"), HdrHistogram(1, 10**12, 5))
        interval = theirs.get_next_interval_histogram()
        assert interval is not None and interval.get_total_count() == run.packets
        row = run.percentile(0.99)
        assert row is not None
        assert interval.get_value_at_percentile(99) == pytest.approx(row.value, rel=1e-5)
    back = tmp_path / "back"
    assert in_process("import", logs, "--into", back, "--quiet").returncode == 0
    again = read_runs(back).runs
    assert [run.repeat for run in again] == list(range(1, REPEATS + 1))
    for one, other in zip(own, again, strict=True):
        rows = one.percentile(0.99), other.percentile(0.99)
        assert rows[0] and rows[1] and rows[1].value == pytest.approx(rows[0].value, rel=1e-5)
    sides = (f"a={experiment}", f"b={back}")
    gate = in_process("compare", *sides, "--worse-than", "5 %", "--at", "p99", "--quiet")
    assert gate.returncode in (0, 5), gate  # the same latencies are not worse


def test_for_github_action_benchmark(experiment: Path, tmp_path: Path) -> None:
    run = in_process("export", experiment, "--to", "github-action-benchmark", "--out", tmp_path)
    assert run.returncode == 0, run
    found = json.loads((tmp_path / "benchmark.json").read_text())
    assert [row["name"].rpartition(", ")[2] for row in found] == ["p50", "p75", "p90", "p95", "p99"]
    assert {row["unit"] for row in found} == {"ns"}
    low, _, high = found[-1]["range"].partition(" to ")
    assert int(low) <= found[-1]["value"] <= int(high)
    assert found[-1]["extra"] == f"{REPEATS} runs"


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
    ("scale", "failed", "answer"),
    [
        (0.5, 9_700, "worse"),  # more failed than the percentile leaves
        (0.5, 50, "not shown"),  # quicker, and it fails more
        (1.0, 50, "not shown"),
        (0.5, 0, "better"),
    ],
)
def test_a_change_that_fails_more_is_not_better(
    scale: float, failed: int, answer: str, tmp_path: Path
) -> None:
    sides = fortio(tmp_path / "base", 1.0, 0), fortio(tmp_path / "new", scale, failed)
    pairs = [f"{name}={side}" for name, side in zip(("base", "new"), sides, strict=True)]
    gate = in_process("compare", *pairs, "--worse-than", "10 %", "--at", "p99", "--json")
    [row] = json.loads(gate.stdout)["rows"]
    assert row["answer"] == answer, row
    ranked = in_process("compare", *pairs, "--at", "p99", "--quiet")
    assert ranked.returncode == 0, ranked


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
    run = in_process("verdict", folder, *arguments, "--json")
    found = json.loads(run.stdout)["verdicts"]
    assert {one["requirement"]: one["answer"] for one in found} == wanted
    assert "requests-failed" in found[0]["runs"][0]["doubts"]
    [configuration] = configurations(read_runs(folder))
    told = finding(configuration, [configuration])
    assert (told.name, told.value) == ("failed", "5\N{NO-BREAK SPACE}%")


def test_what_others_measured_goes_out_again(tmp_path: Path) -> None:
    folder = fortio(tmp_path / "others", 1.0, 0, repeats=2)
    runs = read_runs(folder).runs
    for kind in ("hlog", "hgrm"):
        out = tmp_path / kind
        assert in_process("export", folder, "--to", kind, "--out", out).returncode == 0
        back = in_process("import", out, "--into", tmp_path / f"{kind}-back", "--json")
        assert "unit-unknown" not in back.stdout and back.returncode == 0
        for one, other in zip(runs, read_runs(tmp_path / f"{kind}-back").runs, strict=True):
            rows = one.percentile(0.9), other.percentile(0.9)
            assert rows[0] and rows[1] and one.packets == other.packets
            assert rows[1].value == pytest.approx(rows[0].value, rel=1e-4)
    out = tmp_path / "csv"
    assert in_process("export", folder, "--to", "csv", "--out", out).returncode == 0
    assert len((out / "evaluations.csv").read_text().splitlines()) == 3
    refused = in_process("export", folder, "--to", "papers", "--out", tmp_path / "papers")
    assert refused.returncode == 2 and "import the captures" in refused.stderr


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
