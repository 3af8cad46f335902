"""A device whose nodes work on cores of their own: where each packet was late, and why there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_records import rewrite
from stamps import write_stamps
from traced import (
    CAUSE_OF,
    DUT,
    OTHER,
    SERVER,
    SOFTIRQ,
    TASK,
    Record,
    Simulated,
    arrivals,
    barrier,
    hog,
    kworker,
    random_blocks,
    require_causes,
    simulate,
    ticks,
    write_run,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.late import UNKNOWN, Packets, Segment, segments, stamps_of
from tailtap.analysis.causes.taxonomy import Served
from tailtap.analysis.causes.trace import load
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import InputError

SECONDS = 2.0
NET_RX = 3
SERVERS: list[dict[str, Any]] = [
    {"node": "first", "by": "softirq", "vector": NET_RX, "pids": [], "cpus": [OTHER]},
    {"node": "second", "by": "task", "vector": None, "pids": [SERVER], "cpus": [DUT]},
]


@dataclass(frozen=True)
class Line:
    """Two devices, one behind the other."""

    first: Simulated
    second: Simulated

    @property
    def both(self) -> Simulated:
        """What is stamped at the ends, and all records."""
        records = [*self.first.records, *self.second.records]
        ended = max(self.first.ended, self.second.ended)
        return replace(self.second, ingress=self.first.ingress, records=records, ended=ended)


def by_softirq(record: Record) -> Record:
    """The same on the other core, where the softirq does what the server does."""
    if record.kind == TASK and record.id == SERVER:
        record = record._replace(kind=SOFTIRQ, id=NET_RX, aux=0)
    return record._replace(cpu=OTHER)


def line(random: np.random.Generator) -> Line:
    """Interrupts on the first core, tasks on the second."""
    calls = random_blocks(barrier, 30, (60_000, 90_000), SECONDS, random)
    first = simulate(arrivals(10_000, SECONDS, random), [*calls, *ticks(SECONDS, 15_000)], random)
    first.records = [by_softirq(record) for record in first.records]
    tasks = [
        *random_blocks(hog, 4, (900_000, 1_100_000), SECONDS, random),
        *random_blocks(kworker, 12, (200_000, 400_000), SECONDS, random),
    ]
    return Line(first, simulate(first.egress, tasks, random))


def write_line(
    folder: Path, found: Line, servers: Sequence[Any] = SERVERS, *, hops: bool = True
) -> Path:
    write_run(folder, found.both, served=list(servers))
    ids = np.arange(found.first.egress.size)
    order = np.argsort(found.first.egress, kind="stable")
    write_stamps(folder / "second.stamps", found.first.egress[order], ids[order])
    if hops:
        ends = [("ingress", "first"), ("second", "second"), ("egress", None)]
        points = [{"name": name, "port": "", "file": f"{name}.stamps", "before": before}
                  for name, before in ends]  # fmt: skip
        taps = {"facts": [], "files": [], "points": points}
        rewrite(folder / "run.json", instruments={"taps": taps})
    return folder


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explained, Line, Path]:
    found = line(np.random.default_rng(7))
    folder = write_line(tmp_path_factory.mktemp("runs") / "001-traced", found)
    return explain_runs([folder], late="14 us")[0], found, folder


def test_packets_are_late_where_they_waited_and_by_what_was_there(
    explained: tuple[Explained, Line, Path],
) -> None:
    found, simulated, _ = explained
    order = np.argsort(simulated.second.egress, kind="stable")
    late = found.joined.late.packets
    place = order[np.searchsorted(simulated.second.egress[order], late.egress_ns)]
    devices = simulated.first, simulated.second
    hops = np.column_stack([one.egress - one.ingress for one in devices])
    excess = (hops - np.median(hops, axis=0).astype(np.int64))[place]
    segment = excess.argmax(axis=1)
    assert found.joined.segment.tolist() == segment.tolist()
    assert (np.abs(found.joined.excess_ns - excess.max(axis=1)) < 200).all()  # a sampled median
    truth = [
        CAUSE_OF[device.blocks[met].made] if (met := int(device.met[packet])) >= 0 else "none"
        for packet, where in zip(place.tolist(), segment.tolist(), strict=True)
        for device in [devices[where]]
    ]
    blamed = [found.labels.blame(packet).cause for packet in range(len(truth))]
    require_causes(blamed, truth)


def test_parts_are_of_both_and_no_longer_than_the_stay(
    explained: tuple[Explained, Line, Path],
) -> None:
    found, _, folder = explained
    joined = found.joined
    sums = np.bincount(joined.of_packets(), joined.part_ns, joined.state.size)
    assert (sums <= joined.late.packets.latency_ns).all()
    told = np.unique(joined.of_packets() * len(joined.laid.rows.names) + joined.part_row)
    assert told.size == joined.part_row.size  # each row once
    written = pq.read_table(folder / "causes-late.parquet")
    assert written["segment"].to_pylist() == (joined.segment + 1).tolist()


def test_it_is_told_where(explained: tuple[Explained, Line, Path]) -> None:
    _, _, folder = explained
    content = json.loads((folder / "causes.json").read_text())
    assert content["served"]["by"] == "several"
    assert [(row["nodes"], row["by"], row["cpus"]) for row in content["segments"]] == [
        (["first"], "softirq", [OTHER]),
        (["second"], "task", [DUT]),
    ]
    assert sum(row["packets"] for row in content["segments"]) == content["late"]["packets"]
    assert "late in second (CPU 1): task (hog) for" in content["worst"][0]["words"]


def test_without_stamps_between_them_nobody_knows(tmp_path: Path) -> None:
    folder = write_line(tmp_path / "001-traced", line(np.random.default_rng(1)), hops=False)
    with pytest.raises(InputError, match=r"first on 0, second on 1.*`dut\.taps: hops`"):
        explain_runs([folder])


def test_nodes_on_the_same_cores_are_one_segment(tmp_path: Path) -> None:
    """Whatever serves there: the packets wait for the same core."""
    servers = [{**SERVERS[0], "cpus": [DUT]}, SERVERS[1]]
    found = line(np.random.default_rng(1))
    for hops in (True, False):
        folder = write_line(tmp_path / f"{hops}", found, servers, hops=hops)
        [run] = finished_runs(folder)
        [way] = segments(run, load(run), folder)
        assert (way.nodes, way.served.by) == (("first", "second"), "several")
        assert (way.served.softirq_cpus, way.served.thread_cpus) == ((DUT,), (DUT,))
        assert str(way) == "first to second (CPU 1)"


def test_packets_that_left_at_once_are_told_apart(tmp_path: Path) -> None:
    """By when they came; and one whose stamp between is missing is not guessed."""
    taps = [tmp_path / f"{name}.stamps" for name in ("before", "between", "after")]
    write_stamps(taps[0], np.array([10, 20, 30]), np.array([1, 2, 3]))
    write_stamps(taps[1], np.array([40, 45]), np.array([2, 1]))
    write_stamps(taps[2], np.array([90, 90, 90]), np.array([3, 2, 1]))
    ways = [Segment((), Served.one("softirq"), *ends) for ends in pairwise(taps)]
    found = stamps_of(Packets(np.array([10, 20, 30, 31]), np.full(4, 90)), ways)
    assert found.tolist() == [[10, 45, 90], [20, 40, 90], [30, UNKNOWN, 90], [31, UNKNOWN, 90]]
