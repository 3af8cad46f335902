"""What is judged of runs: verdicts, claims, models, undisturbed latencies, and invalid runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluations import run_row
from experiment_folders import write_run
from program import in_process, tailtap
from published import POST, PRE, needs_captures
from tails import write_tail
from traced import arrivals, hog, random_blocks, simulate, steal
from traced import write_run as write_traced

from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.undisturbed import stored_of, undisturbed_of
from tailtap.cli.results import print_runs, problem_of
from tailtap.records.evaluation import EvaluationRecord
from tailtap.records.experiment import RunRow
from tailtap.records.record import Notice, read
from tailtap.results.database import refresh

CLAIMS = """\
name: wire
claims:
  - {says: It keeps its time., for: {dut.platform: wire}, require: [p99 < 1 ms]}
  - {says: Half are quicker than light., require: [median < 1 ns]}
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats over a wire, whose slowest packet takes some microseconds."""
    folder = tmp_path_factory.mktemp("experiment")
    for number in (1, 2):
        write_run(folder, number, {"dut.platform": "wire"}, repeat=number)
    (folder / "experiment.yaml").write_text("name: wire\nrequire: [p99 < 1 ms, loss == 0]\n")
    return folder


def test_the_status_is_the_answer(experiment: Path) -> None:
    run = tailtap("verdict", experiment)
    assert run.returncode == 0 and "verdict: holds (2 holds)" in run.stdout, run
    for words, status in (
        (("--require", "max < 1 us"), 1),
        (("--profile", "urllc-5g"), 1),
        (("--profile", "urllc-5g", "--allow-not-shown"), 0),
    ):
        assert in_process("verdict", experiment, *words).returncode == status, words


def test_confidence(experiment: Path) -> None:
    bounds = []
    for share in ("90 %", "99.9 %"):
        run = in_process("verdict", experiment, "--confidence", share, "--json", "--quiet")
        bounds.append(json.loads(run.stdout)["verdicts"][0]["runs"][0]["figures"]["upper"])
    assert bounds[1] == pytest.approx(3 * bounds[0], rel=0.01)


@needs_captures
def test_the_documented_example_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/verdict.md").read_text()
    block = re.search(r"```console\n\$ tailtap (.*?)\n(.*?)```", page, re.S)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    assert tailtap("evaluate", PRE, POST, "--out", "evaluation", "--quiet").returncode == 0
    run = tailtap(*shlex.split(block[1]))
    assert run.returncode == 1
    assert [line.rstrip() for line in run.stdout.splitlines()] == block[2].splitlines()


def test_claims(experiment: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(experiment, tmp_path / "copy"))
    (folder / "experiment.yaml").write_text(CLAIMS)
    run = in_process("verdict", folder, "--quiet")
    said = " ".join(run.stdout.split())
    assert "It keeps its time. wire: p99 < 1 ms held" in said
    assert "Half are quicker than light. median < 1 ns contradicted" in said
    run = in_process("verdict", folder, "--json", "--quiet")
    found = json.loads(run.stdout)
    assert [row["answer"] for row in found["claims"]] == ["held", "contradicted"]
    assert (run.returncode, found["answer"], found["verdicts"]) == (1, "violated", [])
    # What is required is asked beside them; what else is asked for stands alone.
    (folder / "experiment.yaml").write_text(CLAIMS + "require: [p99 < 1 ms]\n")
    run = in_process("verdict", folder, "--quiet")
    assert run.returncode == 1 and "claims: 1 contradicted, 1 held" in run.stdout
    run = in_process("verdict", folder, "--require", "loss < 1 %", "--quiet")
    assert run.returncode == 0 and "quicker" not in run.stdout
    assert in_process("report", folder, "--no-figures", "--out", tmp_path).returncode == 0
    assert "Half are quicker than light." in (tmp_path / "index.html").read_text("utf-8")


def test_models_have_figures_and_an_invalid_run_is_in_no_summary(tmp_path: Path) -> None:
    for number in (1, 2):
        run = write_run(tmp_path, number, {"dut.platform": "wire"}, repeat=number, packets=300)
        random = np.random.default_rng(number)
        latency = (3_000 + random.gamma(2, 300, 100_000)).astype(np.int64)
        write_tail(run / "evaluation", latency)
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "valid": False}))
    found = json.loads(in_process("model", tmp_path, "--figures", "--json", "--quiet").stdout)
    assert [entry["valid"] for entry in found["runs"]] == [True, False]
    assert [row["runs"] for row in found["summary"]] == [1]
    assert [one["code"] for one in found["warnings"]] == ["invalid-run"]
    for folder in (tmp_path / "runs").iterdir():
        assert (folder / "tail.png").read_bytes().startswith(b"\x89PNG")
    assert "002-wire-10000-2 (invalid): " in in_process("model", tmp_path, "--quiet").stdout


def test_a_run_that_nobody_can_model(tmp_path: Path) -> None:
    write_tail(tmp_path, np.array([1_000, 2_000, 3_000, 4_000, 5_000]))
    run = in_process("model", tmp_path, "--quiet")
    assert (run.returncode, run.stderr) == (0, "")
    assert "no threshold gives a model" in run.stdout and "[no-model]" in run.stdout
    assert run.stdout.count("no number") == 2 and "nan" not in run.stdout.lower()


SLIP = Notice("generator-slip", "1 % of the packets left late")
RATE = Notice("generator-rate", "the generator reached half of it")
STEAL = Notice("steal", "the hypervisor took 3 %")


def row(slug: str, *warnings: Notice, error: str | None = None) -> RunRow:
    """A run of ``tailtap run --json``, as far as it matters here."""
    valid = None if error else not any(one in (SLIP, RATE) for one in warnings)
    status = "failed" if error else "done"
    return run_row(slug, status=status, error=error, warnings=list(warnings), valid=valid)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("001", STEAL), row("002")], None),
        ([row("001", STEAL, SLIP)], "1 of 1 runs is invalid, 001 first: 1 % of the packets left"),
        (
            [row("001"), row("002", RATE), row("003", SLIP)],
            "2 of 3 runs are invalid, 002 first: the generator reached half of it",
        ),
        (
            [row("001", SLIP), row("002", error="no root")],
            "1 of 2 runs failed, 002 first: no root; 1 of 2 runs is invalid, 001 first: 1 %",
        ),
        ([run_row("001-a", valid=False)], "001-a first: another flow of it is"),
    ],
)
def test_failed_and_invalid_runs_are_status_3_with_a_reason(
    rows: list[RunRow], said: str | None
) -> None:
    problem = problem_of(rows)
    assert (problem is None) == (said is None)
    if problem is not None and said is not None:
        assert said in str(problem) and problem.exit_status == 3


def test_tables_exports_and_databases_say_which_runs_are_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for repeat in (1, 2):
        write_run(tmp_path, repeat, {"dut.platform": "wire"}, repeat=repeat, packets=2_000,
                  achieved=5_000.0 if repeat == 2 else None)  # fmt: skip
    rows = [row("001"), row("002", SLIP)]
    for one in rows:
        path = next(tmp_path.glob("runs/*/evaluation/evaluation.json"))
        one.evaluation = read(path, EvaluationRecord)
    print_runs(rows, tmp_path)
    marked = [line for line in capsys.readouterr().out.splitlines() if "invalid" in line]
    assert [line[:3] for line in marked] == ["002"]
    done = in_process("export", tmp_path, "--to", "parquet", "--out", tmp_path / "out", "--quiet")
    assert (done.returncode, done.stderr) == (
        0,
        "warning: 002-wire-10000-2 is invalid: its generator did not send what was asked of it\n",
    )
    assert pq.read_table(tmp_path / "out/runs.parquet")["valid"].to_pylist() == [True, False]
    refresh(tmp_path)
    with duckdb.connect(str(tmp_path / "results.duckdb"), read_only=True) as database:
        found = database.sql("SELECT valid FROM runs ORDER BY run").fetchall()
    assert found == [(True,), (False,)]


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the first without a disturbance: steal makes the tail of the second one."""
    top = tmp_path_factory.mktemp("undisturbed")
    for number, pauses in ((1, 0), (2, 30)):
        random = np.random.default_rng(4)
        ingress = arrivals(20_000, 1.0, random)
        own = random_blocks(hog, 12, (60_000, 90_000), 1.0, random)
        outside = random_blocks(steal, pauses, (300_000, 900_000), 1.0, random)
        folder = top / f"runs/00{number}-run"
        write_traced(folder, simulate(ingress, [*own, *outside], random))
        record = json.loads((folder / "run.json").read_text())
        record |= {"number": number, "variables": {"dut.platform": f"p{number}"}}
        (folder / "run.json").write_text(json.dumps(record))
    return top


@pytest.fixture
def folder(stolen: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stolen, tmp_path / "out"))


def test_what_is_left_without_pauses_is_the_device(stolen: Path) -> None:
    calm, disturbed = read_runs(stolen).runs
    found, plain = undisturbed_of(disturbed), undisturbed_of(calm)
    assert found is not None and found.record.shown
    assert plain is not None and plain.record.shown
    assert plain.record.left_out_ns == 0 and plain.record.packets == calm.packets
    [pause] = [one for one in found.record.pauses if one.by == "steal"]
    assert 20 <= pause.pauses <= 30 and pause.longest_ns <= 900_000
    assert pause.pause_ns < found.record.left_out_ns < 0.1 * found.record.of_ns
    p999, ours, theirs = (one.percentile(0.999) for one in (disturbed, found, calm))
    assert p999 is not None and ours is not None and theirs is not None
    assert theirs.low is not None and theirs.high is not None
    assert theirs.low <= ours.value <= theirs.high < 100_000 < p999.value
    assert found.evaluation is not None and disturbed.packets is not None
    assert found.evaluation.counts.matched == found.record.packets
    assert found.record.packets + found.record.left_out == disturbed.packets


def test_explain_stores_what_is_left_until_a_run_is_evaluated_anew(folder: Path) -> None:
    run = folder / "runs/002-run"
    said = json.loads(in_process("explain", run, "--quiet", "--json").stdout)
    assert said["undisturbed"] == json.loads((run / "undisturbed/undisturbed.json").read_text())
    assert json.loads((run / "causes.json").read_text()) == said
    [_, again] = read_runs(folder).runs
    stored, found = stored_of(again), undisturbed_of(again)
    assert stored is not None and found is not None
    p99 = stored.percentile(0.99)
    assert stored.record == found.record and p99 is not None and p99 == found.percentile(0.99)
    refresh(folder)
    with duckdb.connect(str(folder / "results.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT u.run, shown, u.packets, left_out_ns, value FROM undisturbed AS u "
            "JOIN undisturbed_percentiles USING (run) WHERE p = 0.99"
        ).fetchall()
    assert rows == [(2, True, stored.record.packets, stored.record.left_out_ns, p99.value)]
    evaluated = in_process("evaluate", run, "--trim", "100 ms", "--replace", "--quiet")
    assert evaluated.returncode == 0
    assert stored_of(read_runs(run).runs[0]) is None
    # Without stamps nobody could find it out anew.
    assert in_process("explain", run, "--quiet").returncode == 0
    stored = stored_of(read_runs(run).runs[0])
    for file in run.glob("*.stamps"):
        file.unlink()
    kept = undisturbed_of(read_runs(run).runs[0])
    assert kept is not None and stored is not None and kept.record == stored.record
    assert in_process("explain", run, "--quiet").returncode == 2


def test_verdict_and_compare_take_what_is_left_where_they_are_asked_to(folder: Path) -> None:
    run = folder / "runs/002-run"
    words = ("verdict", run, "--require", "p99 < 200 us", "--quiet")
    assert in_process(*words).returncode == 1
    left = in_process(*words, "--undisturbed")
    assert left.returncode == 0, left
    assert "verdict of undisturbed latencies: holds" in left.stdout
    names = [f"{name}={folder / 'runs'}/00{number}-run" for name, number in (("a", 1), ("b", 2))]
    ratios = []
    for more in ((), ("--undisturbed",)):
        said = in_process("compare", *names, "--percentile", "99.9", "--quiet", "--json", *more)
        found = json.loads(said.stdout)
        assert found["undisturbed"] is bool(more)
        [pair] = found["loads"][0]["comparisons"]
        ratios.append(pair["ratio"])
    assert max(ratios[0], 1 / ratios[0]) > 2 and max(ratios[1], 1 / ratios[1]) < 1.3
    for file in run.glob("trace.*"):
        file.unlink()
    said = in_process("verdict", run, "--require", "p99 < 1 s", "--undisturbed", "--quiet")
    assert said.returncode == 1
    assert "nobody knows when its machine was taken away" in said.stdout.replace("\n", " ")


def test_what_is_left_of_an_invalid_run_is_invalid_as_well(folder: Path) -> None:
    heads = []
    for valid in (True, False):
        for record in folder.glob("runs/*/run.json"):
            content = json.loads(record.read_text())
            record.write_text(json.dumps({**content, "valid": valid}))
        assert in_process("explain", folder, "--quiet").returncode == 0
        heads.append(
            in_process("explain", folder / "runs/002-run", "--quiet").stdout.split("\n")[0]
        )
    assert heads[1] == heads[0].replace("run: ", "run (invalid): ", 1)
    assert in_process("report", folder, "--no-figures", "--quiet").returncode == 0
    page = (folder / "report/index.html").read_text()
    rows = re.findall(r'<tr class="([^"]*)"><th[^>]*>(?:(?!</th>).)*undisturbed', page, re.S)
    assert rows and set(rows) == {"floor invalid"}
