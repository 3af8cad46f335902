"""Runs in a virtual machine: what the guest did below what its host did, on two clocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from guests import IN_NS, OUT_NS, SEAT, VCPU, Clock, Integers, host_hog, write_guest_run
from made_records import rewrite
from stamps import RECORD as STAMP
from stamps import on_cpu
from traced import (
    DUT,
    IDLE,
    SECOND,
    SERVED_BIT,
    START,
    TASK,
    Record,
    Simulated,
    arrivals,
    hog,
    kworker,
    packed,
    simulate,
    traffic,
)

from tailtap.analysis.causes import Explained, explain_runs
from tailtap.analysis.causes.record import record
from tailtap.analysis.clocks.host import guest_clock
from tailtap.records.causes import ServedBy
from tailtap.records.evaluation import PacketsBothWays

SECONDS = 2.0
TRUTH = {hog: "guest: hog", kworker: "guest: kworker: vmstat_update", host_hog: "host: injector"}


@cache
def busy() -> Simulated:
    """A guest with a hog and a kworker, on a host with a hog."""
    kinds = ((hog, 8, 1_500_000), (kworker, 12, 300_000), (host_hog, 8, 2_000_000))
    return traffic(5, SECONDS, *((made, n, (dur, dur + 100_000)) for made, n, dur in kinds))


def blamed(folder: Path, simulated: Simulated) -> tuple[Sequence[str], Sequence[str]]:
    """What was blamed, and the truth, for each late packet that met a block."""
    table = pq.read_table(folder / "causes-late.parquet")
    met = simulated.met_at(table["egress_ns"].to_numpy())
    known = met >= 0
    truth = [TRUTH[simulated.blocks[at].made] for at in met[known].tolist()]
    return np.array(table["detail"].to_pylist())[known].tolist(), truth


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explained, Simulated, Path]:
    simulated = busy()
    folder = write_guest_run(tmp_path_factory.mktemp("runs") / "001-guest", simulated)
    [found] = explain_runs([folder], late="100 us")
    return found, simulated, folder


def test_each_packet_has_the_cause_of_its_kernel(
    explained: tuple[Explained, Simulated, Path],
) -> None:
    found, simulated, folder = explained
    details, truth = blamed(folder, simulated)
    assert len(truth) > 500
    right = [one == other for one, other in zip(details, truth, strict=True)]
    assert np.mean(right) > 0.99
    claims = {f"{row.cause} ({row.detail})" for row in found.labels.rows if row.is_cause}
    assert {"task (guest: hog)", "task (host: injector)",
            "kernel-thread (guest: kworker: vmstat_update)"} <= claims  # fmt: skip
    assert found.warnings == ()
    knobs = {row.detail: row.knobs for row in record(found).causes}
    assert knobs["guest: hog"] == ["guest: isolated-cpus"]
    assert knobs["host: injector"] == ["isolated-cpus", "groups"]
    # Nothing is set in a guest that runs.
    assert knobs["guest: kworker: vmstat_update"] == []


def test_of_several_serving_cpus_the_guest_says_which_had_a_packet(tmp_path: Path) -> None:
    """QEMU's own threads hand packets over wherever they run: here on the core of the other one."""
    simulated = busy()
    folder = write_guest_run(tmp_path / "001-two", simulated)
    other, other_seat, thread = 2, 2, 902
    on_cpu(folder / "egress.stamps", other)
    on_cpu(folder / "guest-egress.stamps", SEAT)
    host = [
        Record(at, SECOND, TASK, thread, SERVED_BIT, other)
        for at in range(START, simulated.ended, SECOND)
    ]
    add_core(folder, "trace", other, host, {str(thread): f"CPU {other_seat}/KVM"}, (VCPU, thread))
    first = int(Clock().shows([START])[0])
    idle = [Record(first, 2 * SECOND, IDLE, 1, cpu=other_seat)]
    add_core(folder, "trace-guest", other_seat, idle)
    [found] = explain_runs([folder], late="100 us")
    details, truth = blamed(folder, simulated)
    assert len(truth) > 500
    assert np.mean([one == other for one, other in zip(details, truth, strict=True)]) > 0.99
    assert set(found.joined.cpu.tolist()) == {DUT}
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
        file.write(packed(records))


def test_its_clock_is_told_with_the_truth_in_it(
    explained: tuple[Explained, Simulated, Path],
) -> None:
    found, simulated, _ = explained
    told = record(found).guest
    assert told is not None
    clock = told.clock
    assert told.coarse == 0
    assert told.served == ServedBy(by="task", cpus=[1], pids=[500])
    least, most = clock.offset_ns
    ahead = int(Clock().shows([clock.at_ns])[0]) - clock.at_ns
    assert least <= ahead <= most
    assert clock.drifts[0] <= Clock().drift <= clock.drifts[1]
    assert IN_NS + OUT_NS <= clock.width_ns <= 2 * (IN_NS + OUT_NS)
    assert clock.packets == PacketsBothWays(
        there=simulated.ingress.size, back=simulated.ingress.size
    )


def test_where_the_clock_is_coarse_only_the_host_is_blamed(tmp_path: Path) -> None:
    """The interval is some 0.6 ms wide: nothing beside 0.3 ms, and little beside 2 ms."""
    simulated = busy()
    folder = write_guest_run(
        tmp_path / "001-coarse",
        replace_latency(simulated, 300_000),
        way_ns=lambda size: np.full(size, 150_000),
    )
    [found] = explain_runs([folder], late="450 us")
    late = found.joined.late
    width = 300_000 + IN_NS + OUT_NS
    coarse = late.excess_ns < 5 * width
    assert 0 < coarse.sum() < coarse.size
    assert found.joined.coarse == pytest.approx(coarse.sum(), abs=20)
    [warning] = found.warnings
    assert warning.code == "guest-clock-coarse"
    assert f"{found.joined.coarse:,} of {coarse.size:,} late packets" in warning.message
    table = pq.read_table(folder / "causes-late.parquet")
    details = np.array(table["detail"].to_pylist())
    certain = late.excess_ns < 4 * width
    assert not any(detail.startswith("guest") for detail in details[certain])
    assert (details[certain] == "host: injector").any()
    assert (details[~coarse] == "guest: hog").any()
    parts = pq.read_table(folder / "causes-parts.parquet")
    ns = np.bincount(parts["packet"].to_numpy(), parts["ns"].to_numpy(), late.excess_ns.size)
    assert (ns <= late.excess_ns).all()
    stalls = pq.read_table(folder / "causes-stalls.parquet")
    used = set(table["stall"].to_pylist()) - {0}
    assert used == set(stalls["stall"].to_pylist())


def replace_latency(simulated: Simulated, more_ns: int) -> Simulated:
    """The same packets, each of which was stamped so much earlier before the guest."""
    return Simulated(simulated.ingress - more_ns, simulated.egress, simulated.blocks,
                     simulated.records, simulated.met, simulated.ended)  # fmt: skip


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
def test_what_is_spoilt_is_one_warning(tmp_path: Path, spoilt: str) -> None:
    """And the host's part is told all the same."""
    simulated, (spoil, code, says) = busy(), SPOILT[spoilt]
    folder = write_guest_run(tmp_path / "001-spoilt", simulated)
    spoil(folder)
    [found] = explain_runs([folder], late="100 us")
    [warning] = found.warnings
    assert warning.code == code
    assert says in warning.message and "\n" not in warning.message
    details, truth = blamed(folder, simulated)
    host = [one for one, other in zip(details, truth, strict=True) if other == "host: injector"]
    assert np.mean([one == "host: injector" for one in host]) > 0.95
    if spoilt != "events":
        assert not any(one.startswith("guest") for one in details)


def test_the_lines_of_the_clock_keep_to_its_interval(tmp_path: Path) -> None:
    """A clock whose rate changes slowly, over several pieces."""
    random = np.random.default_rng(3)
    simulated = simulate(arrivals(2_000, 9.0, random), [], random)

    class Curved(Clock):
        def shows(self, host: npt.ArrayLike) -> Integers:
            ours = np.asarray(host, np.int64)
            since = (ours - ours.min()) / 1e9 if ours.size > 2 else np.zeros(ours.shape)
            bent: Integers = super().shows(ours) + np.rint(30 * since**2).astype(np.int64)
            return bent

    clock = guest_clock(write_guest_run(tmp_path / "001-curved", simulated, Curved()))
    assert len(clock.alignment.pieces) > 3
    theirs, ours = clock.moments()
    assert (np.diff(theirs) > 0).all() and (np.diff(ours) > 0).all()
    times = simulated.ingress
    off = np.abs(clock.host_ns(Curved().shows(times)) - times)
    assert (off <= clock.off_ns(times) + 2).all()
    assert clock.off_ns(times).max() < 3 * (IN_NS + OUT_NS)
