"""The measurement finds exactly the faults that were injected."""

from __future__ import annotations

from pathlib import Path

from labtools import own_machine, record, stamps, write_experiment

from tailtap.evaluation import Evaluation

HELD = [97 + 491 * step for step in range(20)]
DROPPED = [5, 1234, 5000, 7777, 9998]
DUPLICATED = [6, 2345, 6001, 8888]
HOLD_NS = 20_000_000
LATE_NS = 1_000_000
"""How much later than the hold a held packet may be."""
ATTEMPTS = 3
"""A hypervisor may take the CPU away for a millisecond; it does not do so three times in a row."""


def test_known_delays_losses_and_duplicates_are_found(tmp_path: Path) -> None:
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
    lateness: list[int] = []
    with own_machine() as machine:
        for attempt in range(ATTEMPTS):
            out = tmp_path / f"out{attempt}"
            done = machine.tailtap("run", str(path), "--out", str(out))
            assert done.returncode == 0, done.stderr
            [run] = (out / "runs").iterdir()
            # Which packets: no noise excuses a mistake in these.
            sent = stamps(run / "ingress.stamps")["id"]
            came = stamps(run / "egress.stamps")["id"]
            assert sorted(set(sent) - set(came)) == DROPPED
            evaluation = Evaluation.load(run / "evaluation")
            assert evaluation.counts["lost"] == len(DROPPED)
            assert evaluation.counts["duplicate_egress"] == len(DUPLICATED)
            assert evaluation.counts["matched"] == 10_000 - len(DROPPED)
            assert evaluation.counts["unmatched_egress"] == 0
            told = record(run)["forwarder"]
            assert (told["held"], told["dropped"], told["duplicated"], told["lost"]) == (
                len(HELD),
                len(DROPPED),
                len(DUPLICATED),
                0,
            )
            worst = evaluation.worst(len(HELD))
            assert min(packet.latency for packet in worst) >= HOLD_NS
            assert sorted(int(packet.key) for packet in worst) == HELD
            lateness.append(max(packet.latency for packet in worst) - HOLD_NS)
            if lateness[-1] <= LATE_NS:
                break
    assert lateness[-1] <= LATE_NS, lateness
