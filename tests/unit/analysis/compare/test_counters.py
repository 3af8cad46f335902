"""What configurations counted per packet: means over repeats, and tests whether they differ."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import pytest
from experiment_folders import write_run
from scipy import stats

from tailtap.analysis.compare import compare_runs
from tailtap.records.compare import Counters

PACKETS, CAME = 400, 1000
REPEATS = 6
PLATFORMS = ("bare-metal", "container")


def events_of(platform: str, repeat: int) -> tuple[dict[str, int | None], dict[str, int]]:
    """Events and kinds: the container takes more instructions, and as many interrupts."""
    more = 500_000 if platform == "container" else 0
    events = {"instructions": 1_000_000 + more + 1000 * repeat, "branches": None}
    kinds = {"LOC": 300 + 7 * (repeat % 3)}
    return events, kinds if platform == "bare-metal" else {**kinds, "RES": 50 * (repeat > 3)}


def write(folder: Path) -> None:
    for number, (platform, repeat) in enumerate(product(PLATFORMS, range(1, REPEATS + 1)), 1):
        run = write_run(folder, number, {"dut.platform": platform}, repeat=repeat, packets=PACKETS)
        told = json.loads((run / "run.json").read_text())
        told["taps"]["ingress"] |= {"seen": CAME - 100, "other": 100}
        events, kinds = events_of(platform, repeat)
        told["counters"] = {
            "run": {
                "scope": "dut.cpus", "cpus": [1], "elapsed_ns": 10**9, "events": events,
                "estimated": [], "by_cpu": {"1": events},
                "kinds": {name: count for name, count in kinds.items() if count},
            }
        }  # fmt: skip
        (run / "run.json").write_text(json.dumps(told))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Counters:
    folder = tmp_path_factory.mktemp("counted")
    write(folder)
    [load] = compare_runs([("", folder)]).loads
    return load.counters


def test_each_counter_has_its_mean_and_deviation_per_packet(found: Counters) -> None:
    rows = {(row.counter, row.configuration.partition(" ")[0]): row for row in found.counted}
    assert {counter for counter, _ in rows} == {"instructions", "LOC", "RES"}
    assert [row.counter for row in found.counted][:2] == ["instructions"] * 2  # chosen first
    for platform in PLATFORMS:
        row = rows["instructions", platform]
        events = [events_of(platform, repeat)[0] for repeat in range(1, REPEATS + 1)]
        values = [(one["instructions"] or 0) / CAME for one in events]
        assert row.chosen and row.values == values
        assert row.mean == fmean(values)
        assert row.deviation == pytest.approx(stdev(values))
    # A kind that did not occur was counted: as none.
    assert rows["RES", "bare-metal"].values == [0.0] * REPEATS
    assert rows["RES", "container"].values == [0, 0, 0, 0.05, 0.05, 0.05]
    assert not rows["RES", "container"].chosen


def test_what_a_container_takes_to_start_and_end_is_compared_as_well(tmp_path: Path) -> None:
    """The packets cost the same: the difference is outside of their time."""
    write(tmp_path)
    for path in tmp_path.glob("runs/*/run.json"):
        told = json.loads(path.read_text())
        repeat, platform = told["repeat"], told["variables"]["dut.platform"]
        run = told["counters"]["run"] | {"events": {"branches": 1000 + repeat}, "kinds": {}}
        whole = {"branches": 5000 * (1 + (platform == "container")) + repeat}
        told["counters"] = {"run": run, "lifetime": {**run, "scope": "machine", "events": whole}}
        path.write_text(json.dumps(told))
    [load] = compare_runs([("", tmp_path)]).loads
    pairs = {pair.counter: pair for pair in load.counters.comparisons}
    assert {name: pair.answer for name, pair in pairs.items()} == {
        "branches": "not shown", "branches (lifetime)": "more"
    }  # fmt: skip
    assert pairs["branches (lifetime)"].difference == pytest.approx(5000 / CAME)


def test_differences_are_tested_over_repeats(found: Counters) -> None:
    """As scipy tests them; an interval holds the differences of all pairs but the outermost."""
    pairs = {pair.counter: pair for pair in found.comparisons}
    instructions, timers, moves = pairs["instructions"], pairs["LOC"], pairs["RES"]
    assert (instructions.answer, timers.answer, moves.answer) == ("more", "not shown", "not shown")
    assert instructions.difference == pytest.approx(500)
    assert instructions.difference_low == pytest.approx(497)
    assert instructions.difference_high == pytest.approx(503)
    assert instructions.ratio == pytest.approx(1.5, abs=0.01)
    one, other = (row.values for row in found.counted if row.counter == "instructions")
    assert instructions.p == pytest.approx(stats.mannwhitneyu(one, other, method="exact").pvalue)
    # One event is a family by itself, and the two kinds are another.
    assert instructions.p_corrected == instructions.p
    assert moves.p_corrected == pytest.approx(2 * moves.p)
    assert moves.ratio is None and moves.difference_high == pytest.approx(0.05)


def test_runs_that_counted_nothing_have_no_counters(tmp_path: Path) -> None:
    for number, platform in enumerate(PLATFORMS, 1):
        write_run(tmp_path, number, {"dut.platform": platform}, packets=PACKETS)
    [load] = compare_runs([("", tmp_path)]).loads
    assert load.counters == Counters()
