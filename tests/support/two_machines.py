"""Runs whose packets another machine stamped than the DuT's, the clocks being made up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from made_records import keeping
from stamps import read_stamps, write_stamps
from traced import SECOND, START

from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.evaluation.clocks import clocks_of
from tailtap.records.datapath import CardReadings, Tap
from tailtap.records.record import as_json, opened
from tests.simulation.records import LAYOUT

MAGIC = 8


@dataclass(frozen=True)
class Apart:
    """The DuT's clock, and what is known of it by that of the stamps."""

    ahead_ns: int = 0
    drift: float = 0.0
    width_ns: int = 10_000
    """How wide the interval is."""
    off: float = 0.0
    """Where in its interval the truth is: from -1, at the least, to 1, at the most."""

    def shows(self, stamps: int) -> int:
        return stamps + self.ahead_ns + round(self.drift * (stamps - START))

    def told(self, first: int, last: int) -> dict[str, Any]:
        half = self.width_ns // 2
        middle = [self.shows(at) - at - round(self.off * half) for at in (first, last)]
        drift = self.width_ns / (last - first)
        return {
            "timekeeping": as_json(keeping()), "at_ns": [first, last],
            "ahead_ns": [[one - half, one + half] for one in middle],
            "drifts": [self.drift - drift, self.drift + drift],
            "widest_ns": self.width_ns, "exchanges": 80, "bend_ns": 0,
        }  # fmt: skip


def move_apart(
    run: Path, clock: Apart, *, stepped: bool = False, same_kernel: bool = False
) -> None:
    """Have the trace of a run, and what says so in its record, on the clock of another machine.

    Of clocks that `stepped` nothing is told; hosts of the `same_kernel` have one clock.
    """
    path = run / "trace.events"
    records = np.frombuffer(path.read_bytes()[MAGIC:], LAYOUT).copy()
    ends = [clock.shows(end) for end in (records["start"] + records["dur"]).tolist()]
    starts = [clock.shows(start) for start in records["start"].tolist()]
    records["start"] = starts
    records["dur"] = np.array(ends, np.int64) - np.array(starts, np.int64)
    path.write_bytes(path.read_bytes()[:MAGIC] + records.tobytes())
    trace = json.loads((run / "trace.json").read_text())
    first, last = trace["started_ns"], trace["ended_ns"]
    trace |= {"started_ns": clock.shows(first), "ended_ns": clock.shows(last)}
    (run / "trace.json").write_text(json.dumps(trace))
    say_apart(run, clock, first, last, stepped=stepped, same_kernel=same_kernel)


def say_apart(
    run: Path,
    clock: Apart,
    first: int,
    last: int,
    *,
    stepped: bool = False,
    same_kernel: bool = False,
) -> None:
    """Have the record of a run say that another machine stamped its packets."""
    record = json.loads((run / "run.json").read_text())
    dut = {"timekeeping": as_json(keeping())} if stepped else clock.told(first, last)
    record["clocks"] = {
        "against": "timestamper",
        "timestamper": {"timekeeping": as_json(keeping())},
        "dut": dut,
    }
    environment = {"environment": {"boot_id": "of the stamps"}, "tuning": None}
    record["stations"] = {} if same_kernel else {"timestamper": environment}
    (run / "run.json").write_text(json.dumps(record))


CARDS = (Apart(1_790_000_000_000_000_000, 2e-5), Apart(37_000_000_000, -3e-5))


def stamp_by_cards(run: Path, clocks: int) -> None:
    """Have cards of so many clocks stamp the packets of a run."""
    record = json.loads((run / "run.json").read_text())
    taps = {}
    for place, side in enumerate(("ingress", "egress")):
        number = min(place, clocks - 1)
        card, path = CARDS[number], run / f"{side}.stamps"
        _, stamps = read_stamps(path)
        times = stamps["time"].tolist()
        write_stamps(path, np.array([card.shows(at) for at in times], np.uint64), stamps["id"])
        read = range(times[0] - SECOND, times[-1] + SECOND, SECOND // 10)
        rows = [(at - 200, card.shows(at), at + 300) for at in read]
        readings = CardReadings(by="extended", times_ns=rows)
        tap = Tap(clock="hardware", clock_device=f"/dev/ptp{number}", readings=readings)
        taps[side] = opened(side, as_json(tap), Tap)
    record["taps"] = {side: tap.whole for side, tap in taps.items()}
    (run / "run.json").write_text(json.dumps(record))
    files = run / "ingress.stamps", run / "egress.stamps"
    evaluate(*files, clocks=clocks_of(taps)).write(run / "evaluation")
