"""The measurement finds exactly the faults that were injected."""

from __future__ import annotations

from pathlib import Path

import pytest
from labtools import Machine, record, stamps, was_made, write_experiment

from tailtap.analysis.evaluation import Evaluation

HELD = [97 + 491 * step for step in range(20)]
DROPPED = [5, 1234, 5000, 7777, 9998]
DUPLICATED = [6, 2345, 6001, 8888]
HOLD_NS = 50_000_000
LATE_NS = 1_000_000
"""How much later than the hold a held packet may be on an idle machine."""
ATTEMPTS = 5
"""A busy machine may keep any packet longer than the hold; it does not do so every time."""


@pytest.mark.apart
def test_known_delays_losses_and_duplicates_are_found(machine: Machine, tmp_path: Path) -> None:
    path = write_experiment(
        tmp_path,
        f"""\
name: faults
dut:
  forwarder: fault
  cpus: [1]
  options:
    hold: {{ids: {HELD}, time: {HOLD_NS} ns}}
    drop: {DROPPED}
    duplicate: {DUPLICATED}
traffic: {{rate: 10 kpkt/s, duration: 1 s, warm_up: 100 ms, cpu: 0}}
""",
    )
    for attempt in range(ATTEMPTS):
        out = tmp_path / f"out{attempt}"
        done = machine.tailtap("run", str(path), "--out", str(out))
        assert was_made(done), done.stderr
        [run] = (out / "runs").iterdir()
        # Which packets: no noise excuses a mistake in these.
        sent = stamps(run / "ingress.stamps")["id"]
        came = stamps(run / "egress.stamps")["id"]
        assert sorted(set(sent) - set(came)) == DROPPED
        evaluation = Evaluation.load(run / "evaluation")
        assert evaluation.counts.lost == len(DROPPED)
        assert evaluation.counts.duplicate_egress == len(DUPLICATED)
        assert evaluation.counts.matched == 10_000 - len(DROPPED)
        assert evaluation.counts.unmatched_egress == 0
        told = record(run)["forwarder"]
        assert (told["held"], told["dropped"], told["duplicated"], told["lost"]) == (
            len(HELD),
            len(DROPPED),
            len(DUPLICATED),
            0,
        )
        noise = worst_of_the_others(run)
        if noise < HOLD_NS:
            break
    assert noise < HOLD_NS, "this machine is too busy to tell held packets from others"
    worst = evaluation.worst(len(HELD))
    assert sorted(int(packet.key) for packet in worst) == HELD
    late = [packet.latency - HOLD_NS for packet in worst]
    assert min(late) >= 0
    # What keeps other packets waiting may also keep a held one, after its time; a clock or a
    # match that is wrong would shift all of them.
    assert max(late) <= LATE_NS + noise
    assert sorted(late)[len(late) // 4] <= LATE_NS


def worst_of_the_others(run: Path) -> int:
    """The largest latency in ns of a packet that was neither held nor dropped.

    Computed from the stamps alone, without tailtap's evaluation.
    """
    arrived: dict[int, int] = {}
    for row in stamps(run / "egress.stamps"):
        arrived.setdefault(int(row["id"]), int(row["time_ns"]))
    return max(
        arrived[number] - int(row["time_ns"])
        for row in stamps(run / "ingress.stamps")
        if (number := int(row["id"])) in arrived and number not in HELD
    )
