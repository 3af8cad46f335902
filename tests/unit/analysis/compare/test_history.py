"""Changes among commits: found where they are, few where none is, and told from the machine's."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

import pytest

from tailtap.analysis.compare.history import Measured, changes, histories, newest
from tailtap.base.errors import InputError, MachineError

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


def test_three_newest_of_ten_have_a_quarter_of_the_error() -> None:
    """One of 120 choices is more than that, and one of 680 is not."""
    level, late = [1e5 + number for number in range(7)], [9e5, 9.1e5, 9.2e5]
    assert newest([*level, *late]) == (3, False)
    assert newest([*level, *[one - 10 for one in level], *late]) == (3, True)


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
