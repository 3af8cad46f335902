"""Why packets were late, on a machine of which every nanosecond has a known owner."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from stamps import write_sides

from tailtap.analysis.causes.explain import Explained, explain
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.runs.reader import finished_runs
from tests.simulation.device import CORE, NAMES, NEIGHBOUR, Device, Load, device, served_by
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.records import in_order, of_course, taken_before, write_trace
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Tally, Trial

Row = tuple[str, str]
SERVED_SO = {"serving", "gap"}
"""The server's own time, whatever it does: the trace does not look into it."""
NO_CAUSES = ("unexplained", "behind", "own-work", "gap", "mixed")
EDGES_NS = 2_000
"""So much may be another's: records within others, rounding, what usual packets saw."""
NEARLY, LITTLE = 0.1, 0.25
"""Shares: of what has about the largest part, and of what has little."""


def load_of(draw: Draw) -> Load:
    """Packets at some rate, which the device can serve."""
    number = draw.count("packets", 1_000, 4_000)
    gap = draw.magnitude("gap", 5_000, 1_000_000)
    jitter = draw.stream("jitter").integers(0, max(1, gap // 2), number)
    arrivals = START_NS + gap * np.arange(number) + jitter
    least = min(draw.magnitude("service", 500, 20_000), gap // 3)
    service = least + draw.stream("service").integers(0, max(1, least // 8), number)
    return Load(arrivals, service, gap)


def write_run(folder: Path, made: Device) -> None:
    """A run folder with stamps, their evaluation, and a whole trace."""
    write_sides(folder, made.load.arrivals, made.left)
    evaluate(folder / "ingress.stamps", folder / "egress.stamps").write(folder / "evaluation")
    run = {
        "schema": "tailtap.run/1", "number": 1, "slug": folder.name, "repeat": 1, "status": "done",
        "error": None, "name": "traced", "variables": {}, "warnings": [], "generator": None,
        "taps": None, "parameters": {"dut": {"platform": "bare-metal"}, "traffic": {}},
        "environment": {"boot_id": "b"}, "started": "2026-11-01T14:00:00+00:00", "finished": None,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    records = in_order(
        np.concatenate([of_course(made.core, CORE), of_course(made.neighbour, NEIGHBOUR)])
    )
    write_trace(
        folder,
        records,
        cpus=[NEIGHBOUR, CORE],
        started_ns=made.began,
        ended_ns=made.ended,
        names=NAMES,
        served=served_by(made.core.server),
    )


@dataclass(frozen=True)
class Truth:
    """Who had the core, by row of the table of causes."""

    made: Device

    @cached_property
    def rows(self) -> Mapping[Row, tuple[Integers, Integers]]:
        """When each row had it."""
        core = self.made.core
        row_of = [what.row for what in core.table]
        start, end = np.array(core.start), np.array(core.end)
        what = np.array(core.what)[core.job]
        found = {}
        for row in dict.fromkeys(row_of):
            mine = np.isin(what, [at for at, one in enumerate(row_of) if one == row])
            found[row] = start[mine], end[mine]
        return found

    def overlaps(self, since: Integers, until: Integers) -> dict[str, Integers]:
        """How much each cause had of these times."""
        found: dict[str, Integers] = {}
        for (cause, _), (start, end) in self.rows.items():
            ns = taken_before(start, end, until) - taken_before(start, end, since)
            found[cause] = found.get(cause, np.zeros_like(ns)) + ns
        return found

    def hidden(self, number: Integers) -> Integers:
        """What others may have of these packets by the trace: it does not tell when the hypervisor
        took a core, and of a gap nothing.
        """
        came, left = self.made.load.arrivals[number], self.made.left[number]
        true = self.overlaps(came, left)
        return sum((true[cause] for cause in ("steal", "gap") if cause in true), 0 * came)

    @cached_property
    def queued_since(self) -> Integers:
        """Since when the server had something to do without a break when each packet left."""
        came, left = self.made.load.arrivals, self.made.left
        first = np.append(True, came[1:] > np.maximum.accumulate(left)[:-1])
        since: Integers = came[np.maximum.accumulate(np.where(first, np.arange(came.size), 0))]
        return since


def run(draw: Draw, folder: Path) -> Tally:
    """Each part is the true one, and each named cause had the largest part."""
    load = load_of(draw)
    made = device(draw, load, START_NS - 1_000_000)
    folder = folder / "001-traced"
    folder.mkdir()
    write_run(folder, made)
    [one] = finished_runs(folder)
    found = explain(one, late="p98.5")
    return check(found, Truth(made))


def check(found: Explained, truth: Truth) -> Tally:
    """What is said of each late packet, held against who had the core."""
    late, made = found.joined.late, truth.made
    came, left = made.load.arrivals, made.left
    number = np.searchsorted(came, late.packets.ingress_ns)
    assert np.array_equal(left[number], late.packets.egress_ns)
    latency = left - came
    low, median, high = np.sort(latency)[
        np.ceil(np.array([0.25, 0.5, 0.75]) * left.size).astype(int) - 1
    ]
    assert np.array_equal(late.excess_ns, latency[number] - median)
    usual = np.flatnonzero((latency >= low) & (latency <= high))
    _check_parts(found, truth, number, usual)
    return _tally(found, truth, number)


def _parts(found: Explained, causes: Collection[str]) -> Integers:
    """What causes have of each late packet."""
    joined = found.joined
    rows = [row for row, name in enumerate(joined.laid.rows.names) if name.cause in causes]
    mine = np.isin(joined.part_row, rows)
    sums = np.zeros(joined.state.size, np.int64)
    np.add.at(sums, joined.of_packets()[mine], joined.part_ns[mine])
    return sums


def _check_parts(found: Explained, truth: Truth, number: Integers, usual: Integers) -> None:
    """Parts are what each cause had beyond the usual; all of them are the excess."""
    made, excess = truth.made, found.joined.late.excess_ns
    came, left = made.load.arrivals, made.left
    mean = {cause: int(ns.mean()) for cause, ns in truth.overlaps(came[usual], left[usual]).items()}
    true = truth.overlaps(came[number], left[number])
    more = {cause: np.maximum(0, ns - mean[cause]) for cause, ns in true.items()}
    surplus = np.maximum(0, sum(more.values()) - excess)  # which is cut off the smallest
    room = EDGES_NS + excess // 50 + truth.hidden(number)
    for cause in more.keys() - SERVED_SO:
        mine = _parts(found, {cause})
        assert (mine <= more[cause] + room).all(), f"{cause}: {mine}, {more[cause]}"
        assert (mine >= more[cause] - surplus - room).all(), f"{cause}: {mine}, {more[cause]}"
    whole = _parts(found, {name.cause for name in found.joined.laid.rows.names})
    assert (whole <= excess).all()
    usually = max(0, int((left - came)[usual].mean()) - found.joined.late.median_ns)
    assert (excess - whole <= EDGES_NS + usually).all(), f"{excess - whole}"


def _tally(found: Explained, truth: Truth, number: Integers) -> Tally:
    """How often the cause of a packet is the one that had most of the time of its queue."""
    had = truth.overlaps(truth.queued_since[number], truth.made.left[number])
    others = [cause for cause in had if cause != "serving"]
    shares = np.stack([had[cause] for cause in others]) / np.maximum(1, sum(had[c] for c in others))
    hidden = truth.hidden(number) / np.maximum(1, sum(had[c] for c in others))
    largest = little = named = 0
    for packet in range(number.size):
        cause = found.labels.blame(packet).cause
        if cause in NO_CAUSES:
            continue
        named += 1
        share = hidden[packet] + (shares[others.index(cause), packet] if cause in others else 0)
        largest += bool(share >= shares[:, packet].max() - NEARLY)
        little += bool(share < LITTLE)
    return {"has the largest part": (largest, named), "has little of it": (little, named)}


RATES = {"has the largest part": (0.97, 1.0), "has little of it": (0.0, 0.01)}
TRIAL = Trial("causes", run, rates=RATES)
