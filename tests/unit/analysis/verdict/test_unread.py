"""Packets that were not matched, or not read, could change an answer: then it is not shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import RADIO, enhanced, interface, section
from captures import MICROSECONDS, frame, pcap
from numpy.typing import NDArray

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.values import Histogram, Unread
from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.judge import judge
from tailtap.analysis.verdict.requirement import parse_requirement
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.records.record import Notice

US = 1_000
SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND


def evidence(latency: NDArray[np.int64], more: dict[str, int], **changes: Any) -> Evidence:
    values, numbers = np.unique(latency, return_counts=True)
    packets = int(latency.size)
    counts = {"matched": packets, "lost": 0, "unmatched_egress": 0, "reordered": 0,
              "duplicate_egress": 0, "duplicate_ingress": 0, "noncausal": 0} | more  # fmt: skip
    counts.setdefault("egress", packets + counts["unmatched_egress"])
    gaps = Histogram(np.array([10 * US]), np.array([counts["egress"] - 1]), 100)
    run = Evidence(
        name="run",
        packets=packets,
        maximum=int(latency.max()),
        mean=float(latency.mean()),
        counts=counts,
        distribution=(values, numbers),
        gaps=gaps,
        gaps_before=gaps,
    )
    return replace(run, **changes)


ALL = np.full(1000, 10 * US)
SURE = {
    "max < 20 us": "holds",
    "mean < 20 us": "holds",
    "mean < 9 us": "violated",
    "max < 9 us": "violated",
    "p90 < 20 us": "holds",
    "reliability(20 us) >= 80 %": "holds",
    "loss == 0": "holds",
    "loss < 20 %": "holds",
    "duplicates == 0": "holds",
    "reordered == 0": "holds",
    "gap(max) < 20 us": "holds",
    "gap(p90) < 20 us": "holds",
}


def answers(run: Evidence) -> dict[str, str]:
    return {text: judge(parse_requirement(text), run).answer for text in SURE}


def changed(run: Evidence) -> set[str]:
    """The requirements that are not shown of a run and would be with nothing left out."""
    found = answers(run)
    assert all(found[text] in (SURE[text], "not shown", "violated") for text in SURE)
    return {text for text in SURE if found[text] == "not shown"}


OF_LATENCY = {"max < 20 us", "mean < 20 us"}
OF_GAPS = {"gap(max) < 20 us", "gap(p90) < 20 us"}


def test_without_anything_left_out_all_is_shown() -> None:
    assert answers(evidence(ALL, {})) == SURE


def test_what_left_the_device_unmatched_while_others_count_as_lost() -> None:
    """A tenth was marked on its way, say: these are the same packets, and may be the late ones."""
    run = evidence(ALL[:900], {"lost": 100, "unmatched_egress": 100})
    found = changed(run)
    assert found >= OF_LATENCY | {"p90 < 20 us", "loss == 0", "reordered == 0", "gap(max) < 20 us"}
    finding = judge(parse_requirement("max < 20 us"), run)
    assert "100 packets after the device match none before it" in finding.reason
    assert answers(run)["max < 9 us"] == "violated"


def test_a_few_do_not_hide_from_a_percentile_what_most_show() -> None:
    run = evidence(ALL[:990], {"lost": 10, "unmatched_egress": 10})
    assert changed(run) == OF_LATENCY | {"loss == 0", "reordered == 0", "gap(max) < 20 us"}


def test_packets_of_others_after_the_device_say_nothing_of_ours() -> None:
    """Where nothing is lost, what matches nothing did not come from before the device."""
    run = evidence(ALL, {"unmatched_egress": 10})
    assert changed(run) == {"gap(max) < 20 us"}


def test_lost_packets_are_lost_where_nothing_else_left_the_device() -> None:
    assert changed(evidence(ALL[:950], {"lost": 50})) == set()
    assert answers(evidence(ALL[:950], {"lost": 50}))["loss == 0"] == "violated"


@pytest.mark.parametrize("after", [Unread(100), Unread(0, without_end=True)])
def test_what_was_not_read_after_the_device(after: Unread) -> None:
    run = evidence(ALL[:900], {"lost": 100}, after=after)
    assert changed(run) >= OF_LATENCY | {"loss == 0", "reordered == 0"}
    assert "not read" in judge(parse_requirement("max < 20 us"), run).reason


def test_what_was_not_read_before_the_device() -> None:
    run = evidence(ALL[:900], {"unmatched_egress": 100}, before=Unread(100))
    assert changed(run) >= OF_LATENCY | {"loss == 0", "duplicates == 0", "reordered == 0"}


@pytest.mark.parametrize("count", ["duplicate_ingress", "noncausal"])
def test_packets_without_a_latency_that_passed(count: str) -> None:
    run = evidence(ALL[:900], {count: 100, "unmatched_egress": 100, "egress": 1000})
    assert changed(run) >= OF_LATENCY | {"reordered == 0"}


def test_a_damaged_capture_makes_no_loss() -> None:
    warning = Notice("capture-damaged", "…")
    run = evidence(ALL[:900], {"lost": 100}, warnings=(warning,))
    assert "loss == 0" in changed(run)


def test_no_answer_is_one_that_the_hidden_packets_contradict() -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        took = 20 * US + np.rint(random.exponential(5 * US, 5_000)).astype(np.int64)
        hidden = int(random.integers(1, 100))
        seen = took[hidden:]
        run = evidence(seen, {"lost": hidden, "unmatched_egress": hidden})
        limit = int(np.quantile(took, random.uniform(0.5, 1))) + int(random.normal(0, 5 * US))
        for text in (f"p99 < {limit} ns", f"max < {limit} ns", f"mean < {limit} ns",
                     f"reliability({limit} ns) >= 99 %"):  # fmt: skip
            required = parse_requirement(text)
            answer = judge(required, run).answer
            for late in (0, limit, 10 * SECOND):
                true = np.concatenate([seen, np.full(hidden, late)])
                other = judge(required, evidence(true, {})).answer
                assert {answer, other} != {"holds", "violated"}, f"case {seed}: {text}, {late}"


def write(folder: Path, latencies: NDArray[np.int64], magic: int) -> Path:
    times = START + np.arange(latencies.size) * 100_000 + np.arange(latencies.size) * 7919 % 9973
    packets = [(int(time), frame(number)) for number, time in enumerate(times)]
    left = [(int(time + took), data) for (time, data), took in zip(packets, latencies, strict=True)]
    (folder / "in").write_bytes(pcap(packets, magic=magic))
    (folder / "out").write_bytes(pcap(left, magic=magic))
    evaluate(folder / "in", folder / "out").write(folder / "found")
    return folder / "found"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("max < 7.5 us", "not shown"),
        ("max <= 9 us", "holds"),
        ("max < 6 us", "violated"),
        ("max < 0.5 us", "violated"),
        ("p90 < 9 us", "holds"),
        ("p90 < 7 us", "not shown"),
        ("mean < 5.5 us", "not shown"),
        ("mean < 7 us", "holds"),
        ("gap(max) < 120 us", "holds"),
    ],
)
def test_the_resolution_is_part_of_every_answer(tmp_path: Path, text: str, answer: str) -> None:
    """Stamps of 1 us; the largest latency is 7.2 us, and reads 8."""
    took = np.random.default_rng(1).integers(3_000, 7_201, 1000)
    took[-1] = 7_200
    folder = write(tmp_path, took, MICROSECONDS)
    verdict = judge_runs([folder], [parse_requirement(text)])
    finding = verdict.verdicts[0]
    assert finding.answer == answer, finding.reason
    if answer == "not shown":
        assert "the stamps come in steps of 1 us" in finding.reason


@pytest.mark.parametrize(("step", "answer"), [(1, "holds"), (1000, "not shown")])
def test_gaps_are_known_to_a_step_of_their_stamps(step: int, answer: str) -> None:
    run = evidence(ALL, {}, egress_step_ns=step)
    assert judge(parse_requirement("gap(max) < 10.5 us"), run).answer == answer


def test_an_order_that_equal_stamps_hide_is_not_shown() -> None:
    tied = Histogram(np.array([0, 10 * US]), np.array([5, 994]), 100)
    run = evidence(ALL, {}, within_ns=US, resolution_ns=US, gaps=tied)
    assert judge(parse_requirement("reordered == 0"), run).answer == "not shown"
    assert judge(parse_requirement("reordered < 5 %"), run).answer == "holds"


def test_packets_of_another_link_type_are_no_loss(tmp_path: Path) -> None:
    """Half of the packets are of an interface that is not read: these are not lost."""
    packets = [(START + n * 100_000 + n * 7919 % 9973, frame(n)) for n in range(1000)]
    (tmp_path / "in").write_bytes(pcap(packets))
    file = section() + interface() + interface(RADIO)
    file += b"".join(enhanced(time + 7_000, data, n % 2) for n, (time, data) in enumerate(packets))
    (tmp_path / "out").write_bytes(file)
    evaluate(tmp_path / "in", tmp_path / "out").write(tmp_path / "found")
    wanted = [parse_requirement(text) for text in ("loss == 0", "max < 10 us", "mean < 10 us")]
    verdict = judge_runs([tmp_path / "found"], wanted)
    assert [row.answer for row in verdict.verdicts] == ["not shown"] * 3
    assert not any(warning.code == "overload" for warning in verdict.warnings)
    assert "not read" in verdict.verdicts[0].reason
