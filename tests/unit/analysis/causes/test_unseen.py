"""A kernel that does not run the tracer's programs for a while: nothing is said of that time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from traced import DUT, HOG, SECOND, SOFTIRQ, START, TASK, Record, Simulated, arrivals, write_run

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.stalls import worst_stalls
from tailtap.analysis.causes.unseen import Chosen

SECONDS, HELD_NS, COUNT = 2.0, 400_000, 40
SERVICE_NS, STAMP_NS = 2_000, 500
"""How long a packet is served, and how much of that is left when it leaves."""
SOFTIRQS = {"by": "softirq", "vector": 3, "pids": [], "cpus": [DUT]}


def run(
    folder: Path, *, stamped_behind_ns: int = 0, gathered: bool = False
) -> tuple[Path, Chosen, Chosen]:
    """A run whose core a task has; packets of some windows come all at their end.

    In every other window the trace tells nothing of the softirqs that serve them or, `gathered`,
    their sum. Returned are the folder, and which packets waited in windows of the one and the other
    kind.
    """
    random = np.random.default_rng(5)
    ingress = arrivals(5_000, SECONDS, random)
    starts = np.sort(random.choice(int(SECONDS * SECOND) // HELD_NS - 2, COUNT, replace=False))
    egress, free, records = np.zeros_like(ingress), START, list[Record]()
    sums: dict[int, tuple[int, int, int]] = {}
    kind = np.full(ingress.size, -1)
    for place, arrived in enumerate(ingress.tolist()):
        told = arrived
        for number, at in enumerate(START + starts * HELD_NS):
            if at <= arrived < at + HELD_NS - 100_000:
                told, kind[place] = int(at) + HELD_NS, number % 2
        begun = max(told + 1_000, free)
        free = begun + SERVICE_NS
        egress[place] = free - STAMP_NS + stamped_behind_ns
        if kind[place] != 1:
            records.append(Record(begun, SERVICE_NS, SOFTIRQ, 3))
        elif gathered:
            window = (kind[:place] == 1) & (egress[:place] > told)
            first = int(egress[:place][window][0]) - SERVICE_NS if window.any() else begun
            sums[told] = first, free, int(window.sum()) + 1
    records += [
        Record(first, SERVICE_NS * count, SOFTIRQ, 3, end - first << 32 | count, flags=1)
        for first, end, count in sums.values()
    ]
    ended = free + 10_000
    records.append(Record(START - 1_000_000, ended - START + 1_000_000, TASK, HOG, HOG))
    nothing = np.full(ingress.size, -1, np.int64)
    found = Simulated(ingress, egress, [], records, nothing, ended)
    return write_run(folder, found, served=SOFTIRQS, cpus=[DUT]), kind == 0, kind == 1


def explained(folder: Path) -> tuple[Explained, list[str]]:
    [found] = explain_runs([folder], late="95 us")
    return found, pq.read_table(folder / "causes-late.parquet")["blamed"].to_pylist()


def test_nothing_is_said_of_packets_that_left_in_no_softirq_of_the_trace(tmp_path: Path) -> None:
    folder, told, unseen = run(tmp_path / "001-blind")
    found, blamed = explained(folder)
    assert min(told.sum(), unseen.sum()) > 20
    assert blamed.count("waiting") == told.sum()
    assert blamed.count("unexplained") == unseen.sum()
    content = record(found)
    assert content.unexplained.packets == unseen.sum()
    [warning] = [one for one in found.warnings if one.code == "trace-blind"]
    assert f"{unseen.sum()} late packets left while hog had the core" in warning.message
    lines = {line.words.partition(": ")[2] for line in worst_stalls(found, COUNT)}
    assert any("nobody had told its core" in line for line in lines)
    assert any(line.startswith("the trace saw nothing that served it; hog had") for line in lines)


def test_stamps_that_are_made_behind_the_core_tell_nothing_of_its_trace(tmp_path: Path) -> None:
    folder, told, unseen = run(tmp_path / "001-behind", stamped_behind_ns=20_000)
    found, blamed = explained(folder)
    assert blamed.count("waiting") == told.sum() + unseen.sum()
    assert not [one for one in found.warnings if one.code == "trace-blind"]


def test_a_sum_of_softirqs_is_seen(tmp_path: Path) -> None:
    folder, told, unseen = run(tmp_path / "001-sums", gathered=True)
    found, blamed = explained(folder)
    assert blamed.count("waiting") == told.sum() + unseen.sum()
    assert not [one for one in found.warnings if one.code == "trace-blind"]
