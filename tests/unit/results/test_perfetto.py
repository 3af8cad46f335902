"""Perfetto's files, read by its own protobufs; trees of pos, by published scripts' ways."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_folders import traffic as made_traffic
from experiment_folders import write_evaluation, write_experiment
from experiment_folders import write_run as write_measured
from guests import HOST_HOG, SEAT, write_guest_run
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from pos_scripts import (
    histograms_of_artifacts,
    loops_of_artifacts,
    page_of_artifacts,
    plots_of_limbo,
    throughput_of_artifacts,
)
from traced import FLUSH, HOG, KWORKER, traffic, write_run, write_two_causes
from traces import TASK, WORK

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.causes.stored import Causes, causes_of
from tailtap.analysis.evaluation.values import papers
from tailtap.analysis.runs.reader import finished_runs, read_runs
from tailtap.base.errors import InputError
from tailtap.results.exporters import export
from tailtap.results.exporters.perfetto.drawing import AROUND_NS
from tailtap.results.importers.importer import import_tree
from tests.simulation.device import CORE, NEIGHBOUR
from tests.simulation.folders import write_run as made_run


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


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experiment(tmp_path_factory.mktemp("pos") / "experiment", packets=3_000)


@pytest.fixture(scope="module")
def tree(experiment: Path) -> Path:
    found = export(experiment, "pos")
    assert found.runs == 10 and len(set(found.written)) == len(found.written)
    assert all(Path(path).is_file() for path in found.written)
    return experiment / "export/pos"


def test_every_host_has_the_loop_variables_of_every_run(experiment: Path, tree: Path) -> None:
    runs = finished_runs(experiment)
    assert sorted(path.name for path in tree.iterdir()) == ["config", "dut", "loadgen", "timer"]
    for host in ("dut", "loadgen", "timer"):
        found = loops_of_artifacts(tree / host)
        assert list(found) == list(range(10))
        for run, loop in zip(runs, found.values(), strict=True):
            assert loop["pkt_rate"] == run.rate and loop["repeat"] == run.repeat - 1
            assert loop["pkt_sz"] == 60  # of a frame of 64 bytes, without its check sequence
            assert {name: loop[name] for name in run.variables} == run.variables
            # The first variable that a plot is not grouped by is its x axis.
            first = next(name for name in loop if name not in ("pkt_sz", "dut.platform"))
            assert first == ("pkt_rate")
    assert {path.read_text() for path in tree.rglob("*.status")} == {"finished"}


def test_result_files_are_found_by_the_number_of_their_run(experiment: Path, tree: Path) -> None:
    for kind, columns in (
        ("percentiles", ["percentile", "value"]),
        ("hist", ["latency_bucket", "count"]),
        ("worst", ["latency", "prets", "postts"]),
        ("jitterpre", ["bucket", "count"]),
        ("packetratepre", ["ts", "count"]),
    ):
        plots = plots_of_limbo(tree / "timer", kind)
        assert len(plots) == 10, kind
        assert all(set(columns) <= set(rows[0]) for _, rows in plots), kind
    wanted = {}
    for run in finished_runs(experiment):
        key = (run.rate, run.variables["dut.platform"], run.repeat - 1)
        wanted[key] = [(row.p, row.value) for row in run.stored.percentiles(papers())]
    for loop, rows in plots_of_limbo(tree / "timer", "percentiles"):
        key = (loop["pkt_rate"], loop["dut.platform"], loop["repeat"])
        assert [(float(r["percentile"]), int(r["value"])) for r in rows] == wanted.pop(key)
    assert not wanted


def test_histograms_are_the_exact_latencies(experiment: Path, tree: Path) -> None:
    found = histograms_of_artifacts(tree / "timer")
    for run, histogram in zip(finished_runs(experiment), found.values(), strict=True):
        latencies = np.repeat(list(histogram), list(histogram.values()))
        assert latencies.size == run.stored.counts.matched
        nearest = np.quantile(latencies, [0.5, 0.99, 0.999], method="inverted_cdf")
        rows = run.stored.percentiles([0.5, 0.99, 0.999])
        assert [int(value) for value in nearest] == [row.value for row in rows]


def test_logs_have_the_packets_of_every_second(experiment: Path, tmp_path: Path) -> None:
    write_measured(tmp_path / "x", 1, {"dut.platform": "bare-metal"}, packets=25_000, rate=10_000)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    [log] = throughput_of_artifacts(tmp_path / "tree/loadgen").values()
    [run] = finished_runs(tmp_path / "x")
    for direction, side in (("TX", "ingress"), ("RX", "egress")):
        packets = run.stored.rates(side)[1].tolist()
        one = log[direction]
        assert [round(mpps * 1e6) for mpps in one["mpps"]] == packets
        assert one["total"] == sum(packets)
        assert one["mean"][0] == pytest.approx(np.mean(packets) / 1e6, abs=1e-6)
        assert one["mbit"] == pytest.approx([n * 64 * 8 / 1e6 for n in packets], abs=0.01)
        assert one["framed"] == pytest.approx([n * 84 * 8 / 1e6 for n in packets], abs=0.01)


def test_a_second_without_packets_is_a_line(tmp_path: Path) -> None:
    made = made_traffic("wire", 1_000, 3_000, 1)
    for times in (made.sent, made.left):
        times[2_000:] += 2_000_000_000
    made_run(tmp_path / "x/runs/001-wire", 1, made, rate=1_000)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    [log] = throughput_of_artifacts(tmp_path / "tree/loadgen").values()
    assert 0.0 in log["TX"]["mpps"] and log["TX"]["total"] == 3_000


def test_a_published_page_finds_its_parts(experiment: Path, tree: Path) -> None:
    name, loop, own = page_of_artifacts(tree, "loadgen")
    assert name == "tailtap_260301_140100_000000" and own == {"roles": ["generator"]}
    assert loop["pkt_rate"] == [10_000, 50_000] and loop["dut.platform"] == ["wire", "bare-metal"]
    [variables] = tree.glob("config/*_variables.json")
    assert json.loads(variables.read_text())["loop"] == loop


def test_failed_repeats_keep_their_numbers(tmp_path: Path) -> None:
    for number, status in enumerate(("done", "failed", "done"), 1):
        write_measured(tmp_path / "x", number, {}, repeat=number, packets=300, status=status)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    assert list(loops_of_artifacts(tmp_path / "tree/dut")) == [0, 2]


def test_values_that_are_no_text_come_back_as_words(tmp_path: Path) -> None:
    variables: dict[str, Any] = {
        "dut.forwarder": {"suricata": {"rules": "many"}},
        "dut.cpus": [1, 2],
        "traffic.size": "64 B",
    }
    write_measured(tmp_path / "x", 1, variables, packets=300)
    export(tmp_path / "x", "pos", tmp_path / "tree")
    [loop] = loops_of_artifacts(tmp_path / "tree/dut").values()
    assert loop["dut.cpus"] == [1, 2] and loop["traffic.size"] == "64 B"
    import_tree(tmp_path / "tree", tmp_path / "r")
    [ours], [theirs] = finished_runs(tmp_path / "x"), read_runs(tmp_path / "r").runs
    assert ours.variables == theirs.variables


def test_hosts_are_those_of_the_testbed(tmp_path: Path) -> None:
    write_measured(tmp_path / "x", 1, {"dut.platform": "wire"}, packets=300)
    (tmp_path / "x/testbed.yaml").write_text(
        "hosts: {tester: {ssh: root@a}, dut7: {ssh: root@b}}\ncables: []\n"
        "roles: {generator: tester, timestamper: tester, dut: dut7}\n"
    )
    export(tmp_path / "x", "pos", tmp_path / "tree")
    assert sorted(path.name for path in (tmp_path / "tree").iterdir()) == [
        "config",
        "dut7",
        "tester",
    ]
    assert page_of_artifacts(tmp_path / "tree", "tester")[2] == {
        "roles": ["generator", "timestamper"]
    }
    assert len(plots_of_limbo(tmp_path / "tree/tester", "percentiles")) == 1
    assert throughput_of_artifacts(tmp_path / "tree/tester")


def test_a_bare_evaluation_is_a_tree_of_one_run(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "evaluation", made_traffic("wire", 10_000, 3_000, 1))
    export(tmp_path / "evaluation", "pos", tmp_path / "tree")
    assert list(loops_of_artifacts(tmp_path / "tree/timer").values()) == [{"repeat": 0}]
    assert not list((tmp_path / "tree").rglob("throughput*"))  # nobody says how large packets are
    import_tree(tmp_path / "tree", tmp_path / "r")
    [run] = read_runs(tmp_path / "r").runs
    assert run.experiment == "evaluation" and run.evaluation and run.evaluation.packets
