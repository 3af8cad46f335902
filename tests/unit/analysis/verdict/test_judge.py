"""One requirement, one run: the answer, and what the reason says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tails import load_tail, write_tail

from tailtap.analysis.evaluation.values import Histogram
from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.judge import JUDGES, judge
from tailtap.analysis.verdict.requirement import QUANTITIES, parse_requirement
from tailtap.records.evaluation import Percentile
from tailtap.records.record import Notice
from tailtap.records.run import Blocked, Event
from tailtap.records.verdict import RunFinding

US = 1_000


def evidence(
    latency: np.ndarray, *, lost: int = 0, warnings: tuple[Notice, ...] = (), **counts: int
) -> Evidence:
    values, numbers = np.unique(latency, return_counts=True)
    packets = int(latency.size)
    return Evidence(
        name="run",
        packets=packets,
        maximum=int(latency.max()) if packets else None,
        mean=float(latency.mean()) if packets else None,
        counts={"matched": packets, "egress": packets, "lost": lost, **counts},
        distribution=(values, numbers),
        rate=10_000.0,
        warnings=warnings,
    )


def answer(text: str, run: Evidence) -> RunFinding:
    found = judge(parse_requirement(text), run)
    assert "\n" not in found.reason and "nan" not in found.reason and "inf" not in found.reason
    return found


def of_late(late: int, packets: int) -> np.ndarray:
    """So many packets at 2 us, the others at 1 us."""
    return np.repeat([1 * US, 2 * US], [packets - late, late])


def test_every_quantity_has_a_judge() -> None:
    assert QUANTITIES.keys() == JUDGES.keys()


@pytest.mark.parametrize(
    ("late", "packets", "expected"),
    [(0, 100_000, "holds"), (80, 100_000, "holds"), (100, 100_000, "not shown"),
     (121, 100_000, "violated"), (0, 9_999, "not shown"), (0, 10_000, "holds")],
)  # fmt: skip
def test_a_percentile(late: int, packets: int, expected: str) -> None:
    assert answer("p99.9 < 2 us", evidence(of_late(late, packets))).answer == expected


def test_the_limit_itself() -> None:
    run = evidence(np.full(100_000, 5 * US))
    assert answer("p99 < 5 us", run).answer == "violated"
    assert answer("p99 <= 5 us", run).answer == "holds"
    assert answer("max < 5 us", run).answer == "violated"
    assert answer("max <= 5 us", run).answer == "holds"
    assert answer("mean < 5 us", run).answer == "violated"
    assert answer("mean <= 5 us", run).answer == "holds"
    assert answer("reliability(5 us) >= 99.9 %", run).answer == "holds"
    assert answer("reliability(4.999 us) >= 99.9 %", run).answer == "violated"


def test_how_many_more_and_how_long() -> None:
    found = answer("p99.999 < 2 us", evidence(of_late(0, 100_000)))
    assert found.answer == "not shown"
    assert (found.figures["more_packets"], found.figures["more_seconds"]) == (900_000, 90.0)
    # The whole length: runs are judged one by one, so that a second one of 90 s shows nothing.
    assert found.reason.endswith(
        "too few to tell; one run of 1,000,000 packets with none would show it: 100 s at 10 kpkt/s"
    )
    # With a late packet so far it takes more; and so many more show it.
    found = answer("p99.99 < 2 us", evidence(of_late(6, 50_000)))
    more = found.figures["more_packets"]
    assert f"one run of {50_000 + more:,} packets with no more than these 6" in found.reason
    assert more > 50_000
    assert answer("p99.99 < 2 us", evidence(of_late(6, 50_000 + more))).answer == "holds"
    assert answer("p99.99 < 2 us", evidence(of_late(6, 49_998 + more))).answer == "not shown"


def test_lost_packets_count_against_reliability_alone() -> None:
    run = evidence(of_late(0, 1_000_000), lost=30)
    assert answer("p99.99 < 2 us", run).answer == "holds"
    assert answer("reliability(1 ms) >= 99.99 %", run).answer == "holds"
    found = answer("reliability(1 ms) >= 99.999 %", run)
    assert found.answer == "violated" and "30 of 1,000,030 packets" in found.reason


def test_an_overloaded_run() -> None:
    run = evidence(of_late(0, 900_000), lost=100_000)
    found = answer("p99.9 < 1 ms", run)
    assert found.answer == "not shown" and "10 % of the packets were lost" in found.reason
    assert answer("median < 1 ms", run).answer == "holds"
    assert answer("reliability(1 ms) >= 99.9 %", run).answer == "violated"
    assert answer("loss < 1 %", run).answer == "violated"
    assert answer("loss == 0", run).answer == "violated"


def test_stamps_that_the_tap_missed_are_no_proof_of_loss() -> None:
    missed = (Notice("stamps-lost", "the egress tap had no room"),)
    run = evidence(of_late(0, 1_000_000), lost=500, warnings=missed)
    found = answer("loss == 0", run)
    assert found.answer == "not shown" and "may be lost: stamps are missing, and" in found.reason
    assert answer("loss < 0.01 %", run).answer == "not shown"
    assert answer("loss < 1 %", run).answer == "holds"
    assert answer("reliability(1 ms) >= 99.99 %", run).answer == "not shown"
    assert found.doubts == ["stamps-lost"]


def test_packets_that_published_counts_do_not_explain() -> None:
    """10 fewer came out than went in, and 40 more of those that did have no latency."""
    known = vars(evidence(of_late(0, 99_950), lost=10))
    run = Evidence(**{**known, "offered": 100_000, "published": True})
    found = answer("reliability(1 ms) >= 99.95 %", run)
    assert (found.figures["late_at_least"], found.figures["late"]) == (0, 50)
    assert found.answer == "not shown" and "need not begin and end together" in found.reason
    assert answer("reliability(1 ms) >= 99.9 %", run).answer == "holds"
    assert answer("loss == 0", run).answer == "not shown"


def test_what_zero_and_the_maximum_say_beyond_the_run() -> None:
    run = evidence(of_late(0, 1_000_000), duplicate_egress=0, reordered=0)
    for text in ("loss == 0", "duplicates == 0", "reordered == 0", "max < 500 us",
                 "loss <= 0 %", "reliability(1 ms) >= 100 %"):  # fmt: skip
        found = answer(text, run)
        assert found.answer == "holds"
        # The rule of three.
        assert found.figures["upper"] == pytest.approx(3e-6, rel=0.01)
        assert "at most 0.0003 % with 95 % confidence" in found.reason


def test_counts_of_the_device() -> None:
    run = evidence(of_late(0, 100_000), duplicate_egress=3, reordered=200)
    assert answer("duplicates == 0", run).answer == "violated"
    assert answer("duplicates < 0.1 %", run).answer == "holds"
    assert answer("reordered < 0.1 %", run).answer == "violated"


def test_bursts_weaken_what_late_packets_say(tmp_path: Path) -> None:
    latency = np.full(400_000, US)
    for start in range(1_000, 400_000, 100_000):
        latency[start : start + 50] = 2 * US
    alone = evidence(latency)
    tail = load_tail(write_tail(tmp_path, latency), "run")
    together = Evidence(**{**vars(alone), "tail": tail})
    assert answer("p99.9 < 2 us", alone).answer == "holds"
    found = answer("p99.9 < 2 us", together)
    assert found.answer == "not shown" and "counted in clusters of 50" in found.reason
    assert found.figures["design_effect"] == 50


def test_gaps_are_known_to_a_bucket() -> None:
    edges, counts = np.array([9_900, 10_000, 10_100]), np.array([49_000, 50_900, 100])
    run = Evidence("run", packets=100_001, gaps=Histogram(edges, counts, 100))
    assert answer("gap(p99) < 10.1 us", run).answer == "holds"
    assert answer("gap(p99.9) < 10.1 us", run).answer == "not shown"
    assert answer("gap(p99.99) < 10.1 us", run).answer == "violated"
    assert answer("gap(p99.99) < 10.15 us", run).answer == "not shown"
    assert answer("gap(max) < 10.2 us", run).answer == "holds"
    assert answer("gap(max) < 10.15 us", run).answer == "not shown"
    assert answer("gap(max) < 10.1 us", run).answer == "violated"


def test_published_percentiles_bound_what_nobody_counted() -> None:
    rows = [Percentile(p, value, None, None, above, above >= 10)
            for p, value, above in ((0.5, 1_000, 50_000), (0.99, 2_000, 1_000),
                                    (0.999, 5_000, 100), (0.9999, 20_000, 10))]  # fmt: skip
    run = Evidence("run", packets=100_000, maximum=90_000, percentiles=rows)
    assert run.late(10_000, strict=True) == (11, 100)
    assert answer("p99 < 10 us", run).answer == "holds"
    assert answer("p99.9 < 10 us", run).answer == "not shown"
    assert answer("p99.99 < 5 us", run).answer == "violated"
    assert answer("max < 100 us", run).answer == "holds"
    assert answer("max < 90 us", run).answer == "violated"
    assert answer("reliability(1 ms) >= 99 %", run).answer == "not shown"
    assert answer("return_level(24 h) < 1 ms", run).answer == "not shown"
    unknown = Evidence("run", percentiles=rows, maximum=90_000)
    found = answer("p99 < 10 us", unknown)
    assert found.answer == "not shown" and "do not say how many packets" in found.reason
    assert answer("max < 100 us", unknown).answer == "holds"


ALL = ("p99.9 < 1 ms", "median < 1 ms", "mean < 1 ms", "max < 1 ms", "loss == 0", "loss < 1 %",
       "duplicates == 0", "reordered == 0", "reliability(1 ms) >= 99 %",
       "return_level(24 h) < 1 ms", "gap(p99) < 1 ms", "gap(max) < 1 ms")  # fmt: skip


@pytest.mark.parametrize("text", ALL)
def test_refused_and_empty_runs_show_nothing(text: str) -> None:
    found = answer(text, Evidence("run", "the run is invalid (generator-slip)"))
    assert (found.answer, found.measured) == ("not shown", "")
    assert "invalid" in found.reason
    assert answer(text, Evidence("run")).answer == "not shown"
    assert answer(text, evidence(np.empty(0, np.int64))).answer == "not shown"


@pytest.mark.parametrize("text", ALL)
def test_five_packets(text: str, tmp_path: Path) -> None:
    latency = np.array([1, 2, 3, 4, 5]) * US
    tail = load_tail(write_tail(tmp_path, latency), "run")
    found = answer(text, Evidence(**{**vars(evidence(latency)), "tail": tail}))
    of_the_run = text.startswith(("mean", "max", "loss =="))
    assert found.answer == ("holds" if of_the_run else "not shown")


def test_constant_latencies_have_no_return_level(tmp_path: Path) -> None:
    latency = np.full(100_000, 5 * US)
    tail = load_tail(write_tail(tmp_path, latency), "run")
    run = Evidence(**{**vars(evidence(latency)), "tail": tail})
    found = answer("return_level(24 h) < 1 ms", run)
    assert found.answer == "not shown" and "no threshold gives a model" in found.reason
    assert answer("p99.9 < 6 us", run).answer == "holds"


def test_a_return_level_is_judged_by_its_interval(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    latency = (3_000 + random.gamma(2, 300, 1_000_000)).astype(np.int64)
    tail = load_tail(write_tail(tmp_path, latency), "run")
    run = Evidence(**{**vars(evidence(latency)), "tail": tail})
    found = answer("return_level(1 h) < 1 ms", run)
    low, high = found.figures["low_ns"], found.figures["high_ns"]
    assert found.answer == "holds" and low < high < 1_000_000
    assert "once in 1 h at 10 kpkt/s: " in found.reason
    assert answer(f"return_level(1 h) < {int(low) - 1} ns", run).answer == "violated"
    found = answer(f"return_level(1 h) < {int((low + high) / 2)} ns", run)
    assert found.answer == "not shown" and "does not decide" in found.reason
    assert "prediction-failed" not in found.doubts
    found = answer("return_level(1 ms) < 1 s", run)
    assert found.answer == "not shown" and "look at the percentiles" in found.reason


def happened(name: str, block: Blocked | None, status: int | None = 0) -> Event:
    return Event(name=name, where="dut", command=[], at_ns=0, window_ns=0, begin_ns=0,
                 status=status, blocked=block)  # fmt: skip


def block(ns: int | None, least: int, most: int | None) -> Blocked:
    return Blocked(begin_ns=0, ns=ns, least_ns=least, most_ns=most)


@pytest.mark.parametrize(
    ("events", "text", "expected"),
    [
        ([happened("a", block(50, 49, 51))], "blocked(a) < 52 ns", "holds"),
        ([happened("a", block(50, 49, 51))], "blocked(event) <= 51 ns", "holds"),
        ([happened("a", block(50, 49, 51))], "blocked(a) < 51 ns", "not shown"),
        ([happened("a", block(50, 49, 51))], "blocked(a) < 50 ns", "not shown"),
        ([happened("a", block(50, 49, 51))], "blocked(a) < 49 ns", "violated"),
        ([happened("a", block(50, 49, 51))], "blocked(a) <= 48 ns", "violated"),
        ([happened("a", None)], "blocked(a) < 1 ns", "holds"),
        ([happened("a", block(None, 49, None))], "blocked(a) < 1 s", "not shown"),
        ([happened("a", block(None, 49, None))], "blocked(a) < 49 ns", "violated"),
        ([happened("a", None, 3)], "blocked(a) < 1 s", "not shown"),
        ([happened("a", block(9, 9, 9), 3)], "blocked(a) < 5 ns", "violated"),
        ([happened("a", None), happened("b", block(9, 9, 9))], "blocked(event) < 5 ns", "violated"),
        ([happened("a", None), happened("b", block(9, 9, 9))], "blocked(a) < 5 ns", "holds"),
        ([], "blocked(event) < 1 s", "not shown"),
        ([happened("a", None)], "blocked(b) < 1 s", "not shown"),
    ],
)
def test_how_long_events_block(events: list[Event], text: str, expected: str) -> None:
    run = replace(evidence(np.full(1000, US)), events=events)
    assert answer(text, run).answer == expected
