"""Perfetto's files, read back by Perfetto's own protobufs and by its rules for slices and flows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from guests import HOST_HOG, SEAT, write_guest_run
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from traced import FLUSH, HOG, KWORKER, traffic, write_run, write_two_causes
from traces import TASK, WORK

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import Causes, causes_of
from tailtap.analysis.runs.reader import finished_runs
from tailtap.base.errors import InputError
from tailtap.results.exporters import export
from tailtap.results.exporters.perfetto.drawing import AROUND_NS
from tests.simulation.device import CORE, NEIGHBOUR


@dataclass
class Slice:
    """A slice as trace_processor makes it of a begin and an end."""

    track: str
    parent: str
    name: str
    category: str
    start: int
    told: dict[str, Any]
    end: int = -1
    flows: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Read:
    slices: list[Slice]
    tracks: dict[int, tuple[str, str]]
    counters: dict[str, list[int]]

    def of(self, track: str, parent: str = "") -> list[Slice]:
        return [one for one in self.slices if (one.track, one.parent) == (track, parent)]

    def flows(self) -> Iterator[tuple[Slice, Slice]]:
        """From where each flow leaves to where it ends."""
        leaving = {flow: one for one in self.slices for way, flow in one.flows if way == "out"}
        for one in self.slices:
            for way, flow in one.flows:
                if way == "in":
                    yield leaving[flow], one


def _value(annotation: Any) -> Any:
    if annotation.dict_entries:
        return {entry.name: _value(entry) for entry in annotation.dict_entries}
    return annotation.int_value if annotation.HasField("int_value") else annotation.string_value


def read(path: str) -> Read:
    """Reads a file as trace_processor does: by time, and by the file's order at one time."""
    trace = Trace()
    trace.ParseFromString(Path(path).read_bytes())
    assert {packet.trusted_packet_sequence_id for packet in trace.packet} == {1}
    described = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    names = {one.uuid: one.name for one in described}
    assert len(names) == len(described)
    tracks = {one.uuid: (one.name, names.get(one.parent_uuid, "")) for one in described}
    found = Read([], tracks, {})
    open_: dict[int, list[Slice]] = {}
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    active: set[int] = set()
    for packet in sorted(events, key=lambda packet: packet.timestamp):  # a stable sort
        event = packet.track_event
        track, parent = tracks[event.track_uuid]
        above = open_.setdefault(event.track_uuid, [])
        told = {one.name: _value(one) for one in event.debug_annotations}
        if event.type == TrackEvent.TYPE_COUNTER:
            found.counters.setdefault(track, []).append(event.counter_value)
            continue
        if event.type == TrackEvent.TYPE_SLICE_END:
            one = above.pop()
            one.end = packet.timestamp
        else:
            category = event.categories[0] if event.categories else ""
            one = Slice(track, parent, event.name, category, packet.timestamp, told)
            found.slices.append(one)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                above.append(one)
        one.flows += [("out", flow) for flow in event.flow_ids]
        active.update(event.flow_ids)
        assert active.issuperset(event.terminating_flow_ids)  # others are dropped
        one.flows += [("in", flow) for flow in event.terminating_flow_ids]
    assert not any(open_.values())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_two_causes(tmp_path_factory.mktemp("told"))
    explain_runs([folder], late="150 us")
    return folder


@pytest.fixture(scope="module")
def causes(folder: Path) -> Causes:
    return causes_of(finished_runs(folder)[0])


@pytest.fixture(scope="module")
def part(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    done = export(folder, "perfetto", tmp_path_factory.mktemp("part"))
    assert [Path(path).name for path in done.written] == ["001-told.pftrace"]
    return read(done.written[0])


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return read(
        export(folder, "perfetto", tmp_path_factory.mktemp("whole"), packets=True).written[0]
    )


def test_late_packets_lie_from_stamp_to_stamp_and_say_why(whole: Read, causes: Causes) -> None:
    rows = causes.late.to_pylist()
    drawn = {(one.start, one.end): one for one in whole.of("late packets")}
    assert set(drawn) == {(row["ingress_ns"], row["egress_ns"]) for row in rows}
    for row in rows:
        one = drawn[row["ingress_ns"], row["egress_ns"]]
        assert one.name == one.category == row["blamed"]
        assert one.told["latency_ns"] == one.end - one.start
        assert one.told["stall"] == row["stall"]
        assert sum(one.told["parts"].values()) <= one.told["excess_ns"]
    worst = causes.record.worst[0]
    assert drawn[worst.ingress_ns, worst.egress_ns].told["words"] == worst.words


def test_a_guest_has_tracks_of_its_own_and_flows_from_them(tmp_path: Path) -> None:
    kinds = (HOG, 5, (1_500_000, 1_600_000)), (HOST_HOG, 5, (2_000_000, 2_100_000))
    run = write_guest_run(tmp_path / "001-guest", traffic(3, 1.0, *kinds))
    explain_runs([run], late="100 us")
    found = read(export(run, "perfetto", tmp_path / "out").written[0])
    flows = list(found.flows())
    details = {packet.told["detail"] for _, packet in flows}
    assert details == {"guest: hog", "host: injector"}
    for event, packet in flows:
        is_guest = packet.told["detail"] == "guest: hog"
        assert event.parent == (f"guest CPU {SEAT}" if is_guest else f"CPU {CORE}")
        assert event.name == ("hog" if is_guest else "injector")
    clock = found.of("guest's clock")
    assert [one.start for one in clock] == [one.start for one in found.of("exported")]
    assert all(one.name.startswith("known to ±") for one in clock)
    assert all(0 < one.told["off by at most ns"] < 10_000 for one in clock)


def test_each_context_of_a_core_has_a_track_and_whole_records(whole: Read, causes: Causes) -> None:
    parents = {parent for _, parent in whole.tracks.values()}
    assert parents == {"", f"CPU {CORE}"}  # the other core has no records
    tasks = whole.of("tasks", f"CPU {CORE}")
    records = causes.events.records
    for kind, id, name in (
        (TASK, HOG.id, "hog"),
        (TASK, KWORKER.id, "kworker/1:2"),
        (WORK, KWORKER.id, "kworker: vmstat_update"),
    ):
        mine = records[(records["kind"] == kind) & (records["id"] == id)]
        spans = {(int(one["start"]), int(one["start"]) + int(one["dur"])) for one in mine}
        assert spans and {(one.start, one.end) for one in tasks if one.name == name} == spans


def test_flows_lead_from_what_held_packets_up_to_them(whole: Read, causes: Causes) -> None:
    flows = list(whole.flows())
    assert all(packet.track == "late packets" for _, packet in flows)
    stalls = {row["stall"]: row for row in causes.stalls.to_pylist()}
    for event, packet in flows:
        stall = stalls[packet.told["stall"]]
        assert event.category == stall["cause"]
        assert event.start < stall["end_ns"] and event.end > stall["start_ns"]
    drawn = ("task", "kernel-thread")
    held = [row for row in causes.late.to_pylist()
            if row["stall"] and stalls[row["stall"]]["cause"] in drawn]  # fmt: skip
    assert len(flows) == len(held) > 100


def test_by_default_the_surroundings_of_the_worst_packets_are_written(
    part: Read, whole: Read, causes: Causes
) -> None:
    windows = [(one.start, one.end) for one in part.of("exported")]
    assert all(a[1] < b[0] for a, b in pairwise(windows))
    for packet in causes.record.worst:
        around = packet.ingress_ns - AROUND_NS, packet.egress_ns + AROUND_NS
        assert any(start <= around[0] and around[1] <= end for start, end in windows)
    tasks, every = (read.of("tasks", f"CPU {CORE}") for read in (part, whole))
    inside = [one for one in every if any(one.start <= b and one.end >= a for a, b in windows)]
    assert [(one.start, one.end, one.name) for one in tasks] == [
        (one.start, one.end, one.name) for one in inside
    ]
    assert len(tasks) < len(every)


def test_all_packets_are_written_when_asked_for(whole: Read, causes: Causes) -> None:
    packets = whole.of("packets")
    assert len(packets) == causes.packets
    assert len({one.told["key"] for one in packets}) == causes.packets
    inside = whole.counters["packets in the device"]
    assert inside[-1] == 0 and min(inside) >= 0 and max(inside) > 5


def test_interrupts_between_cores_come_from_their_sender(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", traffic(7, 1.0, (FLUSH, 60, (50_000, 90_000)), rate=5_000))
    done = read(export(run, "perfetto", tmp_path / "out", packets=True).written[0])
    calls = [one for one in done.of("interrupts", f"CPU {CORE}") if one.name == "flush_tlb_func"]
    sent = done.of("IPIs sent", f"CPU {NEIGHBOUR}")
    assert len(calls) == len(sent) > 40
    arrived = [(event, call) for event, call in done.flows() if call.name == "flush_tlb_func"]
    assert len(arrived) == len(calls)
    assert all(event.track == "IPIs sent" and event.start == call.start for event, call in arrived)


def test_runs_without_a_trace_are_left_out_or_refused(folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare)
    (bare / "trace.events").unlink()
    with pytest.raises(InputError, match=r"no trace: .*`trace: thin`"):
        export(bare, "perfetto", tmp_path / "out")
