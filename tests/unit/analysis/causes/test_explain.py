"""Whole runs whose truth is known: what made each packet late is in the simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_records import rewrite
from traced import (
    Simulated,
    barrier,
    hog,
    kworker,
    ticks,
    traffic,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.base.errors import InputError

SECONDS = 2.0


def busy() -> Simulated:
    """A run with a hog, kworkers, function calls and ticks."""
    kinds = ((hog, 5, (1_900_000, 2_100_000)), (kworker, 12, (200_000, 400_000)),
             (barrier, 30, (20_000, 60_000)))  # fmt: skip
    return traffic(5, SECONDS, *kinds, more=ticks(SECONDS))


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explained, Simulated, Path]:
    simulated = busy()
    folder = write_run(tmp_path_factory.mktemp("runs") / "001-traced", simulated)
    return explain_runs([folder], late="5 us")[0], simulated, folder


def test_the_tick_is_told_by_its_period(explained: tuple[Explained, Simulated, Path]) -> None:
    found, _, _ = explained
    told = {period.cause: period for period in found.periods}
    assert told["timer"].period_ns == 4_000_000
    assert "250 Hz" in told["timer"].words
    assert "task" not in told


def test_what_is_written_is_what_was_found(explained: tuple[Explained, Simulated, Path]) -> None:
    _, _, folder = explained
    content = json.loads((folder / "causes.json").read_text())
    assert content["schema"] == "tailtap.causes/1"
    late = pq.read_table(folder / "causes-late.parquet").to_pydict()
    parts = pq.read_table(folder / "causes-parts.parquet").to_pydict()
    stalls = pq.read_table(folder / "causes-stalls.parquet").to_pydict()
    assert content["late"]["packets"] == len(late["packet"])
    assert content["late"]["stalls"] == len(stalls["stall"])
    sums = np.bincount(parts["packet"], weights=parts["ns"], minlength=len(late["packet"]))
    assert (sums <= np.array(late["excess_ns"])).all()
    for row in content["causes"]:
        assert row["packets"] == late["blamed"].count(row["cause"])
        assert row["knobs"] == {
            "task": ["isolated-cpus", "groups"],
            "timer": ["skew-tick", "nohz-full-patience", "nohz-full"],
            "kernel-thread": ["stat-interval"],
        }.get(row["cause"], [])
    assert sum(stalls["direct"]) == late["state"].count("direct")
    worst = content["worst"][0]
    assert worst["latency"] == max(late["latency_ns"])
    assert worst["cause"] == "task"
    assert worst["key"] is not None
    assert all(row["share"] == row["packets"] / len(late["packet"]) for row in content["causes"])
    # Timers made most packets late, but neither the percentile nor the worst: no knob against them.
    remove, most = content["remove"], max(content["causes"], key=lambda row: row["packets"])
    assert most["cause"] == "timer"
    assert most["without"]["percentile_ns"] == most["without"]["measured_ns"]
    assert sorted(remove["knobs"]) == ["isolated-cpus", "stat-interval"]
    assert remove["packets"] == sum(
        row["packets"] for row in content["causes"] if set(row["knobs"]) & set(remove["knobs"])
    )


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Simulated]:
    simulated = traffic(1, 0.5, (hog, 3, (500_000, 600_000)))
    return write_run(tmp_path / "001-small", simulated), simulated


def without(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def saying(**changes: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "trace.json", **changes)


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "trace.events").write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "late", "says"),
    [
        (without("trace.json"), "p99.9", "cut off"),
        (without("trace.json", "trace.events"), "p99.9", "no trace: measure it with `trace: thin`"),
        (without("ingress.stamps"), "p99.9", "the stamps of the run are gone"),
        (saying(boot_id="other"), "p99.9", "another boot"),
        (saying(clock="realtime"), "p99.9", "by the clock monotonic, its trace by realtime"),
        (saying(started_ns=5, ended_ns=6), "p99.9", "another run: .* s before"),
        (saying(started_ns=10**17, ended_ns=10**17 + 1), "p99.9", "another run: .* s after"),
        (saying(schema="tailtap.trace/9"), "p99.9", "schema: 'tailtap.trace/9' is wrong"),
        (saying(cpus=[0]), "p99.9", "packets are served on CPUs 1, and traced were 0"),
        (saying(served={"by": "magic"}), "p99.9", r"served\.by: 'magic' is wrong"),
        (saying(served=None), "p99.9", "does not say by what packets are served"),
        (saying(served={}), "p99.9", r"served\.by: this key is missing"),
        (holding(b""), "p99.9", r"trace\.events: this is no trace"),
        (holding(b"TTTR"), "p99.9", r"trace\.events: this is no trace"),
        (holding(b"something else entirely"), "p99.9", r"trace\.events: this is no trace"),
        (without(), "p100", "lies between p0 and p100"),
        (without(), "soon", "give a percentile such as p99.9"),
        (without(), "1 s", "no packet took longer than 1 s"),
    ],
)
def test_what_is_refused(
    small: tuple[Path, Simulated], spoil: Callable[[Path], object], late: str, says: str
) -> None:
    folder, _ = small
    spoil(folder)
    with pytest.raises(InputError, match=says):
        explain_runs([folder], late=late)
    assert not (folder / "causes.json").exists()
