"""Percentiles without pauses from outside, as `explain`, `verdict` and `compare` have them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest
from program import tailtap
from traced import arrivals, hog, random_blocks, simulate, steal, write_run

from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.undisturbed import stored_of, undisturbed_of
from tailtap.results.database import refresh

SECONDS = 1.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the first without a disturbance: steal makes the tail of the second one."""
    top = tmp_path_factory.mktemp("undisturbed")
    for number, stolen in ((1, 0), (2, 30)):
        random = np.random.default_rng(4)
        ingress = arrivals(20_000, SECONDS, random)
        own = random_blocks(hog, 12, (60_000, 90_000), SECONDS, random)
        outside = random_blocks(steal, stolen, (300_000, 900_000), SECONDS, random)
        folder = top / f"runs/00{number}-run"
        write_run(folder, simulate(ingress, [*own, *outside], random))
        record = json.loads((folder / "run.json").read_text())
        record |= {"number": number, "variables": {"dut.platform": f"p{number}"}}
        (folder / "run.json").write_text(json.dumps(record))
    return top


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def test_what_is_left_is_the_device(folder: Path) -> None:
    calm, stolen = read_runs(folder).runs
    found, plain = undisturbed_of(stolen), undisturbed_of(calm)
    assert found is not None and found.record.shown
    assert plain is not None and plain.record.shown
    assert plain.record.left_out_ns == 0 and plain.record.packets == calm.packets
    [row] = [one for one in found.record.pauses if one.by == "steal"]
    assert 20 <= row.pauses <= 30 and row.longest_ns <= 900_000
    assert row.pause_ns < found.record.left_out_ns < 0.1 * found.record.of_ns
    p999, ours, theirs = (one.percentile(0.999) for one in (stolen, found, calm))
    assert p999 is not None and ours is not None and theirs is not None
    assert theirs.low is not None and theirs.high is not None
    assert theirs.low <= ours.value <= theirs.high < 100_000 < p999.value
    assert found.evaluation is not None and stolen.packets is not None
    assert found.evaluation.counts.matched == found.record.packets
    assert found.record.packets + found.record.left_out == stolen.packets


def test_explain_stores_it_and_says_so(folder: Path) -> None:
    run = folder / "runs/002-run"
    said = tailtap("explain", run, "--quiet")
    assert said.returncode == 0, said
    assert "undisturbed: left out: " in said.stdout and "stolen on CPU 1: " in said.stdout
    assert "p99.9 " in said.stdout.split("undisturbed: ")[1]
    [_, again] = read_runs(folder).runs
    stored, found = stored_of(again), undisturbed_of(again)
    assert stored is not None and found is not None
    assert stored.record == found.record and stored.percentile(0.99) == found.percentile(0.99)
    # Without stamps nobody could find it out anew.
    for file in run.glob("*.stamps"):
        file.unlink()
    kept = undisturbed_of(read_runs(folder).runs[1])
    assert kept is not None and kept.record == stored.record
    assert tailtap("explain", run, "--quiet").returncode == 2
    refresh(folder)
    with duckdb.connect(str(folder / "results.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT run, shown, packets, left_out_ns FROM undisturbed"
        ).fetchall()
        assert rows == [(2, True, stored.record.packets, stored.record.left_out_ns)]
        [value] = connection.execute(
            "SELECT value FROM undisturbed_percentiles WHERE p = 0.99"
        ).fetchone() or [None]
    p99 = stored.percentile(0.99)
    assert p99 is not None and value == p99.value


def test_json_has_it_beside_the_causes(folder: Path) -> None:
    run = folder / "runs/002-run"
    told = json.loads(tailtap("explain", run, "--quiet", "--json").stdout)
    stored = json.loads((run / "undisturbed/undisturbed.json").read_text())
    assert told["undisturbed"] == stored and stored["schema"] == "tailtap.undisturbed/1"
    assert json.loads((run / "causes.json").read_text()) == told


def test_a_run_that_was_evaluated_anew_has_nothing_stored(folder: Path) -> None:
    run = folder / "runs/002-run"
    assert tailtap("explain", run, "--quiet").returncode == 0
    said = tailtap("evaluate", run, "--trim", "100 ms", "--replace", "--quiet")
    assert said.returncode == 0, said
    assert stored_of(read_runs(run).runs[0]) is None


def test_verdict_judges_what_is_left_where_it_is_asked_to(folder: Path) -> None:
    run = folder / "runs/002-run"
    plain = tailtap("verdict", run, "--require", "p99 < 200 us", "--quiet")
    assert plain.returncode == 1 and "verdict: violated" in plain.stdout
    left = tailtap("verdict", run, "--require", "p99 < 200 us", "--undisturbed", "--quiet")
    assert left.returncode == 0, left
    assert "verdict of undisturbed latencies: holds" in left.stdout
    assert "left out: " in left.stdout and "[undisturbed]" in left.stdout
    told = tailtap(
        "verdict", run, "--require", "p99 < 200 us", "--undisturbed", "--quiet", "--json"
    )
    assert json.loads(told.stdout)["undisturbed"] is True


def test_compare_ranks_what_is_left(folder: Path) -> None:
    names = [f"{name}={folder / 'runs'}/00{number}-run" for name, number in (("a", 1), ("b", 2))]
    ratios = []
    for more in ((), ("--undisturbed",)):
        said = tailtap("compare", *names, "--percentile", "99.9", "--quiet", "--json", *more)
        assert said.returncode == 0, said
        found = json.loads(said.stdout)
        assert found["undisturbed"] is bool(more)
        [pair] = found["loads"][0]["comparisons"]
        ratios.append(pair["ratio"])
    assert max(ratios[0], 1 / ratios[0]) > 2 and max(ratios[1], 1 / ratios[1]) < 1.3


def test_a_run_that_nobody_watched_is_not_shown(folder: Path) -> None:
    run = folder / "runs/002-run"
    for file in run.glob("trace.*"):
        file.unlink()
    said = tailtap("verdict", run, "--require", "p99 < 1 s", "--undisturbed", "--quiet")
    assert said.returncode == 1
    assert "nobody knows when its machine was taken away" in said.stdout.replace("\n", " ")


def test_the_page_has_it_beside_the_plain_percentiles(folder: Path) -> None:
    assert tailtap("explain", folder, "--quiet").returncode == 0
    assert tailtap("report", folder, "--no-figures", "--quiet").returncode == 0
    page = (folder / "report/index.html").read_text()
    summary = page.split('aria-labelledby="summary"')[1].split("</table>")[0]
    rows = re.findall(r"<tr(.*?)</tr>", summary, re.S)
    [place] = [place for place, row in enumerate(rows) if "undisturbed" in row]
    assert "p2" in rows[place - 1] and "invalid" not in rows[place]


def test_what_is_left_of_an_invalid_run_is_struck_through_as_well(
    folder: Path, tmp_path: Path
) -> None:
    invalid = tmp_path / "invalid"
    shutil.copytree(folder, invalid)
    for record in invalid.glob("runs/*/run.json"):
        content = json.loads(record.read_text())
        record.write_text(json.dumps({**content, "valid": False}))
    assert tailtap("explain", invalid, "--quiet").returncode == 0
    assert tailtap("report", invalid, "--no-figures", "--quiet").returncode == 0
    page = (invalid / "report/index.html").read_text()
    rows = re.findall(r'<tr class="([^"]*)"><th[^>]*>(?:(?!</th>).)*undisturbed', page, re.S)
    assert rows and set(rows) == {"floor invalid"}
