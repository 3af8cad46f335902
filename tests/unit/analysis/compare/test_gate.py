"""The gate, and changes among commits: few false alarms, and what is there is seen."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import junitparser
import numpy as np
import pytest
from comparisons import sample
from forms import fits
from numpy.typing import NDArray
from scipy import stats

from tailtap.analysis.compare.gate import (
    alike,
    judge_loaded,
    repeats_needed,
    smallest_one_sided,
    step_between,
)
from tailtap.analysis.compare.history import Measured, changes, histories
from tailtap.analysis.runs.run import Run
from tailtap.analysis.verdict.junit import write_gate
from tailtap.base.errors import InputError, MachineError
from tailtap.records.compare import GateAnswer, GateRecord
from tailtap.records.record import as_json
from tailtap.show.sections.renderers import gate_markdown

Latencies = Sequence[float] | NDArray[np.float64]


def side(name: str, latencies: Latencies, label: str = "bare-metal", **more: Any) -> list[Run]:
    runs = [sample(label, n, latency, **more) for n, latency in enumerate(latencies, 1)]
    return [replace(run, home=Path(name)) for run in runs]


def judge(base: Latencies, new: Latencies, margin: float = 0.05) -> GateRecord:
    return judge_loaded(side("base", base), side("new", new), margin, 0.999)


def test_three_runs_never_show_that_it_is_worse() -> None:
    found = judge([1e5, 1.1e5, 1.2e5], [9e5, 9.1e5, 9.2e5])
    [row] = found.rows
    assert (found.answer, smallest_one_sided(3, 3)) == ("not shown", 0.05)
    assert "can never show that it is worse" in row.reason
    assert row.repeats_needed is not None and 5 < row.repeats_needed < repeats_needed(0.09, 0.05)


def test_every_row_must_be_no_worse_and_alarms_are_rarer_with_more_rows() -> None:
    def both(rates: Sequence[int], slow: int, name: str) -> list[Run]:
        return [
            run
            for rate in rates
            for run in side(
                name, (3 if rate == slow else 1) * np.linspace(1e5, 1.1e5, 6), rate=rate
            )
        ]

    rates = (10_000, 20_000, 30_000)
    found = judge_loaded(both(rates, 0, "base"), both(rates, 20_000, "new"), 0.2, 0.999)
    # 1 of 924 assignments is rare enough for one row, not for three.
    assert [row.answer for row in found.rows] == ["no worse", "not shown", "no worse"]
    assert found.answer == "not shown"
    one = judge_loaded(both(rates[1:2], 0, "base"), both(rates[1:2], 20_000, "new"), 0.2, 0.999)
    assert one.answer == "worse"


def on(model: str) -> dict[str, Any]:
    return {"environment": {"hostname": "here", "cpu": {"model": model}}}


@pytest.mark.parametrize(
    ("base", "new", "error", "says"),
    [
        (side("base", [1e5] * 5), side("base", [1e5] * 5), InputError, "the same runs"),
        (side("base", [1e5] * 5), side("new", [1e5] * 5, rate=50_000), InputError,
         "no configuration and traffic in common"),
        (side("base", [1e5] * 5), side("new", [1e5] * 5, more={"valid": False}), MachineError,
         "new: it has no good run"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged(
    base: list[Run], new: list[Run], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        judge_loaded(base, new, 0.05)


LEVEL = np.linspace(1e5, 1.1e5, 6)


def beside(name: str, factor: float, floor: float) -> list[Run]:
    """Runs of a device and of the lab without one, so much slower than `LEVEL`."""
    wire = {"parameters": {"dut": {"platform": "wire"}}}
    return side(name, factor * LEVEL) + side(name, floor * LEVEL / 50, "wire", more=wire)


@pytest.mark.parametrize(
    ("base", "new", "answer", "says"),
    [
        (side("base", LEVEL), side("new", LEVEL, lost=5_000), "worse", "packets were lost"),
        (side("base", LEVEL, supported=False), side("new", 3 * LEVEL, supported=False),
         "not shown", "fewer than ten"),
        (side("base", LEVEL, within_ns=20_000), side("new", 1.5 * LEVEL, within_ns=20_000),
         "not shown", ""),
        (side("base", LEVEL, within_ns=20_000), side("new", 0.8 * LEVEL, within_ns=20_000),
         "not shown", ""),
        (side("base", LEVEL), side("new", LEVEL / 2, lost=50),
         "not shown", "0.05 % failed or were lost, 0 before"),
        (side("base", LEVEL), side("new", LEVEL[:5] / 2) + side("new", [5e4], lost=50),
         "no worse", "failed or were lost"),
        (side("base", LEVEL, more=on("Xeon")), side("new", 2 * LEVEL, more=on("EPYC")),
         "not shown", "EPYC and Xeon"),
        (side("base", LEVEL, more=on("Xeon")) + side("base", [1e5], more=on("EPYC")),
         side("new", 2 * LEVEL, more=on("Xeon")), "worse", ""),
        (side("base", LEVEL, more=on("Xeon")), side("new", 2 * LEVEL, more=on("Xeon")),
         "worse", ""),
        (beside("base", 1, 1), beside("new", 2, 1), "worse", ""),
        (beside("base", 1, 1), beside("new", 1, 1), "no worse", ""),
        (beside("base", 1, 1), beside("new", 2, 2), "not shown", "floor (wire) is slower"),
        # A faster machine hides what is slower, and explains nothing that is.
        (beside("base", 1, 1), beside("new", 1, 0.5), "not shown", "floor (wire) is faster"),
        (beside("base", 1, 1), beside("new", 2, 0.5), "worse", ""),
    ],
)  # fmt: skip
def test_what_explains_a_change_or_hides_it(
    base: list[Run], new: list[Run], answer: GateAnswer, says: str
) -> None:
    """Lost packets are late ones; few packets and two clocks show nothing; other processors, and
    machines of which the floor moved, are no change of the program.
    """
    found = judge_loaded(base, new, 0.05, 0.999)
    [row] = found.rows
    assert row.answer == answer and says in row.reason
    if says == "packets were lost":
        assert row.repeats_needed is None and "loss" in {one.code for one in found.warnings}


def test_configurations_are_held_against_themselves() -> None:
    def measured(name: str, *labels: str) -> list[Run]:
        return [run for label in labels for run in side(name, [1e5, 1.1e5, 1.2e5], label)]

    found = judge_loaded(
        measured("base", "vm", "container"), measured("new", "container", "vm"), 0.5
    )
    assert [row.configuration for row in found.rows] == ["container", "vm"]
    found = judge_loaded(
        measured("base", "vm", "container"), measured("new", "vm", "bare-metal"), 0.5
    )
    assert [row.configuration for row in found.rows] == ["vm"]
    assert sorted(one.code for one in found.warnings if one.code == "unpaired") == ["unpaired"] * 2


def test_runs_that_were_made_one_after_the_other() -> None:
    def at(name: str, days: Sequence[int]) -> list[Run]:
        return [
            run
            for n, day in enumerate(days, 1)
            for run in [side(name, [1e5] * n, more={"started": f"2026-11-{day:02}T10:00:00Z"})[-1]]
        ]

    def codes(base: Sequence[int], new: Sequence[int]) -> set[str]:
        return {one.code for one in judge_loaded(at("base", base), at("new", new), 0.05).warnings}

    assert "one-after-the-other" in codes((1, 2, 3), (4, 5, 6))
    assert "one-after-the-other" not in codes((1, 3, 5), (2, 4, 6))


def test_files_for_programs_that_show_test_results(tmp_path: Path) -> None:
    base = [*side("base", np.linspace(1e5, 1.1e5, 6)), *side("base", [1e5] * 2, "v|m")]
    new = [*side("new", np.linspace(2e5, 2.2e5, 6)), *side("new", [1e5] * 2, "v|m")]
    found = judge_loaded(base, new, 0.05, 0.999)
    fits(as_json(found))
    write_gate(found, tmp_path / "gate.xml")
    [suite] = junitparser.JUnitXml.fromfile(str(tmp_path / "gate.xml"))
    assert (suite.tests, suite.failures, suite.errors) == (2, 1, 1)
    text = gate_markdown(found)
    assert text.startswith("### Tail latency: ❌ worse\n") and "v\\|m" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and all(row.replace("\\|", "").count("|") == 9 for row in rows)


def test_the_order_of_runs_may_speak_against_a_change() -> None:
    def made(name: str, latencies: Latencies, hours: Sequence[int]) -> list[Run]:
        return [
            replace(
                sample("bare-metal", n, latency, more={"started": f"2026-11-01T{hour:02}Z"}),
                home=Path(name),
            )
            for n, (hour, latency) in enumerate(zip(hours, latencies, strict=True), 1)
        ]

    def told(base: Latencies, new: Latencies, hours: Sequence[int] = range(24)) -> tuple[str, str]:
        sides = [made("base", base, hours[: len(base)])]
        sides.append(made("new", new, hours[len(base) : len(base) + len(new)]))
        [row] = judge_loaded(sides[0], sides[1], 0.05, 0.999).rows
        return row.answer, row.reason

    steady = 1e5 * np.array([1.0, 1.05, 1.01, 1.06, 1.02, 1.04])
    drift = np.geomspace(1e5, 2.85e5, 12)
    turns = [0, 3, 4, 7, 8, 11, 1, 2, 5, 6, 9, 10]
    assert told(steady, 1.5 * steady)[0] == "worse"
    assert told(1.5 * steady, steady)[0] == "better"
    later_base = [*range(6, 12), *range(6)]
    assert told(steady, 1.5 * steady, later_base)[0] == "worse"
    answer, reason = told(drift[:6], drift[6:])
    assert answer == "not shown" and "like those beside them" in reason
    assert told(drift[6:], drift[:6])[0] == "not shown"
    # Most of the step was before the change.
    before = 1e5 * np.array([1.0, 1.05, 1.02, 3.05, 3.0, 3.4, 3.1, 3.04, 3.5, 3.08])
    after = 1e5 * np.array([3.3, 3.7, 3.2, 3.75, 3.6, 3.35, 3.8, 3.65, 3.25, 3.72])
    answer, reason = told(before, 1.04 * after)
    assert answer == "not shown" and "the largest step" in reason
    # Taking turns, the same runs show it: the machine's state is the same for both.
    assert told(drift[:6], drift[6:], turns)[0] == "worse"


@pytest.mark.parametrize("side", [(1, 2, 3, 4, 5, 6), (3, 1, 6, 2, 5, 4), (1, 1, 2, math.inf, 5)])
def test_alike_counts_permutations(side: Sequence[float]) -> None:
    ranks = stats.rankdata(side)
    sums = [np.square(np.diff(mixed)).sum() for mixed in itertools.permutations(ranks)]
    exact = np.mean(np.asarray(sums) <= np.square(np.diff(ranks)).sum())
    assert alike(side) == pytest.approx(exact, abs=4 * math.sqrt(exact / 9_999) + 1e-4)


@pytest.mark.parametrize(
    ("earlier", "later", "there"),
    [
        ((1, 2, 1.5), (5, 6, math.inf), True),
        ((1, 1, 1), (1, 1, 1), True),
        ((1, 2, 8.5), (8, 9, 10), False),
        ((1, 2, 3), (2.5, 9, 10), False),
        ((8, 9, 10), (1, 2, 3), False),
    ],
)
def test_where_the_largest_step_is(
    earlier: Sequence[float], later: Sequence[float], there: bool
) -> None:
    assert step_between(earlier, later) is there


COMMITS, HISTORIES = 200, 100
P = 0.999


@pytest.mark.parametrize(
    ("values", "marks", "undecided"),
    [
        ([1e5, 1.01e5] * 15 + [1e6, 1e6], 1, ""),
        ([1e5, 1.01e5] * 15 + [1e6], 0, "the newest commit stands out (x9.90)"),
        ([1e5, 1.01e5] * 5 + [1e6, 1e6], 0, "the 2 newest commits stand out (x9.90)"),
        ([1e5, 1.01e5] * 5 + [1e6, 1.01e5], 0, ""),
        ([1e5] * 5, 0, "5 commits, and 6 are the fewest"),
    ],
)
def test_what_is_said_of_the_newest_commits(
    values: Sequence[float], marks: int, undecided: str
) -> None:
    [series] = histories(runs(values), P)
    assert len(series.marks) == marks and series.newest == bool(marks)
    assert series.undecided.startswith(undecided) and bool(series.undecided) == bool(undecided)


def test_a_commit_that_failed_hides_no_series() -> None:
    """It has no percentile that ten packets lie above, and counts as later than any."""
    failed = [Measured("z", "2026-12-01", "gate", "xdp", "10 kpkt/s", "{}", False,
                       {1.0: (9, None, None, False)}) for _ in range(3)]  # fmt: skip
    [series] = histories([*runs(STEADY), *failed])
    assert series.percentile == P and series.points[-1].value is None


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([5.0] * 12, []),
        ([5.0, 9.0, 5.0], []),
        ([5.0, 5.1] * 6 + [9.0, 9.1] * 6, [12]),
        ([5.0, 5.1] * 6 + [math.inf] * 6, [12]),
        ([math.inf] * 12, []),
        ([5.0, 5.1] * 6 + [500.0] + [5.0, 5.1] * 6, []),
    ],
)
def test_changes(values: Sequence[float], places: Sequence[int]) -> None:
    """One commit that stands out is no change of level, and lost packets are one."""
    assert changes(values) == places


def runs(
    values: Sequence[float],
    *,
    wire: bool = False,
    machines: Sequence[Mapping[str, str]] = ({"kernel": "6.1"},),
    noises: Sequence[float | None] = (None,),
) -> list[Measured]:
    """Three runs of each commit, which differ a little."""
    return [
        Measured(f"c{n:02}", f"2026-11-{n + 1:02}", "gate", "wire" if wire else "xdp", "10 kpkt/s",
                 "{}", wire, {P: (int(value * (1 + repeat / 100)), None, None, True)},
                 machines[min(n * len(machines) // len(values), len(machines) - 1)],
                 noises[n % len(noises)])
        for n, value in enumerate(values)
        for repeat in range(3)
    ]  # fmt: skip


UP = [1e5, 1.01e5] * 5 + [1.5e5, 1.51e5] * 5
STEADY = [1e3, 1.01e3] * 10
SCATTERED = [1e3, 1e3, 1.1e3, 1e3, 1.1e3] * 2 + [1.1e3, 1.1e3, 1e3, 1.1e3, 1e3] * 2
KERNELS = ({"kernel": "6.1", "host": "a"}, {"kernel": "6.2", "processor": "b"})


@pytest.mark.parametrize(
    ("floor", "machines", "origin", "facts", "moved"),
    [
        (STEADY, KERNELS[:1], "program", [], 1),
        # The floor moved, without a fact that says why.
        ([value / 100 for value in UP], KERNELS[:1], "machine", [], 1.5),
        (STEADY, KERNELS, "unclear", ["kernel: 6.1 → 6.2"], 1),
        # Its median moved, as that of one that scatters does.
        (SCATTERED, KERNELS[:1], "program", [], 1.1),
    ],
)
def test_what_changed(
    floor: Sequence[float],
    machines: Sequence[Mapping[str, str]],
    origin: str,
    facts: Sequence[str],
    moved: float,
) -> None:
    wire, device = histories([*runs(floor, wire=True), *runs(UP, machines=machines)])
    assert wire.wire and [one.origin for one in wire.marks] == ["machine"] * (origin == "machine")
    [mark] = device.marks
    assert (mark.place, mark.before, mark.suspects[:2]) == (10, "c09", ["c10", "c11"])
    assert set(mark.suspects) == {"c08", "c09", "c10", "c11", "c12"}
    assert mark.ratio == pytest.approx(1.5, rel=0.02)
    assert (mark.origin, mark.machine) == (origin, facts)
    assert mark.floor == pytest.approx(moved, rel=0.02)


@pytest.mark.parametrize(
    ("behind", "origin", "ratio"),
    [(0.02, "machine", 2.0), (0.0101, "program", 1.01), (0.005, "program", 0.5)],
)
def test_a_noisy_machine(behind: float, origin: str, ratio: float) -> None:
    """More noise explains a longer tail; less of it, or as much as before, does not."""
    noises = [level * (1 + n / 1_000) for level in (0.01, behind) for n in range(10)]
    [device] = histories(runs(UP, noises=noises))
    [mark] = device.marks
    assert mark.origin == origin and mark.noise == pytest.approx(ratio, rel=0.02)


def test_without_ruptures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    with pytest.raises(MachineError, match="pip install ruptures"):
        changes(UP)
    assert changes(UP[:3]) == []


def test_what_a_point_says() -> None:
    [series] = histories(runs([1e5] * 3), P)
    point = series.points[0]
    assert (point.runs, point.value, point.low, point.high) == (3, 101_000, 100_000, 102_000)
    one = Measured("a", "d", "e", "c", "l", "{}", False, {P: (100, 90, 120, True)})
    [series] = histories([one])
    assert (series.points[0].low, series.points[0].high) == (90, 120)
    [series] = histories([one, Measured("b", "e", "e", "c", "l", "{}", False, {})], P)
    assert series.points[1].value is None


def test_a_percentile_that_is_not_kept() -> None:
    with pytest.raises(InputError, match=r"p95 is not kept in a history: p99\.9 is"):
        histories(runs([1e5] * 3), 0.95)
