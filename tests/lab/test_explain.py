"""`tailtap explain` against what was done on purpose: the injectors' own logs are the truth.

Tasks and timers; `test_explain_kernel` has what the kernel does on behalf of others.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from explaining import DUT, OTHER, explained, held
from injectors import build, hog, timers

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timed,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs a CPU beside the device's"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that disturbs a CPU."""
    return build(tmp_path_factory.mktemp("injector"))


@pytest.mark.parametrize(("forwarder", "napi"), [("fault", "softirq"), ("tc-mirred", "threads")])
def test_a_hog_makes_packets_late_that_a_task_serves(
    program: Path, tmp_path: Path, forwarder: str, napi: str
) -> None:
    """Of the forwarder, or of the kernel: it polls the port in a thread of its own."""
    found = explained(
        tmp_path, forwarder, [lambda _: hog(program, cpu=DUT, busy_ns=2_000_000)], "300 us",
        napi=napi,
    )  # fmt: skip
    mine, others = held(found.late, found.injections[0])
    blamed = found.blamed("task", "injector")
    assert found.causes["served"]["by"] == "task"
    assert mine.sum() > 200
    assert blamed[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()
    row = next(row for row in found.causes["causes"] if row["detail"] == "injector")
    assert row["claim"] == "cause"
    assert row["p_value"] <= 0.001
    assert "isolated-cpus" in row["knobs"]


def test_a_hog_on_another_core_is_never_blamed(program: Path, tmp_path: Path) -> None:
    found = explained(
        tmp_path, "fault", [lambda _: hog(program, cpu=OTHER, busy_ns=2_000_000)], "p99.9"
    )
    assert found.injections[0]
    assert "injector" not in found.late["detail"]
    assert all(row["detail"] != "injector" for row in found.causes["causes"])


def test_timers_make_packets_late_that_the_softirq_serves(program: Path, tmp_path: Path) -> None:
    """A softirq preempts a hog, but not an interrupt: timers that expire at once take long.

    They come at irregular times. What comes every 100 ms and lasts 1 ms finds one in a hundred
    shifts of itself again, which the shifts cannot tell from a coincidence.
    """
    found = explained(
        tmp_path,
        "tc-mirred",
        [lambda _: timers(program, cpu=DUT, count=8000, gap_ns=0, spread_ns=40_000_000)],
        "300 us",
    )
    assert found.causes["served"]["by"] == "softirq"
    timer = found.rows("timer")
    assert timer and timer[0]["claim"] == "cause"
    assert (found.late["excess_ns"] > 0).all()
