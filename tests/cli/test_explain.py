"""Why packets were late, interrupts where they were, and what was tried, in few words."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import fits
from improvements import helped, improvement, trial
from program import in_process
from published import CAPTURES, POST, PRE, needs_captures
from sampled import AHEAD_NS, MS, SAMPLES, write_sampled
from traced import arrivals, hog, random_blocks, simulate, write_run

from tailtap.analysis.causes.many import BRIEF_BYTES
from tailtap.cli.analyses import BRIEF_RUNS, explain_briefly
from tailtap.cli.improve import print_improvement
from tailtap.cli.run import against_text
from tailtap.records.compare import AgainstRecord
from tailtap.records.printed import Left


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 5, (300_000, 900_000), 1.0, random)
    simulated = simulate(arrivals(20_000, 1.0, random), blocks, random)
    return write_run(tmp_path_factory.mktemp("traced") / "runs/001-traced", simulated)


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
    which, worst = said.splitlines()
    stored = json.loads((run / "causes.json").read_text())
    [hogged] = [row for row in stored["causes"] if row["cause"] == "task"]
    assert which.startswith(f"001-traced: {stored['late']['packets']} packets later than p99.9, ")
    assert f"{hogged['packets']} by task (hog)" in which
    assert worst.startswith("  the worst: ") and "task (hog) for " in worst
    # Every late packet is counted once.
    head, _, parts = which.rpartition(": ")
    counts = [int(part.split()[0]) for part in parts.split(", ")]
    assert sum(counts) == int(head.split()[1])
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


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    return write_sampled(tmp_path)


def interrupts(*words: str | Path) -> dict[str, Any]:
    done = in_process("interrupts", *words, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    fits(content)
    [run] = content["runs"]
    found: dict[str, Any] = run
    return found


def test_the_offset_is_suggested_or_given_and_the_counter_named(evaluated: Path) -> None:
    words = (evaluated, "--samples", evaluated.parent / SAMPLES)
    run = interrupts(*words, "--figures")
    offset = run["offset"]
    true = AHEAD_NS - 500 * MS  # the recorder's first sample is its 0
    assert (offset["source"], offset["p_value"] <= 0.01) == ("suggested", True)
    assert offset["low_ns"] <= true <= offset["high_ns"]
    assert abs(offset["ns"] - true) <= 10 * MS
    for suffix in ("json", "png", "svg", "pdf"):
        assert (evaluated / f"interrupts.{suffix}").stat().st_size
    given = interrupts(*words, "--offset", "6500 ms")
    assert (given["offset"]["ns"], given["offset"]["source"]) == (6_500 * MS, "given")
    assert given["answer"] == "associated"
    for one in (run, given):
        named = [row["name"] for row in one["counters"] if row["associated"]]
        assert named == ["TLB_shootdowns_CPU1"]
    # Half a second beside it, nothing rises where packets are late.
    assert interrupts(*words, "--offset", "6 s")["answer"] == "none"
    far = interrupts(*words, "--offset", "-9 s")
    assert far["answer"] == "cannot-tell" and "check the offset" in far["reason"]


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
        "worse: p99.9 against the base x 2 (1.2 to any), 5 pairs, 1 spoiled; worse is more than 5 %"
    )
