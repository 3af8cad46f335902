"""`tailtap interrupts` on evaluations and samples of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forms import fits
from program import tailtap
from published import CAPTURES, POST, PRE, needs_captures
from sampled import AHEAD_NS, MS, SAMPLES, write_sampled


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    return write_sampled(tmp_path)


def asked(folder: Path, *words: str) -> dict[str, object]:
    samples = ["--samples", str(folder.parent / SAMPLES)]
    done = tailtap("interrupts", str(folder), *samples, "--json", *words)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    fits(content)
    [run] = content["runs"]
    found: dict[str, object] = run
    return found


def test_the_offset_is_suggested_and_the_counter_named(evaluated: Path) -> None:
    run = json.loads(json.dumps(asked(evaluated, "--figures")))
    offset = run["offset"]
    true = AHEAD_NS - 500 * MS  # the recorder's first sample is its 0
    assert offset["source"] == "suggested"
    assert offset["low_ns"] <= true <= offset["high_ns"]
    assert abs(offset["ns"] - true) <= 10 * MS
    assert offset["p_value"] <= 0.01
    assert [row["name"] for row in run["counters"] if row["associated"]] == ["TLB_shootdowns_CPU1"]
    for suffix in ("json", "png", "svg", "pdf"):
        assert (evaluated / f"interrupts.{suffix}").stat().st_size


def test_a_given_offset_is_taken(evaluated: Path) -> None:
    run = json.loads(json.dumps(asked(evaluated, "--offset", "6500 ms")))
    assert (run["offset"]["ns"], run["offset"]["source"]) == (6_500 * MS, "given")
    assert run["answer"] == "associated"
    assert [row["name"] for row in run["counters"] if row["associated"]] == ["TLB_shootdowns_CPU1"]
    # Half a second beside it, nothing rises where packets are late.
    assert asked(evaluated, "--offset", "6 s")["answer"] == "none"
    far = asked(evaluated, "--offset", "-9 s")
    assert far["answer"] == "cannot-tell" and "check the offset" in str(far["reason"])


def test_without_samples_it_says_what_is_missing(evaluated: Path) -> None:
    done = tailtap("interrupts", str(evaluated))
    assert done.returncode == 2
    assert "no samples of interrupts" in done.stderr and "--samples" in done.stderr
    assert "Traceback" not in done.stderr


@needs_captures
def test_one_sample_a_second_of_half_a_minute_tells_nothing(tmp_path: Path) -> None:
    """The published captures and the samples that were taken beside them."""
    done = tailtap("evaluate", str(PRE), str(POST), "--out", str(tmp_path / "e"))
    assert done.returncode == 0, done.stderr
    [samples] = CAPTURES.glob("irq-*.csv")
    words = ("interrupts", str(tmp_path / "e"), "--samples", str(samples))
    unknown = tailtap(*words)
    assert unknown.returncode == 0, unknown.stderr
    assert "Nothing can be told: the offset of the clocks is unknown" in unknown.stdout
    given = tailtap(*words, "--offset", "-10 s", "--json")
    [run] = json.loads(given.stdout)["runs"]
    assert run["answer"] == "cannot-tell" and "28 windows" in run["reason"]
    assert run["late"]["packets"] == 3000
    assert {row["p_value"] for row in run["counters"]} == {None}
    rates = {row["name"]: row["elsewhere_per_s"] for row in run["counters"]}
    assert rates["LOC_Local_timer_interrupts_CPU1"] == pytest.approx(250, abs=0.5)
