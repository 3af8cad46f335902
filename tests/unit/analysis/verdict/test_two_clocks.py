"""Requirements of captures of two clocks: an answer is one only if it is that at both ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from two_clocks import TwoClocks

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.clocks import known
from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.judge import judge, unclaimable
from tailtap.analysis.verdict.requirement import parse_requirement
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.base.errors import InputError

US = 1_000


def evidence(latency: np.ndarray, within_ns: int = 0) -> Evidence:
    values, numbers = np.unique(latency, return_counts=True)
    packets = int(latency.size)
    return Evidence(
        name="run",
        packets=packets,
        maximum=int(latency.max()),
        mean=float(latency.mean()),
        counts={"matched": packets, "egress": packets, "lost": 0},
        distribution=(values, numbers),
        within_ns=within_ns,
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("p99 < 13 us", "holds"),
        ("p99 < 12 us", "not shown"),
        ("p99 <= 12 us", "holds"),
        ("p99 < 8 us", "violated"),
        ("p99 <= 8 us", "not shown"),
        ("p99 < 7 us", "violated"),
        ("max < 13 us", "holds"),
        ("max <= 12 us", "holds"),
        ("max < 12 us", "not shown"),
        ("max < 9 us", "not shown"),
        ("max <= 8 us", "not shown"),
        ("max < 8 us", "violated"),
        ("mean < 12.001 us", "holds"),
        ("mean < 12 us", "not shown"),
        ("mean <= 8 us", "not shown"),
        ("mean < 8 us", "violated"),
        ("reliability(12 us) >= 99 %", "holds"),
        ("reliability(10 us) >= 99 %", "not shown"),
        ("reliability(7 us) >= 99 %", "violated"),
        ("loss == 0", "holds"),
    ],
)
def test_an_answer_must_be_one_at_both_ends(text: str, answer: str) -> None:
    """All of 10,000 packets took 10 us, less or more 2 us."""
    found = judge(parse_requirement(text), evidence(np.full(10_000, 10 * US), 2 * US))
    assert found.answer == answer, found.reason
    if answer == "not shown":
        assert "latencies may be off by 2 us to either side, as the clocks are two" in found.reason
    if not text.startswith(("reliability", "loss")):
        assert "10 us ± 2 us" in found.measured


def test_no_answer_is_one_that_a_difference_of_the_clocks_contradicts() -> None:
    for seed in range(200):
        random = np.random.default_rng(seed)
        latency = 20 * US + np.rint(random.exponential(5 * US, 20_000)).astype(np.int64)
        within_ns = int(random.integers(1, 5 * US))
        limit = int(np.quantile(latency, random.uniform(0.9, 1))) + int(random.normal(0, 5 * US))
        for text in (
            f"p99 < {limit} ns",
            f"max < {limit} ns",
            f"mean < {limit} ns",
            f"reliability({limit} ns) >= 99 %",
        ):
            required = parse_requirement(text)
            found = judge(required, evidence(latency, within_ns)).answer
            for off in (-within_ns, within_ns, int(random.integers(-within_ns, within_ns + 1))):
                true = judge(required, evidence(latency + off)).answer
                assert found in ("not shown", true), f"case {seed}: {text}, off by {off} ns"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("p99 < 3.999 us", True),
        ("p99 < 4 us", False),
        ("max < 1 us", True),
        ("mean < 1 us", True),
        ("reliability(1 us) >= 99 %", True),
        ("return_level(1 h) < 1 us", True),
        ("loss < 1 %", False),
    ],
)
def test_what_the_clocks_leave_open_cannot_be_required(text: str, refused: bool) -> None:
    run = evidence(np.full(10_000, 10 * US), 2 * US)
    wanted = parse_requirement(text)
    assert bool(unclaimable(wanted, run)) is refused
    assert not refused or judge(wanted, run).answer == "not shown"
    assert not unclaimable(wanted, replace(run, within_ns=0))


def test_a_verdict_on_less_than_the_clocks_leave_open_is_refused(tmp_path: Path) -> None:
    TwoClocks(least_ns=10 * US).write(tmp_path, 1)
    found = evaluate(
        tmp_path / "ingress.stamps", tmp_path / "egress.stamps", clocks=known(-2_000, 2_000)
    )
    found.write(tmp_path / "found")
    for text, limit in (("p50 < 1 us", "4 us"), ("reliability(2 us) >= 9 %", "4 us")):
        with pytest.raises(InputError, match=f"leave open, {limit}: stamp both sides"):
            judge_runs([tmp_path / "found"], [parse_requirement(text)])
    wide = judge_runs([tmp_path / "found"], [parse_requirement("p50 < 1 ms")])
    assert wide.answer == "holds"
