"""One requirement, one run: the answer, what the reason says, and what leaves it open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import RADIO, enhanced, interface, section
from captures import MICROSECONDS, frame, pcap
from numpy.typing import NDArray
from pairs import evaluate_pair
from tails import load_tail, write_tail

from tailtap.analysis.evaluation import Histogram
from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.evaluation.values import Unread
from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.judge import JUDGES, judge, unclaimable
from tailtap.analysis.verdict.requirement import QUANTITIES, parse_requirement
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.records.evaluation import Percentile
from tailtap.records.record import Notice
from tailtap.records.run import Blocked, Event
from tailtap.records.verdict import RunFinding

US = 1_000
SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND
Latencies = NDArray[np.int64]
HOLDS, VIOLATED, NOT_SHOWN = "holds", "violated", "not shown"


def evidence(latency: Latencies, counts: Mapping[str, int] | None = None, **more: Any) -> Evidence:
    """A run of these latencies, of which `counts` are known besides."""
    packets = int(latency.size)
    known_ = {"matched": packets, "egress": packets, "lost": 0, **(counts or {})}
    run = Evidence(
        name="run",
        packets=packets,
        maximum=int(latency.max()) if packets else None,
        mean=float(latency.mean()) if packets else None,
        counts=known_,
        distribution=np.unique(latency, return_counts=True),
        rate=10_000.0,
    )
    return replace(run, **more)


def with_tail(folder: Path, latency: Latencies) -> Evidence:
    return evidence(latency, tail=load_tail(write_tail(folder, latency), "run"))


def answer(text: str, run: Evidence) -> RunFinding:
    found = judge(parse_requirement(text), run)
    assert "\n" not in found.reason and "nan" not in found.reason and "inf" not in found.reason
    return found


def of_late(late: int, packets: int) -> Latencies:
    """So many packets at 2 us, the others at 1 us."""
    return np.repeat([1 * US, 2 * US], [packets - late, late])


def event(name: str, *bounds: int | None, status: int = 0) -> Event:
    """An event, and how long it blocked: measured, at least and at most."""
    ns, least, most = bounds or (None, None, None)
    block = Blocked(begin_ns=0, ns=ns, least_ns=least or 0, most_ns=most) if bounds else None
    return Event(name=name, where="dut", command=[], at_ns=0, window_ns=0, begin_ns=0,
                 status=status, blocked=block)  # fmt: skip


def blocking(*events: Event) -> Evidence:
    return evidence(np.full(1000, US), events=events)


MISSED = (Notice("stamps-lost", "the egress tap had no room"),)
GAPS = Histogram(np.array([9_900, 10_000, 10_100]), np.array([49_000, 50_900, 100]), 100)
PUBLISHED = Evidence("run", packets=100_000, maximum=90_000, percentiles=[
    Percentile(p, value, None, None, above, above >= 10)
    for p, value, above in ((0.5, 1_000, 50_000), (0.99, 2_000, 1_000), (0.999, 5_000, 100),
                            (0.9999, 20_000, 10))
])  # fmt: skip
TWO_CLOCKS = evidence(np.full(10_000, 10 * US), within=Within(2 * US))
ANSWERS: dict[str, tuple[Evidence, Mapping[str, str]]] = {
    **{
        f"{late} of {packets} late": (evidence(of_late(late, packets)), {"p99.9 < 2 us": expected})
        for late, packets, expected in (
            (0, 100_000, HOLDS), (80, 100_000, HOLDS), (100, 100_000, NOT_SHOWN),
            (121, 100_000, VIOLATED), (0, 9_999, NOT_SHOWN), (0, 10_000, HOLDS),
        )
    },
    "the limit itself": (evidence(np.full(100_000, 5 * US)), {
        "p99 < 5 us": VIOLATED, "p99 <= 5 us": HOLDS, "max < 5 us": VIOLATED, "max <= 5 us": HOLDS,
        "mean < 5 us": VIOLATED, "mean <= 5 us": HOLDS, "reliability(5 us) >= 99.9 %": HOLDS,
        "reliability(4.999 us) >= 99.9 %": VIOLATED,
    }),
    "lost packets count against reliability alone": (
        evidence(of_late(0, 1_000_000), {"lost": 30}), {
            "p99.99 < 2 us": HOLDS, "reliability(1 ms) >= 99.99 %": HOLDS,
            "reliability(1 ms) >= 99.999 %": "violated: 30 of 1,000,030 packets",
        },
    ),
    "an overloaded run": (evidence(of_late(0, 900_000), {"lost": 100_000}), {
        "p99.9 < 1 ms": "not shown: 10 % of the packets were lost", "median < 1 ms": HOLDS,
        "reliability(1 ms) >= 99.9 %": VIOLATED, "loss < 1 %": VIOLATED, "loss == 0": VIOLATED,
    }),
    "as many lost packets as the percentile leaves": (
        evidence(of_late(0, 9_000), {"lost": 1_000}), {
            "p90 < 1 ms": HOLDS, "p90.001 < 1 ms": "not shown: 10 % of the packets were lost",
        },
    ),
    "packets that left before they came may be late": (
        evidence(of_late(0, 900), {"noncausal": 100}), {
            "reliability(2 us) >= 85 %": HOLDS, "reliability(2 us) >= 95 %": NOT_SHOWN,
        },
    ),
    "what was not read before the device may be of the copies": (
        evidence(of_late(0, 900), {"duplicate_egress": 5}, before=Unread(5)),
        {"duplicates == 0": NOT_SHOWN, "duplicates < 5 %": HOLDS},
    ),
    "stamps that the tap missed": (
        evidence(of_late(0, 1_000_000), {"lost": 500}, warnings=MISSED), {
            "loss == 0": "not shown: may be lost: stamps are missing, and",
            "loss < 0.01 %": NOT_SHOWN, "loss < 1 %": HOLDS,
            "reliability(1 ms) >= 99.99 %": NOT_SHOWN,
        },
    ),
    "counts of the device": (
        evidence(of_late(0, 100_000), {"duplicate_egress": 3, "reordered": 200}),
        {"duplicates == 0": VIOLATED, "duplicates < 0.1 %": HOLDS, "reordered < 0.1 %": VIOLATED},
    ),
    # 10 fewer came out than went in, and 40 more of those that did have no latency.
    "packets that published counts do not explain": (
        evidence(of_late(0, 99_950), {"lost": 10}, offered=100_000, published=True), {
            "reliability(1 ms) >= 99.95 %": "not shown: need not begin and end together",
            "reliability(1 ms) >= 99.9 %": HOLDS, "loss == 0": NOT_SHOWN,
        },
    ),
    "gaps are known to a bucket": (Evidence("run", packets=100_001, gaps=GAPS), {
        "gap(p99) < 10.1 us": HOLDS, "gap(p99.9) < 10.1 us": NOT_SHOWN,
        "gap(p99.99) < 10.1 us": VIOLATED, "gap(p99.99) < 10.15 us": NOT_SHOWN,
        "gap(max) < 10.2 us": HOLDS, "gap(max) < 10.15 us": NOT_SHOWN,
        "gap(max) < 10.1 us": VIOLATED,
    }),
    "published percentiles": (PUBLISHED, {
        "p99 < 10 us": HOLDS, "p99.9 < 10 us": NOT_SHOWN, "p99.99 < 5 us": VIOLATED,
        "max < 100 us": HOLDS, "max < 90 us": VIOLATED, "reliability(1 ms) >= 99 %": NOT_SHOWN,
        "return_level(24 h) < 1 ms": NOT_SHOWN,
    }),
    "published percentiles of unknown packets": (replace(PUBLISHED, packets=None), {
        "p99 < 10 us": "not shown: do not say how many packets", "max < 100 us": HOLDS,
    }),
    "an event": (blocking(event("a", 50, 49, 51)), {
        "blocked(a) < 52 ns": HOLDS, "blocked(event) <= 51 ns": HOLDS,
        "blocked(a) < 51 ns": NOT_SHOWN, "blocked(a) < 50 ns": NOT_SHOWN,
        "blocked(a) < 49 ns": VIOLATED, "blocked(a) <= 48 ns": VIOLATED,
    }),
    "an event that blocked nothing": (
        blocking(event("a")), {"blocked(a) < 1 ns": HOLDS, "blocked(b) < 1 s": NOT_SHOWN},
    ),
    "an event without an end": (
        blocking(event("a", None, 49, None)),
        {"blocked(a) < 1 s": NOT_SHOWN, "blocked(a) < 49 ns": VIOLATED},
    ),
    "an event that failed": (blocking(event("a", status=3)), {"blocked(a) < 1 s": NOT_SHOWN}),
    "one that failed and blocked": (
        blocking(event("a", 9, 9, 9, status=3)), {"blocked(a) < 5 ns": VIOLATED},
    ),
    "two events": (
        blocking(event("a"), event("b", 9, 9, 9)),
        {"blocked(event) < 5 ns": VIOLATED, "blocked(a) < 5 ns": HOLDS},
    ),
    "no event": (blocking(), {"blocked(event) < 1 s": NOT_SHOWN}),
    # All of 10,000 packets took 10 us, less or more 2 us: an answer must be one at both ends.
    "two clocks": (TWO_CLOCKS, {
        "p99 < 13 us": HOLDS, "p99 < 12 us": NOT_SHOWN, "p99 <= 12 us": HOLDS,
        "p99 < 8 us": VIOLATED, "p99 <= 8 us": NOT_SHOWN, "p99 < 7 us": VIOLATED,
        "max < 13 us": HOLDS, "max <= 12 us": HOLDS, "max < 12 us": NOT_SHOWN,
        "max < 9 us": NOT_SHOWN, "max <= 8 us": NOT_SHOWN, "max < 8 us": VIOLATED,
        "mean < 12.001 us": HOLDS, "mean < 12 us": NOT_SHOWN, "mean <= 8 us": NOT_SHOWN,
        "mean < 8 us": VIOLATED, "reliability(12 us) >= 99 %": HOLDS,
        "reliability(10 us) >= 99 %": "not shown: latencies may be off by 2 us to either side, as "
        "the clocks are two",
        "reliability(7 us) >= 99 %": VIOLATED, "loss == 0": HOLDS,
    }),
}  # fmt: skip
"""Runs by what they are about; the answer to each requirement, and words of its reason."""


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_follow_from_what_a_run_says(name: str) -> None:
    run, expected = ANSWERS[name]
    for text, said in expected.items():
        wanted, _, words = said.partition(": ")
        found = answer(text, run)
        assert found.answer == wanted and words in found.reason, (text, found.reason)


def test_every_quantity_has_a_judge() -> None:
    assert QUANTITIES.keys() == JUDGES.keys()


def test_what_is_told_beside_the_answer() -> None:
    missed, _ = ANSWERS["stamps that the tap missed"]
    assert answer("loss == 0", missed).doubts == ["stamps-lost"]
    unexplained, _ = ANSWERS["packets that published counts do not explain"]
    figures = answer("reliability(1 ms) >= 99.95 %", unexplained).figures
    assert (figures["late_at_least"], figures["late"]) == (0, 50)
    assert PUBLISHED.late(10_000, strict=True) == (11, 100)
    assert "10 us ± 2 us" in answer("p99 < 13 us", TWO_CLOCKS).measured


def test_what_zero_and_the_maximum_say_beyond_the_run() -> None:
    run = evidence(of_late(0, 1_000_000), {"duplicate_egress": 0, "reordered": 0})
    for text in ("loss == 0", "duplicates == 0", "reordered == 0", "max < 500 us",
                 "loss <= 0 %", "reliability(1 ms) >= 100 %"):  # fmt: skip
        found = answer(text, run)
        assert found.answer == HOLDS
        # The rule of three.
        assert found.figures["upper"] == pytest.approx(3e-6, rel=0.01)
        assert "at most 0.0003 % with 95 % confidence" in found.reason


def test_bursts_weaken_what_late_packets_say(tmp_path: Path) -> None:
    latency = np.full(400_000, US)
    for start in range(1_000, 400_000, 100_000):
        latency[start : start + 50] = 2 * US
    assert answer("p99.9 < 2 us", evidence(latency)).answer == HOLDS
    found = answer("p99.9 < 2 us", with_tail(tmp_path, latency))
    assert found.answer == NOT_SHOWN and "counted in clusters of 50" in found.reason
    assert found.figures["design_effect"] == 50


EACH = ("p99.9 < 1 ms", "median < 1 ms", "mean < 1 ms", "max < 1 ms", "loss == 0", "loss < 1 %",
        "duplicates == 0", "reordered == 0", "reliability(1 ms) >= 99 %",
        "return_level(24 h) < 1 ms", "gap(p99) < 1 ms", "gap(max) < 1 ms")  # fmt: skip


@pytest.mark.parametrize("text", EACH)
def test_refused_empty_and_tiny_runs_show_next_to_nothing(text: str, tmp_path: Path) -> None:
    found = answer(text, Evidence("run", "the run is invalid (generator-slip)"))
    assert (found.answer, found.measured) == (NOT_SHOWN, "")
    assert "invalid" in found.reason
    assert answer(text, Evidence("run")).answer == NOT_SHOWN
    assert answer(text, evidence(np.empty(0, np.int64))).answer == NOT_SHOWN
    five = answer(text, with_tail(tmp_path, np.array([1, 2, 3, 4, 5]) * US))
    assert (five.answer == HOLDS) == text.startswith(("mean", "max", "loss =="))


def test_a_return_level_is_judged_by_its_interval(tmp_path: Path) -> None:
    constant = answer("return_level(24 h) < 1 ms", with_tail(tmp_path, np.full(100_000, 5 * US)))
    assert constant.answer == NOT_SHOWN and "no threshold gives a model" in constant.reason
    latency = (3_000 + np.random.default_rng(3).gamma(2, 300, 1_000_000)).astype(np.int64)
    run = with_tail(tmp_path, latency)
    found = answer("return_level(1 h) < 1 ms", run)
    low, high = found.figures["low_ns"], found.figures["high_ns"]
    assert found.answer == HOLDS and low < high < 1_000_000
    assert "once in 1 h at 10 kpkt/s: " in found.reason
    assert answer(f"return_level(1 h) < {int(low) - 1} ns", run).answer == VIOLATED
    found = answer(f"return_level(1 h) < {int((low + high) / 2)} ns", run)
    assert found.answer == NOT_SHOWN and "does not decide" in found.reason
    assert "prediction-failed" not in found.doubts
    hiding = replace(run, counts={"matched": 1_000_000, "lost": 1, "unmatched_egress": 1})
    assert answer("return_level(1 h) < 1 ms", hiding).answer == NOT_SHOWN
    found = answer("return_level(1 ms) < 1 s", run)
    assert found.answer == NOT_SHOWN and "look at the percentiles" in found.reason


# Captures of two clocks, and packets that were not matched or not read.


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
    wanted = parse_requirement(text)
    assert bool(unclaimable(wanted, TWO_CLOCKS)) is refused
    assert not refused or judge(wanted, TWO_CLOCKS).answer == NOT_SHOWN
    assert not unclaimable(wanted, replace(TWO_CLOCKS, within=Within()))


ALL = np.full(1000, 10 * US)
NOTHING = dict.fromkeys(
    ("unmatched_egress", "reordered", "duplicate_egress", "duplicate_ingress", "noncausal"), 0
)
SURE = {
    "max < 20 us": HOLDS, "mean < 20 us": HOLDS, "mean < 9 us": VIOLATED, "max < 9 us": VIOLATED,
    "p90 < 20 us": HOLDS, "reliability(20 us) >= 80 %": HOLDS, "loss == 0": HOLDS,
    "loss < 20 %": HOLDS, "duplicates == 0": HOLDS, "reordered == 0": HOLDS,
    "gap(max) < 20 us": HOLDS, "gap(p90) < 20 us": HOLDS,
}  # fmt: skip


def counted(latency: Latencies, more: Mapping[str, int], **changes: Any) -> Evidence:
    """A run of which everything is counted."""
    counts = {**NOTHING, **more}
    counts.setdefault("egress", latency.size + counts["unmatched_egress"])
    gaps = Histogram(np.array([10 * US]), np.array([counts["egress"] - 1]), 100)
    return evidence(latency, counts, **{"gaps": gaps, "gaps_before": gaps, **changes})


OF_LATENCY = {"max < 20 us", "mean < 20 us"}
OF_LOSS = {"loss == 0", "reordered == 0"}


@pytest.mark.parametrize(
    ("run", "least", "most"),
    [
        (counted(ALL, {}), set(), set()),
        # A tenth was marked on its way, say: these are the same packets, and may be the late ones.
        (counted(ALL[:900], {"lost": 100, "unmatched_egress": 100}),
         OF_LATENCY | OF_LOSS | {"p90 < 20 us", "gap(max) < 20 us"}, None),
        # A few do not hide from a percentile what most show.
        (counted(ALL[:990], {"lost": 10, "unmatched_egress": 10}),
         OF_LATENCY | OF_LOSS | {"gap(max) < 20 us"}, OF_LATENCY | OF_LOSS | {"gap(max) < 20 us"}),
        # Where nothing is lost, what matches nothing did not come from before the device.
        (counted(ALL, {"unmatched_egress": 10}), {"gap(max) < 20 us"}, {"gap(max) < 20 us"}),
        # Lost packets are lost where nothing else left the device.
        (counted(ALL[:950], {"lost": 50}), set(), set()),
        (counted(ALL[:900], {"lost": 100}, after=Unread(100)), OF_LATENCY | OF_LOSS, None),
        (counted(ALL[:900], {"lost": 100}, after=Unread(0, without_end=True)),
         OF_LATENCY | OF_LOSS, None),
        (counted(ALL[:900], {"unmatched_egress": 100}, before=Unread(100)),
         OF_LATENCY | OF_LOSS | {"duplicates == 0"}, None),
        (counted(ALL[:900], {"duplicate_ingress": 100, "unmatched_egress": 100, "egress": 1000}),
         OF_LATENCY | {"reordered == 0"}, None),
        (counted(ALL[:900], {"noncausal": 100, "unmatched_egress": 100, "egress": 1000}),
         OF_LATENCY | {"reordered == 0"}, None),
        (counted(ALL[:900], {"lost": 100}, warnings=(Notice("capture-damaged", "…"),)),
         {"loss == 0"}, None),
    ],
)  # fmt: skip
def test_what_was_not_matched_or_not_read_could_change_an_answer(
    run: Evidence, least: set[str], most: set[str] | None
) -> None:
    """Then it is not shown, and the answers that stay are those of all packets, or of loss."""
    found = {text: answer(text, run) for text in SURE}
    assert all(one.answer in (SURE[text], NOT_SHOWN, VIOLATED) for text, one in found.items())
    open_ = {text for text, one in found.items() if one.answer == NOT_SHOWN}
    assert least <= open_ and (most is None or open_ == most)
    assert found["max < 9 us"].answer == VIOLATED
    lost, beside = run.counts["lost"], run.counts["unmatched_egress"]
    if lost and not beside and not open_:
        assert found["loss == 0"].answer == VIOLATED
    if lost and beside:
        assert f"{beside} packets after the device without a match" in found["max < 20 us"].reason
    if run.after != Unread(0):
        assert "not read" in found["max < 20 us"].reason


def test_the_resolution_is_part_of_every_answer(tmp_path: Path) -> None:
    """Stamps of 1 us; the largest latency is 7.2 us, and reads 8."""
    took = np.random.default_rng(1).integers(3_000, 7_201, 1000)
    took[-1] = 7_200
    times = START + np.arange(took.size) * 100_000 + np.arange(took.size) * 7919 % 9973
    sides = (
        pcap(((int(t), frame(n)) for n, t in enumerate(side)), magic=MICROSECONDS)
        for side in (times, times + took)
    )
    evaluate_pair(tmp_path, *sides, throughout=False).write(tmp_path / "found")
    expected = {
        "max < 7.5 us": NOT_SHOWN, "max <= 9 us": HOLDS, "max < 6 us": VIOLATED,
        "max < 0.5 us": VIOLATED, "p90 < 9 us": HOLDS, "p90 < 7 us": NOT_SHOWN,
        "mean < 5.5 us": NOT_SHOWN, "mean < 7 us": HOLDS, "gap(max) < 120 us": HOLDS,
    }  # fmt: skip
    for text, wanted in expected.items():
        [finding] = judge_runs([tmp_path / "found"], [parse_requirement(text)]).verdicts
        assert finding.answer == wanted, finding.reason
        stepped = "the stamps come in steps of 1 us" in finding.reason
        assert wanted != NOT_SHOWN or stepped


@pytest.mark.parametrize(("step", "expected"), [(1, HOLDS), (1000, NOT_SHOWN)])
def test_gaps_are_known_to_a_step_of_their_stamps(step: int, expected: str) -> None:
    run = counted(ALL, {}, egress_step_ns=step)
    assert answer("gap(max) < 10.5 us", run).answer == expected


def test_an_order_that_equal_stamps_hide_is_not_shown() -> None:
    tied = Histogram(np.array([0, 10 * US]), np.array([5, 994]), 100)
    run = counted(ALL, {}, within=Within(US, US), gaps=tied)
    assert answer("reordered == 0", run).answer == NOT_SHOWN
    assert answer("reordered < 5 %", run).answer == HOLDS


def test_packets_of_another_link_type_are_no_loss(tmp_path: Path) -> None:
    """Half of the packets are of an interface that is not read: these are not lost."""
    packets = [(START + n * 100_000 + n * 7919 % 9973, frame(n)) for n in range(1000)]
    behind = section() + interface() + interface(RADIO) + b"".join(
        enhanced(time + 7_000, data, n % 2) for n, (time, data) in enumerate(packets)
    )  # fmt: skip
    evaluate_pair(tmp_path, pcap(packets), behind, throughout=False).write(tmp_path / "found")
    wanted = [parse_requirement(text) for text in ("loss == 0", "max < 10 us", "mean < 10 us")]
    verdict = judge_runs([tmp_path / "found"], wanted)
    assert [row.answer for row in verdict.verdicts] == [NOT_SHOWN] * 3
    assert not any(warning.code == "overload" for warning in verdict.warnings)
    assert "not read" in verdict.verdicts[0].reason
