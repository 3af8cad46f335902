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
    DUT,
    LOST,
    OTHER,
    Record,
    Simulated,
    arrivals,
    barrier,
    encode,
    flush,
    hog,
    kworker,
    random_blocks,
    require_causes,
    simulate,
    ticks,
    traffic,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.record import record
from tailtap.base.errors import InputError

SECONDS = 2.0


def busy() -> Simulated:
    """A run with a hog, kworkers, function calls and ticks."""
    kinds = ((hog, 5, (1_900_000, 2_100_000)), (kworker, 12, (200_000, 400_000)),
             (barrier, 30, (20_000, 60_000)))  # fmt: skip
    return traffic(5, SECONDS, *kinds, more=ticks(SECONDS))


def decoys() -> list[Record]:
    """TLB flushes without end, on a core that serves nobody."""
    blocks = random_blocks(flush, 4000, (20_000, 60_000), SECONDS, np.random.default_rng(6))
    return [r._replace(cpu=OTHER) for one in blocks for r in one.made(one.start, one.dur)]


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explained, Simulated, Path]:
    simulated = busy()
    simulated.records += decoys()
    folder = write_run(tmp_path_factory.mktemp("runs") / "001-traced", simulated)
    return explain_runs([folder], late="5 us")[0], simulated, folder


def test_packets_get_the_cause_that_made_them_late(
    explained: tuple[Explained, Simulated, Path],
) -> None:
    found, simulated, _ = explained
    truth = simulated.causes_at(found.joined.late.packets.egress_ns)
    require_causes([found.labels.blame(packet).cause for packet in range(len(truth))], truth)
    # A core that serves nobody is never blamed.
    assert "tlb-flush" not in {name.cause for name in found.joined.laid.rows.names}


def test_stalls_are_those_of_the_simulation(explained: tuple[Explained, Simulated, Path]) -> None:
    found, simulated, _ = explained
    hogs = [block for block in simulated.blocks if block.made is hog]
    row = next(row for row in found.labels.rows if row.cause == "task")
    assert row.stalls == len(hogs)
    joined = found.joined
    place = [*map(tuple, joined.laid.rows.names)].index((row.cause, row.detail))
    starts = joined.stall_start[joined.stall_row == place]
    for block, start in zip(hogs, sorted(starts.tolist()), strict=True):
        assert block.start - 50_000 < start < block.start + 100_000
    assert row.behind > 0
    assert row.packets > 10 * row.stalls


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


def test_a_quiet_run_invents_nothing(tmp_path: Path) -> None:
    claimed = 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        simulated = simulate(arrivals(20_000, 0.5, random), [], random)
        # Late for a reason that no record tells, while short interrupts come and go.
        held = random.choice(simulated.egress.size, 40, replace=False)
        simulated.egress[held] += 15_000
        quiet = random_blocks(barrier, 60, (500, 900), 0.5, random)
        simulated.records += [r for b in quiet for r in b.made(b.start, b.dur)]
        found = explain_runs([write_run(tmp_path / f"{seed:03}-quiet", simulated)])[0]
        claimed += sum(row.is_cause and row.p_value is not None for row in found.labels.rows)
    assert claimed == 0


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


def test_packets_behind_the_end_of_a_cut_file_are_unexplained(
    small: tuple[Path, Simulated],
) -> None:
    folder, simulated = small
    third = max(block.start for block in simulated.blocks)
    ordered = sorted(simulated.records, key=lambda r: (r.start + r.dur, -r.start))
    before = [record for record in ordered if record.start + record.dur < third]
    (folder / "trace.events").write_bytes(encode(before) + b"1234567")
    found = explain_runs([folder])[0]
    assert [warning.code for warning in found.warnings] == ["trace-damaged"]
    late = found.joined.late.packets.ingress_ns
    causes = [found.labels.blame(packet).cause for packet in range(late.size)]
    behind = [cause for cause, ingress in zip(causes, late.tolist(), strict=True)
              if ingress > third - 50_000]  # fmt: skip
    assert behind and set(behind) == {"unexplained"}


@pytest.mark.parametrize(
    ("lost", "paused", "code", "says"),
    [(55, None, "trace-lost", "55 on CPU 1"), (0, 0.25, "trace-thinned", "75.0% of the time")],
)
def test_what_was_not_traced_is_not_guessed(
    small: tuple[Path, Simulated], lost: int, paused: float | None, code: str, says: str
) -> None:
    """Records were lost, or a pause kept a budget, which is like lost ones of which none were."""
    folder, simulated = small
    first = simulated.blocks[0]
    hole = Record(first.start - 100_000, 900_000, LOST, 0, lost, DUT)
    (folder / "trace.events").write_bytes(encode([*simulated.records, hole]))
    if paused is not None:
        said = json.loads((folder / "trace.json").read_text())
        span = said["ended_ns"] - said["started_ns"]
        rewrite(folder / "trace.json", paused_ns=int(paused * span))
    found = explain_runs([folder], late="50 us")[0]
    (warning,) = found.warnings
    assert warning.code == code and says in warning.message
    late = found.joined.late.packets.ingress_ns
    inside = (late >= first.start) & (late < first.start + first.dur)
    blamed = np.array([found.labels.blame(packet).cause for packet in range(late.size)])
    assert ((blamed == "unexplained") == inside).all()
    content = record(found)
    assert content.unexplained.untraced == inside.sum()
