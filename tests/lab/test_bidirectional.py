"""Traffic in both directions: each is measured and evaluated for itself."""

from __future__ import annotations

from pathlib import Path

import duckdb
from labtools import measured, record, stamps

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.runs.reader import load_experiment

PACKETS = 1_000
DROPPED = [7, 500, 999]
HELD = [100, 900]
HOLD_NS = 60_000_000


def experiment(dut: str) -> str:
    return f"""\
name: both
dut: {dut}
traffic: {{rate: 2 kpkt/s, duration: 500 ms, warm_up: 100 ms, flows: 3, bidirectional: true}}
"""


def test_faults_of_one_direction_are_told_from_the_other(tmp_path: Path) -> None:
    """The forwarder drops and holds packets on their way there, and nothing on the way back."""
    faults = f"options: {{drop: {DROPPED}, hold: {{ids: {HELD}, time: {HOLD_NS} ns}}}}"
    made = measured(tmp_path, experiment(f"{{forwarder: fault, {faults}}}"), "--json")
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
        assert record(folder)["generator"]["sent"] == PACKETS
        sent = stamps(folder / "ingress.stamps")["id"]
        assert sorted(sent) == list(range(PACKETS))
        lost[run["slug"]] = sorted(set(sent) - set(stamps(folder / "egress.stamps")["id"]))
        counts = Evaluation.load(folder / "evaluation").counts
        assert counts.lost == len(lost[run["slug"]])
        assert counts.unmatched_egress == 0
    assert lost == {there["slug"]: DROPPED, back["slug"]: []}
    assert record(Path(there["folder"]))["forwarder"]["dropped"] == len(DROPPED)
    assert record(Path(there["folder"]))["forwarder"]["reverse"]["dropped"] == 0
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


def test_packets_go_both_ways_through_the_kernel(tmp_path: Path) -> None:
    made = measured(tmp_path, experiment("{platform: bare-metal}"), "--json")
    for run in made.said:
        folder = Path(run["folder"])
        for side in ("ingress", "egress"):
            assert sorted(stamps(folder / f"{side}.stamps")["id"]) == list(range(PACKETS))
        assert not any(row["code"] == "work-elsewhere" for row in record(folder)["warnings"])
        # One thread sends both, so that generators do not share its CPU.
        assert not any(row["code"] == "shared-cpu" for row in record(folder)["warnings"])
        phase = record(folder)["generator"]["phase_ns"]
        assert phase == (250_000 if run["variables"]["direction"] == "reverse" else 0)
