"""Whole runs whose truth is known: what made each packet late is in the simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from traced import (
    CAUSE_OF,
    DUT,
    LOST,
    OTHER,
    START,
    Block,
    Record,
    Simulated,
    arrivals,
    barrier,
    encode,
    flush,
    hog,
    kworker,
    random_blocks,
    simulate,
    tick,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.record import record, unexplained_words
from tailtap.analysis.causes.remedies import Knob
from tailtap.base.errors import InputError

SECONDS = 2.0
KNOBS = (
    Knob("isolated-cpus", ("task", "kernel-thread"), 1, "boot"),
    Knob("stat-interval", ("kernel-thread",), 1, "runtime"),
    Knob("nohz-full", ("timer",), 1, "boot"),
)


def busy(random: np.random.Generator) -> Simulated:
    """A run with a hog, kworkers, function calls and ticks."""
    blocks = [
        *random_blocks(hog, 5, (1_900_000, 2_100_000), SECONDS, random),
        *random_blocks(kworker, 12, (200_000, 400_000), SECONDS, random),
        *random_blocks(barrier, 30, (20_000, 60_000), SECONDS, random),
        *(Block(START + at * 4_000_000 + 777, 3_000, tick) for at in range(int(SECONDS * 250))),
    ]
    return simulate(arrivals(20_000, SECONDS, random), blocks, random)


def decoys(random: np.random.Generator) -> list[Record]:
    """TLB flushes without end, on a core that serves nobody."""
    blocks = random_blocks(flush, 4000, (20_000, 60_000), SECONDS, random)
    return [
        Record(r.start, r.dur, r.kind, r.id, r.aux, OTHER)
        for block in blocks
        for r in block.made(block.start, block.dur)
    ]


def truths(found: Explained, simulated: Simulated) -> list[str]:
    """What the simulation says of each late packet."""
    order = np.argsort(simulated.egress, kind="stable")
    places = np.searchsorted(simulated.egress[order], found.joined.late.packets.egress_ns)
    return [
        CAUSE_OF[simulated.blocks[met].made] if met >= 0 else "none"
        for met in simulated.met[order][places].tolist()
    ]


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explained, Simulated, Path]:
    random = np.random.default_rng(5)
    simulated = busy(random)
    simulated.records += decoys(random)
    folder = write_run(tmp_path_factory.mktemp("runs") / "001-traced", simulated)
    return explain_runs([folder], late="5 us", knobs=KNOBS)[0], simulated, folder


def test_packets_get_the_cause_that_made_them_late(
    explained: tuple[Explained, Simulated, Path],
) -> None:
    found, simulated, _ = explained
    truth = truths(found, simulated)
    blamed = [found.labels.blame(packet).cause for packet in range(len(truth))]
    for cause in ("task", "kernel-thread", "function-call-ipi", "timer"):
        mine = [blame for blame, true in zip(blamed, truth, strict=True) if true == cause]
        others = [blame for blame, true in zip(blamed, truth, strict=True) if true != cause]
        assert len(mine) >= 10
        assert mine.count(cause) >= 0.95 * len(mine), cause
        assert others.count(cause) <= 0.01 * len(others), cause


def test_a_core_that_serves_nobody_is_never_blamed(
    explained: tuple[Explained, Simulated, Path],
) -> None:
    found, _, _ = explained
    assert "tlb-flush" not in {name.cause for name in found.joined.rows.names}


def test_stalls_are_those_of_the_simulation(explained: tuple[Explained, Simulated, Path]) -> None:
    found, simulated, _ = explained
    hogs = [block for block in simulated.blocks if block.made is hog]
    row = next(row for row in found.labels.rows if row.name.cause == "task")
    assert row.stalls == len(hogs)
    joined = found.joined
    starts = joined.stall_start[joined.stall_row == found.joined.rows.names.index(row.name)]
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
            "task": ["isolated-cpus"],
            "timer": ["nohz-full"],
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
        claimed += sum(row.is_cause and row.claim is not None for row in found.labels.rows)
    assert claimed == 0


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Simulated]:
    random = np.random.default_rng(1)
    blocks = random_blocks(hog, 3, (500_000, 600_000), 0.5, random)
    simulated = simulate(arrivals(20_000, 0.5, random), blocks, random)
    return write_run(tmp_path / "001-small", simulated), simulated


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "trace.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_trace_that_was_not_finished_is_refused(small: tuple[Path, Simulated]) -> None:
    folder, _ = small
    (folder / "trace.json").unlink()
    with pytest.raises(InputError, match="cut off"):
        explain_runs([folder])
    (folder / "trace.events").unlink()
    with pytest.raises(InputError, match="has no trace: measure it with `trace: thin`"):
        explain_runs([folder])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"boot_id": "other"}, "another boot"),
        ({"clock": "realtime"}, "by the clock monotonic, its trace by realtime"),
        ({"started_ns": 5, "ended_ns": 6}, "another run: .* s before"),
        ({"started_ns": 10**17, "ended_ns": 10**17 + 1}, "another run: .* s after"),
        ({"schema": "tailtap.trace/9"}, "schema: 'tailtap.trace/9' is wrong"),
        ({"cpus": [0]}, "packets are served on CPUs 1, and traced were 0"),
        ({"served": {"by": "magic"}}, r"served\.by: 'magic' is wrong"),
        ({"served": None}, "does not say by what packets are served"),
        ({"served": {}}, r"served\.by: this key is missing"),
    ],
)
def test_a_trace_of_something_else_is_refused(
    small: tuple[Path, Simulated], changes: dict[str, object], says: str
) -> None:
    folder, _ = small
    rewrite(folder, **changes)
    with pytest.raises(InputError, match=says):
        explain_runs([folder])
    assert not (folder / "causes.json").exists()


def test_what_is_no_trace_is_refused(small: tuple[Path, Simulated]) -> None:
    folder, _ = small
    for content in (b"", b"TTTR", b"something else entirely"):
        (folder / "trace.events").write_bytes(content)
        with pytest.raises(InputError, match=r"trace\.events: this is no trace"):
            explain_runs([folder])


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


def test_what_was_not_traced_to_keep_a_budget_is_not_guessed(
    small: tuple[Path, Simulated],
) -> None:
    """A pause is like lost records, of which there were none."""
    folder, simulated = small
    first = simulated.blocks[0]
    hole = Record(first.start - 100_000, 900_000, LOST, 0, 0, DUT)
    (folder / "trace.events").write_bytes(encode([*simulated.records, hole]))
    said = json.loads((folder / "trace.json").read_text())
    span = said["ended_ns"] - said["started_ns"]
    (folder / "trace.json").write_text(json.dumps({**said, "paused_ns": span // 4}))
    found = explain_runs([folder], late="50 us")[0]
    (warning,) = found.warnings
    assert (warning.code, "75.0% of the time" in warning.message) == ("trace-thinned", True)
    late = found.joined.late.packets.ingress_ns
    inside = (late >= first.start) & (late < first.start + first.dur)
    blamed = {found.labels.blame(packet).cause for packet in np.flatnonzero(inside).tolist()}
    assert blamed == {"unexplained"}
    content = record(found)
    assert content.unexplained.untraced == inside.sum()
    assert f"({inside.sum()} of them passed while nothing was traced)" in unexplained_words(content)


def test_lost_events_are_not_guessed(small: tuple[Path, Simulated]) -> None:
    folder, simulated = small
    blocks = simulated.blocks
    hole = Record(blocks[0].start - 100_000, 900_000, LOST, 0, 55, DUT)
    (folder / "trace.events").write_bytes(encode([*simulated.records, hole]))
    found = explain_runs([folder], late="50 us")[0]
    (warning,) = found.warnings
    assert warning.code == "trace-lost"
    assert "55 on CPU 1" in warning.message
    late = found.joined.late.packets.ingress_ns
    for packet, ingress in enumerate(late.tolist()):
        inside = blocks[0].start <= ingress < blocks[0].start + blocks[0].dur
        assert (found.labels.blame(packet).cause == "unexplained") == inside


@pytest.mark.parametrize(
    ("late", "says"),
    [
        ("p100", "lies between p0 and p100"),
        ("soon", "give a percentile such as p99.9"),
        ("1 s", "no packet took longer than 1 s"),
    ],
)
def test_thresholds_that_mean_nothing_are_refused(
    small: tuple[Path, Simulated], late: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        explain_runs([small[0]], late=late)


def test_stamps_that_are_gone_are_said_to_be(small: tuple[Path, Simulated]) -> None:
    folder, _ = small
    (folder / "ingress.stamps").unlink()
    with pytest.raises(InputError, match="the stamps of the run are gone"):
        explain_runs([folder])
