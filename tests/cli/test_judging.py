"""What is told and judged of runs: causes, interrupts, verdicts, claims, models, invalid runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from improvements import helped, improvement, trial
from made_records import rewrite, run_row
from program import answer, in_process, tailtap
from published import CAPTURES, POST, PRE, needs_captures
from runs import rows
from traced import HOG, STEAL, arrivals, random_jobs, simulate, traffic
from traced import write_run as write_traced

from tailtap.analysis.causes.many import BRIEF_BYTES
from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.undisturbed import stored_of, undisturbed_of
from tailtap.cli.analyses import BRIEF_RUNS, explain_briefly
from tailtap.cli.improve import print_improvement
from tailtap.cli.results import problem_of
from tailtap.cli.run import against_text
from tailtap.records.experiment import RunRow
from tailtap.records.printed import Left
from tailtap.records.record import Notice
from tailtap.records.search import AgainstRecord
from tailtap.results.database import refresh


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced") / "runs/001-traced"
    return write_traced(folder, traffic(1, 1.0, (HOG, 5, (300_000, 900_000))))


@pytest.fixture
def run(traced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(traced, tmp_path / "out/runs/001-traced"))


def ended(run: Path, *more: Path) -> None:
    """What stands at the end of `tailtap run`."""
    explain_briefly(run.parents[1], [run, *more])


def test_a_run_ends_with_what_explain_says_briefly(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(run)
    said = capsys.readouterr().out
    assert said.startswith("001-traced: ") and len(said.splitlines()) == 2
    again = in_process("explain", run, "--brief", "--quiet")
    assert (again.returncode, again.stdout) == (0, said)


@pytest.mark.parametrize("what", ["large", "many"])
def test_of_large_and_of_many_traces_only_the_command_is_said(
    run: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if what == "large":
        os.truncate(run / "trace.events", BRIEF_BYTES)
        ended(run)
    else:
        ended(run, *[run] * BRIEF_RUNS)
    assert capsys.readouterr().out == (f"why packets were late: tailtap explain {run.parents[1]}\n")
    assert not (run / "causes.json").exists()


def test_a_trace_of_another_boot_is_named_and_the_rest_goes_on(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(run, run.with_name("002-traced")))
    trace = json.loads((run / "trace.json").read_text())
    (run / "trace.json").write_text(json.dumps({**trace, "boot_id": "other"}))
    ended(run, other)
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("001-traced: not explained: ")
    assert "packets later than p99.9" in second
    for one in (run, other):
        (one / "trace.events").unlink()
    ended(run, other)
    assert capsys.readouterr().out == ""  # nothing is said of runs without a trace


def interrupts(*words: str | Path) -> dict[str, Any]:
    [run] = answer("interrupts", *words)["runs"]
    found: dict[str, Any] = run
    return found


@needs_captures
def test_one_sample_a_second_of_half_a_minute_tells_nothing(tmp_path: Path) -> None:
    """The published captures and the samples that were taken beside them."""
    done = in_process("evaluate", PRE, POST, "--out", tmp_path / "e")
    assert done.returncode == 0, done.stderr
    [samples] = CAPTURES.glob("irq-*.csv")
    words = (tmp_path / "e", "--samples", samples)
    unknown = in_process("interrupts", *words)
    assert "Nothing can be told: the offset of the clocks is unknown" in unknown.stdout
    run = interrupts(*words, "--offset", "-10 s")
    assert run["answer"] == "cannot-tell" and "28 windows" in run["reason"]
    assert run["late"]["packets"] == 3000
    assert {row["p_value"] for row in run["counters"]} == {None}
    rates = {row["name"]: row["elsewhere_per_s"] for row in run["counters"]}
    assert rates["LOC_Local_timer_interrupts_CPU1"] == pytest.approx(250, abs=0.5)


def test_the_table_says_what_each_knob_did(capsys: pytest.CaptureFixture[str]) -> None:
    record = improvement(
        helped("groups"),
        trial("kernel-threads"),
        left=[Left(name="isolated-cpus", why="it takes a reboot")],
    )
    print_improvement(record)
    said = " ".join(capsys.readouterr().out.split())
    assert "2.1 ms (1.9 ms to 2.3 ms)" in said
    assert "x 0.33 (0.2 to 0.5) 9 helps" in said
    assert "x 0.33 (0.2 to any) 9 not shown" in said
    assert "not tried: isolated-cpus: it takes a reboot" in said
    assert "p99.9 < 1 ms: violated before (2.1 ms), holds in the end (300 us); ended: holds" in said
    typed = "sudo tailtap host apply groups --cpus 1 --role bare-metal"
    assert f"proven: groups; set them: {typed}" in said


def test_the_answer_against_a_base_says_what_it_rests_on() -> None:
    record = AgainstRecord(
        name="new", base="old", status="done", error=None, p=0.999, margin=0.05, error_rate=0.05,
        error_rate_worse=0.01,
        within_ns=1, parameters={}, base_parameters={}, started="", finished="", answer="worse",
        pairs=[[2, 1]] * 5, spoiled=1, ratio=2.0, low=1.2, high=None, runs=[],
    )  # fmt: skip
    assert against_text(record, 0.05) == (
        "worse: p99.9 is 2 times the base's (1.2 to no limit), after 5 pairs, 1 spoiled; worse "
        "means more than 5 % longer"
    )


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


SLIP = Notice("generator-slip", "1 % of the packets left late")
RATE = Notice("generator-rate", "the generator reached half of it")
STOLEN = Notice("steal", "the hypervisor took 3 %")


def row(slug: str, *warnings: Notice, error: str | None = None) -> RunRow:
    """A run of ``tailtap run --json``, as far as it matters here."""
    valid = None if error else not any(one in (SLIP, RATE) for one in warnings)
    status = "failed" if error else "done"
    return run_row(slug, status=status, error=error, warnings=list(warnings), valid=valid)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("001", STOLEN), row("002")], None),
        ([row("001", STOLEN, SLIP)], "1 of 1 runs is invalid, 001 first: 1 % of the packets left"),
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


@pytest.fixture(scope="module")
def stolen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the first without a disturbance: steal makes the tail of the second one."""
    top = tmp_path_factory.mktemp("undisturbed")
    for number, pauses in ((1, 0), (2, 30)):
        random = np.random.default_rng(4)
        ingress = arrivals(20_000, 1.0, random)
        own = random_jobs(HOG, 12, (60_000, 90_000), 1.0, random)
        outside = random_jobs(STEAL, pauses, (300_000, 900_000), 1.0, random)
        folder = top / f"runs/00{number}-run"
        write_traced(folder, simulate(ingress, [*own, *outside], random))
        rewrite(folder / "run.json", number=number, variables={"dut.platform": f"p{number}"})
    return top


@pytest.fixture
def folder(stolen: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stolen, tmp_path / "out"))


def test_explain_stores_what_is_left_until_a_run_is_evaluated_anew(folder: Path) -> None:
    run = folder / "runs/002-run"
    said = answer("explain", run)
    assert said["undisturbed"] == json.loads((run / "undisturbed/undisturbed.json").read_text())
    assert json.loads((run / "causes.json").read_text()) == said
    [_, again] = read_runs(folder).runs
    stored, found = stored_of(again), undisturbed_of(again)
    assert stored is not None and found is not None
    p99 = stored.percentile(0.99)
    assert stored.record == found.record and p99 is not None and p99 == found.percentile(0.99)
    refresh(folder)
    query = (
        "SELECT u.run, shown, u.packets, left_out_ns, value FROM undisturbed AS u "
        "JOIN undisturbed_percentiles USING (run) WHERE p = 0.99"
    )
    assert rows(folder, query) == [
        (2, True, stored.record.packets, stored.record.left_out_ns, p99.value)
    ]
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


def test_what_is_left_of_an_invalid_run_is_invalid_as_well(folder: Path) -> None:
    heads = []
    for valid in (True, False):
        for record in folder.glob("runs/*/run.json"):
            rewrite(record, valid=valid)
        assert in_process("explain", folder, "--quiet").returncode == 0
        heads.append(
            in_process("explain", folder / "runs/002-run", "--quiet").stdout.split("\n")[0]
        )
    assert heads[1] == heads[0].replace("run: ", "run (invalid): ", 1)
    assert in_process("report", folder, "--quiet").returncode == 0
    page = (folder / "report/index.html").read_text()
    rows = re.findall(r'<tr class="([^"]*)"><th[^>]*>(?:(?!</th>).)*undisturbed', page, re.S)
    assert rows and set(rows) == {"floor invalid"}
