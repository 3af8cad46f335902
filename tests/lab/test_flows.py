"""Flows measured at the same time: one generator and one tap process, and a run for each flow."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from labtools import Machine, ids_of, measured, record, stamps, write_experiment
from namespaces import Namespace
from stamps import read_stamps

from tailtap.analysis.causes import explain_runs
from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.runs.reader import load_experiment

RATES = {"a": 2_000, "b": 1_000, "c": 500, "d": 250}
SECONDS = 0.6
EXPERIMENT = f"""\
name: flows
dut:
  forwarder: kernel-route
  nodes: {{r: {{count: 3}}}}
  links: [in - r1 - r2 - out, in - r3 - out]
  flows:
    a: {{path: [in, r1, r2, out], rate: {RATES["a"]} pkt/s}}
    b: {{path: [in, r3, out], rate: {RATES["b"]} pkt/s, size: 256 B}}
    c: {{path: [in, r1, r2, out], rate: {RATES["c"]} pkt/s, pattern: "burst:packets=3"}}
    d: {{path: [in, r3, out], rate: {RATES["d"]} pkt/s}}
traffic: {{duration: {SECONDS * 1000:g} ms, warm_up: 100 ms, cpu: 0, slip_limit: 10 s}}
"""


def called(machine: Machine, subcommand: str) -> list[int]:
    pids = [pid for name in machine.namespaces() for pid in machine.pids(name)]
    return [
        pid for pid in pids if subcommand in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    ]


def test_each_flow_is_a_run_with_counts_of_its_own(machine: Machine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = write_experiment(tmp_path, f"{EXPERIMENT}trace: thin\n")
    with machine.held(tmp_path, "run", str(path), "--out", str(out)) as held:
        assert [len(called(machine, what)) for what in ("generate", "tap")] == [1, 1]
        held.go_on()
        status, said = held.ended()
    assert status == 0, said
    assert machine.namespaces() == []
    runs = sorted((out / "runs").iterdir())
    assert [run.name for run in runs] == [
        "001-flows-a", "002-flows-b", "003-flows-c", "004-flows-d"
    ]  # fmt: skip
    shortest = 1_000_000_000 // RATES["a"]
    for place, (run, (flow, rate)) in enumerate(zip(runs, RATES.items(), strict=True)):
        packets = round(rate * SECONDS)
        told = record(run)
        assert (told["status"], told["variables"]) == ("done", {"flow": flow})
        assert told["generator"]["sent"] == packets
        assert told["generator"]["phase_ns"] == shortest * place // 4
        for side in ("ingress", "egress"):
            assert told["taps"][side]["seen"] == packets
            assert told["taps"][side]["file"] == f"{side}.stamps"
            assert sorted(ids_of(run, side)) == list(range(packets))
        counts = Evaluation.load(run / "evaluation").counts
        assert (counts.matched, counts.lost) == (packets, 0)
        # The cores have one trace, which is that of each.
        assert (run / "trace.events").samefile(runs[0] / "trace.events")
    ways = []
    for found in explain_runs([out], late="p90"):
        ways += [way.nodes for way in found.joined.segments]
        assert found.joined.state.size >= 14
    assert ways == [("r1", "r2"), ("r3",)] * 2


@pytest.mark.parametrize("back_end", ["af_packet", "af_xdp"])
def test_one_thread_sends_and_one_stamps_many_flows(
    namespace: Namespace, tmp_path: Path, back_end: str
) -> None:
    links, flows = [], []
    for number in range(4):
        namespace.veth(f"gen{number}", f"in{number}")
        (tmp_path / str(number)).mkdir()
        links += [f"{number}/in=in{number}:drop", "--records", f"{number}/in=4096"]
        rate, count = 1000 * (number + 1), 100 * (number + 1)
        flows += [*(["--next"] if number else []), f"gen{number}", "--generator", back_end]
        flows += ["--rate", f"{rate} pkt/s", "--count", str(count)]
    tap = namespace.start("tap", *links, "--write", str(tmp_path / "{link}.stamps"))
    told = json.loads(namespace.tailtap("generate", "--json", *flows).stdout)
    done = tap.stop()["links"]
    for number, report in enumerate(told["flows"]):
        packets = 100 * (number + 1)
        assert (report["interface"], report["sent"]) == (f"gen{number}", packets)
        assert report["phase_ns"] == 250_000 * number // 4
        assert done[f"{number}/in"]["seen"] == packets
        kept = read_stamps(tmp_path / f"{number}/in.stamps")[1]
        assert list(kept["id"]) == list(range(packets))
        # Nothing leaves before it is due.
        due = report["first_ns"] + kept["id"].astype("i8") * 1_000_000 // (number + 1)
        assert (kept["time"].astype("i8") >= due).all()


BOTH_PACKETS = 1_000
DROPPED, DUPLICATED = [7, 500, 999], [6, 800]
HELD = [100, 900]
HOLD_NS = 60_000_000


def both_ways(dut: str) -> str:
    return f"""\
name: both
dut: {dut}
traffic: {{rate: 2 kpkt/s, duration: 500 ms, warm_up: 100 ms, flows: 3, bidirectional: true}}
"""


def test_faults_of_one_direction_are_told_from_the_other(tmp_path: Path) -> None:
    """Some packets are dropped, held or sent twice on their way there, and none on the way back."""
    hold = f"hold: {{ids: {HELD}, time: {HOLD_NS} ns}}"
    faults = f"options: {{drop: {DROPPED}, duplicate: {DUPLICATED}, {hold}}}"
    made = measured(tmp_path, both_ways(f"{{forwarder: fault, {faults}}}"), "--json")
    there, back = made.said
    assert (there["number"], back["number"]) == (1, 2)
    assert back["slug"] == "002-both-reverse"
    assert (there["variables"], back["variables"]) == (
        {"direction": "forward"},
        {"direction": "reverse"},
    )
    lost = {}
    for run in (there, back):
        folder = Path(run["folder"])
        assert record(folder)["generator"]["sent"] == BOTH_PACKETS
        sent = stamps(folder / "ingress.stamps")["id"]
        assert sorted(sent) == list(range(BOTH_PACKETS))
        lost[run["slug"]] = sorted(set(sent) - set(stamps(folder / "egress.stamps")["id"]))
        counts = Evaluation.load(folder / "evaluation").counts
        assert counts.lost == len(lost[run["slug"]])
        assert counts.unmatched_egress == 0
        assert counts.duplicate_egress == len(DUPLICATED) * (run is there)
    assert lost == {there["slug"]: DROPPED, back["slug"]: []}
    told = record(Path(there["folder"]))["forwarder"]
    assert (told["dropped"], told["reverse"]["dropped"]) == (len(DROPPED), 0)
    assert (told["held"], told["duplicated"]) == (len(HELD), len(DUPLICATED))
    worst = {int(packet.key): packet.latency for packet in evaluation(there).worst()}
    assert all(worst[number] >= HOLD_NS for number in HELD)
    # A busy machine keeps any packet for long, but not exactly these and only there.
    slow = [int(packet.key) for packet in evaluation(back).worst() if packet.latency >= HOLD_NS]
    assert not set(HELD) <= set(slow)
    # Each direction is a run of its own for report and database.
    labels = [run.slug for run in load_experiment(made.out).finished]
    assert labels == [there["slug"], back["slug"]]
    with duckdb.connect(str(made.out / "results.duckdb"), read_only=True) as connection:
        rows = connection.execute("SELECT run, lost FROM evaluations ORDER BY run").fetchall()
    assert rows == [(1, len(DROPPED)), (2, 0)]


def evaluation(run: dict[str, str]) -> Evaluation:
    return Evaluation.load(Path(run["folder"]) / "evaluation")
