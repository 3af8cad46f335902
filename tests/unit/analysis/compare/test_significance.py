"""Tests over repeats and pairs, against scipy and by enumeration, and the ranks that follow."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tails import load_tail, write_tail

from tailtap.analysis.compare.checks import advise
from tailtap.analysis.compare.comparison import compare_loaded
from tailtap.analysis.compare.configurations import gather
from tailtap.analysis.compare.ranking import interval as of_tail
from tailtap.analysis.compare.ranking import rank
from tailtap.analysis.compare.significance import (
    ALPHA,
    MOST_COUNTED,
    Interval,
    against,
    decidable,
    effect,
    fewest_pairs,
    interval,
    rank_test,
    repeats_needed,
    shift,
    smallest_p,
)
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError


def test_many_runs_are_tested_by_the_normal_approximation() -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(0, 1, MOST_COUNTED), random.normal(0.2, 1, 60)
    expected = stats.mannwhitneyu(one, other, method="asymptotic").pvalue
    assert rank_test(one, other) == pytest.approx(expected)


def test_overloaded_runs_are_later_than_any() -> None:
    assert rank_test([math.inf] * 4, [1, 2, 3, 4]) == smallest_p(4, 4) == pytest.approx(2 / 70)
    assert rank_test([math.inf] * 4, [math.inf] * 4) == 1


def test_three_repeats_reach_a_tenth_at_best() -> None:
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert rank_test([9, 8, 7], [1, 2, 3]) == pytest.approx(0.1)
    assert smallest_p(1, 1) == 1 and smallest_p(0, 5) == 1
    assert repeats_needed(1) == 4 and smallest_p(4, 4) < ALPHA
    assert smallest_p(repeats_needed(91), repeats_needed(91)) <= ALPHA / 91


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=40))
def test_only_comparisons_that_can_be_significant_are_corrected_for(
    sizes: list[tuple[int, int]],
) -> None:
    chosen = decidable(sizes)
    count = sum(chosen)
    least = [smallest_p(*size) for size in sizes]
    assert all(p <= ALPHA / count for p, yes in zip(least, chosen, strict=True) if yes)
    # Whoever is left out would be one too many.
    for p, yes in zip(least, chosen, strict=True):
        assert yes or p > ALPHA / sum(other <= p for other in least)


def test_shift_is_of_hodges_and_lehmann() -> None:
    found = shift([20.0, 40.0, 60.0, 80.0], [10.0, 10.0, 10.0, 10.0])
    assert found.ratio == pytest.approx(math.sqrt(4 * 6)) and found.difference == 40
    assert (found.low, found.high) == (2, 8)
    # The critical value of five against six is 3 in the tables of Mann and Whitney at 5 %.
    one, other = np.exp2(np.arange(5)), 3 ** np.arange(6.0)
    ratios, found = np.sort((one[:, None] / other).ravel()), shift(one, other)
    assert (found.low, found.high) == (ratios[3], ratios[-4])
    assert shift([3.0], [2.0]).low is None
    unknown = shift([math.inf, 2.0], [1.0, 2.0])
    assert (unknown.ratio, unknown.difference) == (None, None)
    assert shift([0.0, 2.0], [1.0, 2.0]).ratio is None


ERROR = 0.05
MARGIN = 0.2
Pairs = list[tuple[float, float]]


def test_fewest_pairs_are_what_a_clear_effect_takes() -> None:
    for error in (0.05, 0.005):
        sure: Pairs = [(1e-3, 1.0)] * fewest_pairs(error)
        assert effect(interval(sure, error), MARGIN) == "helps"
        assert effect(interval(sure[:-1], error), MARGIN) == "not shown"


@pytest.mark.parametrize(
    ("low", "high", "helps", "worse"),
    [
        (0.5, 0.9, "helps", "better"),
        (1.1, 1.4, "harms", "worse"),
        (1.01, 1.04, "harms", "no worse"),
        (0.9, 1.04, "no effect", "no worse"),
        (0.9, 1.1, "no effect", "not shown"),
        (0.7, 1.1, "not shown", "not shown"),
        (None, None, "not shown", "not shown"),
        (1.02, None, "harms", "not shown"),
    ],
)
def test_answers_follow_from_the_interval(
    low: float | None, high: float | None, helps: str, worse: str
) -> None:
    found = Interval(9, 1.0, low, high)
    assert effect(found, MARGIN) == helps
    assert against(found, 0.05) == worse


def test_numbers_without_a_ratio_are_refused() -> None:
    with pytest.raises(InputError, match="above zero"):
        interval([(0.0, 1.0)], ERROR)
    assert interval([], ERROR) == Interval(0, None, None, None)


LABELS = ("bare-metal", "vm", "container")


def runs(latencies: dict[str, list[float]], **more: object) -> list[Run]:
    return [
        sample(label, repeat, latency, **more)  # type: ignore[arg-type]
        for label, repeats in latencies.items()
        for repeat, latency in enumerate(repeats, 1)
    ]


def test_differences_rank() -> None:
    shifted = {
        label: [1e4 * factor * (1 + n / 50) for n in range(6)]
        for label, factor in zip(LABELS, (3, 1, 1.01), strict=True)
    }
    (ranking,) = rank(gather(runs(shifted)))
    found = {s.configuration.label: (s.best, s.last) for s in ranking.standings}
    assert found == {"vm": (1, 2), "container": (1, 2), "bare-metal": (3, 3)}
    assert ranking.percentile == 0.999
    pair = ranking.pair(2, 0)
    assert pair.shift.ratio == pytest.approx(3, rel=0.05)
    assert pair.shift.low is not None and pair.shift.low > 2.5
    worst = ranking.standings[0].worst
    assert worst is not None and worst.run.slug == "vm-6"
    assert advise([ranking])[0].endswith("vm, container")


def test_a_configuration_with_too_few_repeats_keeps_its_rank_open() -> None:
    latencies = {"vm": [1e4, 1.1e4, 1.2e4, 1.3e4], "container": [2e4, 2.1e4, 2.2e4, 2.3e4],
                 "bare-metal": [9e9]}  # fmt: skip
    (ranking,) = rank(gather(runs(latencies)))
    ranks = {s.configuration.label: (s.best, s.last) for s in ranking.standings}
    # The one pair that can be decided is not corrected for the two that cannot.
    assert ranks == {"vm": (1, 2), "container": (2, 3), "bare-metal": (1, 3)}


def test_lost_packets_are_later_than_any() -> None:
    good = runs({"vm": [1e4, 1.1e4, 1.2e4, 1.3e4]})
    lossy = runs({"container": [5e3] * 4}, lost=5_000)
    (ranking,) = rank(gather([*good, *lossy]))
    assert [s.configuration.label for s in ranking.standings] == ["vm", "container"]
    assert [s.best for s in ranking.standings] == [1, 2]
    assert {value.latency for value in ranking.standings[1].values} == {None}
    found = compare_loaded([*good, *lossy])
    assert [w.code for w in found.warnings].count("loss") == 4
    loss = found.recommendations[1]
    assert (loss.name, loss.answer) == ("loss", "not met")
    assert "4 of 8 runs lost more than 0.1 %" in loss.because
    assert "container at 10 kpkt/s lost 4.8 %" in loss.because
    at_limit = runs({"vm": [1e4] * 4, "container": [2e4] * 4}, p=0.5, lost=100_000)
    (ranking,) = rank(gather(at_limit))  # as many are lost as lie above the median
    assert [found.numbers[0] for found in ranking.standings] == [1e4, 2e4]


def test_only_the_same_load_is_compared() -> None:
    size = {"parameters": {"traffic": {"rate": 10_000, "size": 1500}}}
    small = {"parameters": {"traffic": {"rate": 10_000, "size": 64}}}
    samples = [sample("vm", 1, 1e4, more=size), sample("container", 1, 1e4, more=small),
               sample("bare-metal", 1, 1e4, more=small)]  # fmt: skip
    found = compare_loaded(samples)
    assert [load.load for load in found.loads] == ["10 kpkt/s, size 1500", "10 kpkt/s, size 64"]
    reason = found.loads[0].reason
    assert reason is not None and reason.startswith("vm is the only configuration")
    assert "no-ranking" in [warning.code for warning in found.warnings]


def to(destination: str) -> dict[str, Any]:
    """A load whose flows have no source port, which is not in its name."""
    flows = {"dst": destination, "sport": None}
    return {"parameters": {"traffic": {"rate": 10_000, "flows": flows}}}


@pytest.mark.parametrize(
    ("measured", "loads"),
    [
        (
            [
                sample(name, 1, 1e4, more=to(destination))
                for destination in ("198.19.0.1", "198.19.0.2")
                for name in ("container", "vm")
            ],
            ["flows 198.19.0.1", "flows 198.19.0.2"],
        ),
        *(
            (
                [
                    replace(run, variables={**run.variables, name: way}, slug=f"{run.slug}-{way}")
                    for way in ways
                    for run in runs({"container": [1e4, 1.1e4], "vm": [1e4, 1.1e4]})
                ],
                [f"{name} {way}" for way in ways],
            )
            for name, ways in (("direction", ("forward", "reverse")), ("flow", ("a", "b")))
        ),
    ],
)
def test_flows_are_loads_not_configurations(measured: list[Run], loads: list[str]) -> None:
    found = compare_loaded(measured).loads
    assert [load.load for load in found] == [f"10 kpkt/s, {name}" for name in loads]
    labels = [sorted(one.label for one in load.configurations) for load in found]
    assert labels == [["container", "vm"]] * 2


TRAFFIC = {"parameters": {"traffic": {"rate": 10_000}}}


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        (runs({"vm": [1e4]}) + runs({"container": [1e4]}, rate=1_000_000),
         r"different traffic.*vm at 10 kpkt/s.*container at 1 Mp"),
        (runs({"vm": [1e4, 2e4]}) + runs({"vm": [1e4, 2e4]}, rate=50_000),
         "only one configuration with good runs, vm: nothing"),
        (runs({"vm": [1e4, 2e4], "wire": [1e3, 2e3]}),
         "only one device, vm: wire is the lab without a device"),
        (runs({"vm": [1e4], "container": [1e4]}, packets=3, supported=False),
         "10 kpkt/s: too few packets for any percentile"),
        (runs({"vm": [1e4], "container": [1e4]}, packets=None),
         "no run says how many packets it is of; choose"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(measured: list[Run], says: str) -> None:
    with pytest.raises(InputError, match=says):
        compare_loaded(measured)


@pytest.mark.parametrize(
    ("measured", "percentile", "code", "says"),
    [
        (runs({"vm": [1e4], "container": [1e4]}, packets=None), 0.999, "unknown-samples", ""),
        (runs({"vm": [1e4] * 3, "container": [2e4] * 3}), None, "few-repeats",
         "1 of 1 comparison,"),
        (runs({"vm": [1e4, 1.1e4, 1.1e4], "container": [2e4, 3e4, 4e4]}), None, "equal-repeats",
         "2 repeats of vm are equal"),
        (runs({"vm": [1e4, 2e4, 3e4, 4e4]}, more={**TRAFFIC, "environment": {"hostname": "a"}})
         + runs({"container": [1e4, 2e4, 3e4, 4e4]},
                more={**TRAFFIC, "environment": {"hostname": "b"}}),
         None, "different-machines", ""),
    ],
)  # fmt: skip
def test_what_is_warned_of(
    measured: list[Run], percentile: float | None, code: str, says: str
) -> None:
    found = compare_loaded(measured, percentile)
    (warning,) = [one for one in found.warnings if one.code == code]
    assert says in warning.message
    if code == "few-repeats":
        assert "3 against 3 repeats can reach p = 0.1 at best" in found.advice[0]
        assert "1 comparison has too few repeats: with 4 of each" in found.advice[1]
        assert found.repeats_needed == 4


def test_the_percentile_is_one_that_all_support() -> None:
    samples = runs({"vm": [1e4] * 2, "container": [1e4] * 2}, p=0.9999)
    (ranking,) = rank(gather(samples))
    assert ranking.percentile == 0.9999
    with pytest.raises(InputError, match=r"do not have 99\.9;"):
        rank(gather(samples), 0.999)
    (ranking,) = rank(gather(samples), 1.0)
    assert {v.latency for s in ranking.standings for v in s.values} == {20_000}


def test_the_kernel_is_chosen_by_measuring() -> None:
    samples = []
    for kernel, factor in (("rt", 1), ("vanilla", 4)):
        for platform, price in (("bare-metal", 1), ("vm", 1.0)):
            for repeat in range(1, 9):
                run = sample(platform, repeat, 1e4 * factor * price * (1 + repeat / 50))
                variables = {"dut.platform": platform, "dut.options.kernel": kernel}
                samples.append(
                    replace(run, variables=variables, slug=f"{kernel}-{platform}-{repeat}")
                )
    found = {check.name: check for check in compare_loaded(samples).recommendations}
    assert found["kernel"].answer == "not met"
    assert "bare-metal · vanilla over bare-metal · rt: x4.00" in found["kernel"].because
    assert found["virtualisation"].answer == "met"
    assert "no difference is shown" in found["virtualisation"].because
    assert found["NIC"].answer == found["measurement set-up"].answer == "cannot be told"


@pytest.mark.parametrize(
    ("p", "reason"),
    [(0.9, "keeps too few latencies"), (0.99999, "lie in fewer than 10 of 100 stretches")],
)
def test_where_there_is_none_it_says_why(tmp_path: Path, p: float, reason: str) -> None:
    latency = 4_000 + 2_000 * np.random.default_rng(2).pareto(3, 400_000)
    tail = write_tail(tmp_path, latency.astype(np.int64), rate=100_000)
    found = of_tail(load_tail(tail, "run"), p)
    assert found.low is None and reason in found.reason
