"""Where packets were late and why: on a line of nodes, and in a guest, on two clocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from guests import CLOCK, HOST_HOG, SEAT, VCPU, write_guest_run
from made_records import rewrite
from stamps import RECORD as STAMP
from stamps import on_cpu, write_stamps
from traced import (
    HOG,
    KWORKER,
    SECOND,
    START,
    Record,
    as_rows,
    traffic,
    write_line,
)
from traces import IDLE, TASK

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.late import UNKNOWN, Packets, Segment, segments, stamps_of
from tailtap.analysis.causes.taxonomy import Served
from tailtap.analysis.causes.trace import load
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import InputError
from tests.simulation.device import CORE, NEIGHBOUR, SERVED_BIT, SERVES
from tests.simulation.tracer import Told

SECONDS = 2.0
NET_RX = 3
HOST = HOST_HOG.detail
LINE: list[dict[str, Any]] = [
    {"node": "first", "by": "softirq", "vector": NET_RX, "pids": [], "cpus": [NEIGHBOUR]},
    {"node": "second", "by": "task", "vector": None, "pids": [SERVES], "cpus": [CORE]},
]


def written(folder: Path, servers: Sequence[Any] = LINE, *, hops: bool = True) -> Path:
    """A run of a line whose nodes are served so."""
    told = traffic(7, 0.5, (HOG, 4, (900_000, 1_100_000)))
    return write_line(folder, told, told.made.left, servers, hops=hops)


def test_without_stamps_between_them_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"first on 0, second on 1.*`dut\.taps: hops`"):
        explain_runs([written(tmp_path / "001-traced", hops=False)])


def test_nodes_on_the_same_cores_are_one_segment(tmp_path: Path) -> None:
    """Whatever serves there: the packets wait for the same core."""
    servers = [{**LINE[0], "cpus": [CORE]}, LINE[1]]
    for hops in (True, False):
        folder = written(tmp_path / f"{hops}", servers, hops=hops)
        [run] = finished_runs(folder)
        [way] = segments(run, load(run), folder)
        assert (way.nodes, way.served.by) == (("first", "second"), "several")
        assert (way.served.softirq_cpus, way.served.thread_cpus) == ((CORE,), (CORE,))
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


@cache
def busy() -> Told:
    """A guest with a hog and a kworker, on a host with a hog."""
    kinds = ((HOG, 8, 1_500_000), (KWORKER, 12, 300_000), (HOST_HOG, 8, 2_000_000))
    return traffic(5, SECONDS, *((what, n, (dur, dur + 100_000)) for what, n, dur in kinds))


def details(folder: Path) -> Sequence[str]:
    """What each late packet is explained by."""
    explain_runs([folder], late="100 us")
    found: list[str] = pq.read_table(folder / "causes-late.parquet")["detail"].to_pylist()
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """What they are where one CPU serves, and nothing is spoilt."""
    return details(write_guest_run(tmp_path_factory.mktemp("runs") / "001-whole", busy()))


def test_of_several_serving_cpus_the_guest_says_which_had_a_packet(
    tmp_path: Path, whole: Sequence[str]
) -> None:
    """QEMU's own threads hand packets over wherever they run: here on the core of the other one."""
    simulated = busy()
    folder = write_guest_run(tmp_path / "001-two", simulated)
    other, other_seat, thread = 2, 2, 902
    on_cpu(folder / "egress.stamps", other)
    on_cpu(folder / "guest-egress.stamps", SEAT)
    host = [Record(START, simulated.ended - START, TASK, thread, SERVED_BIT, other)]
    add_core(folder, "trace", other, host, {str(thread): f"CPU {other_seat}/KVM"}, (VCPU, thread))
    first = int(CLOCK.shows(np.array([START]))[0])
    idle = [Record(first, 2 * SECOND, IDLE, 1, cpu=other_seat)]
    add_core(folder, "trace-guest", other_seat, idle)
    [found] = explain_runs([folder], late="100 us")
    assert len(whole) > 500 and details(folder) == whole
    assert set(found.joined.cpu.tolist()) == {CORE}
    assert found.warnings == ()


def add_core(
    folder: Path,
    trace: str,
    cpu: int,
    records: Sequence[Record],
    names: Mapping[str, str] | None = None,
    pids: Sequence[int] | None = None,
) -> None:
    """Give a trace another core that serves, with its records and threads."""
    said = json.loads((folder / f"{trace}.json").read_text())
    said["cpus"] += [cpu]
    said["served"]["cpus"] += [cpu]
    said["served"]["pids"] = list(pids or said["served"]["pids"])
    said["names"]["pids"] |= names or {}
    said["records"] += len(records)
    (folder / f"{trace}.json").write_text(json.dumps(said))
    with (folder / f"{trace}.events").open("ab") as file:
        file.write(as_rows(records).tobytes())


def stepped(stamps: Path) -> None:
    """Their clock steps by 50 ms, half-way."""
    data = stamps.read_bytes()
    records = np.frombuffer(data, STAMP, offset=64).copy()
    records["time"][records.size // 2 :] += 50_000_000
    stamps.write_bytes(data[:64] + records.tobytes())


def cut(path: Path, end: int) -> None:
    path.write_bytes(path.read_bytes()[:end])


SPOILT: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "cut": (lambda f: (f / "trace-guest.json").unlink(),
            "guest-untraced", "cut off before its end"),
    "none": (lambda f: list(map(Path.unlink, f.glob("trace-guest.*"))),
             "guest-untraced", "the run has none"),
    "served": (lambda f: rewrite(f / "trace-guest.json", served=None),
               "guest-untraced", "does not say by what packets are served"),
    "stamps": (lambda f: cut(f / "guest-egress.stamps", 64),
               "guest-clock", "no packet was stamped in the guest where it went out"),
    "gone": (lambda f: (f / "guest-egress.stamps").unlink(),
             "guest-clock", "guest-egress.stamps: cannot read it: No such file or directory"),
    "stepped": (lambda f: stepped(f / "guest-egress.stamps"), "guest-clock", "stepped"),
    "events": (lambda f: cut(f / "trace-guest.events", -7),
               "trace-damaged", "trace-guest.events is damaged or cut off"),
}  # fmt: skip


@pytest.mark.parametrize("spoilt", SPOILT)
def test_what_is_spoilt_is_one_warning(tmp_path: Path, whole: Sequence[str], spoilt: str) -> None:
    """And late packets are explained on the host all the same."""
    spoil, code, says = SPOILT[spoilt]
    folder = write_guest_run(tmp_path / "001-spoilt", busy())
    spoil(folder)
    [found] = explain_runs([folder], late="100 us")
    [warning] = found.warnings
    assert warning.code == code
    assert says in warning.message and "\n" not in warning.message
    found_so = details(folder)
    host = [one for one, other in zip(found_so, whole, strict=True) if other == HOST]
    assert np.mean([one == HOST for one in host]) > 0.95
    if spoilt != "events":
        assert not any(one.startswith("guest") for one in found_so)
