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
from tests.simulation.device import CORE, Device, Load, device
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.records import taken_before
from tests.simulation.tracer import Told, traced
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
    """A run folder with stamps and their evaluation."""
    write_sides(folder, made.load.arrivals, made.left)
    evaluate(folder / "ingress.stamps", folder / "egress.stamps").write(folder / "evaluation")
    run = {
        "schema": "tailtap.run/1", "number": 1, "slug": folder.name, "repeat": 1, "status": "done",
        "error": None, "name": "traced", "variables": {}, "warnings": [], "generator": None,
        "taps": None, "parameters": {"dut": {"platform": "bare-metal"}, "traffic": {}},
        "environment": {"boot_id": "b"}, "started": "2026-11-01T14:00:00+00:00", "finished": None,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))


@dataclass(frozen=True)
class Truth:
    """Who had the core, by row of the table of causes."""

    told: Told

    @property
    def made(self) -> Device:
        return self.told.made

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
        for (named, _), (start, end) in self.rows.items():
            unnamed = named == "tlb-flush" and self.told.missing  # what was called is not known
            cause = "function-call-ipi" if unnamed else named
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
    made = device(draw, load_of(draw), START_NS - 1_000_000)
    told = traced(draw, made)
    folder = folder / "001-traced"
    folder.mkdir()
    write_run(folder, made)
    told.write(folder)
    [one] = finished_runs(folder)
    found = explain(one, late="p98.5")
    truth = Truth(told)
    came, left = made.load.arrivals, made.left
    late = found.joined.late
    number = np.searchsorted(came, late.packets.ingress_ns)
    latency = left - came
    ranks = [-(-quarter * left.size // 4) - 1 for quarter in (1, 2, 3)]
    low, median, high = np.sort(latency)[ranks]
    assert np.array_equal(left[number], late.packets.egress_ns)
    assert np.array_equal(late.excess_ns, latency[number] - median)
    _check_warnings(found, told, number)
    _check_parts(found, truth, number, np.flatnonzero((latency >= low) & (latency <= high)))
    return _tally(found, truth, number)


def _check_warnings(found: Explained, told: Told, number: Integers) -> None:
    """What the trace lacks is said and counted, and nothing else is."""
    since, until = told.made.load.arrivals[number], told.made.left[number]
    outside = int(((since < told.began) | (until > told.ended)).sum())
    said = {one.code: one.message for one in found.warnings}
    assert len(said) == len(found.warnings)
    expected = {
        "trace-damaged": told.end is not None,
        "trace-thinned": told.paused_ns > 0,
        "trace-lost": told.known_lost > 0,
        "trace-not-covering": outside > 0,
    }
    assert said.keys() - {"trace-blind"} == {code for code, so in expected.items() if so}, said
    if told.known_lost:
        assert f" {told.known_lost:,} on CPU {CORE}:" in said["trace-lost"]
    if outside:
        assert said["trace-not-covering"].startswith(f"{outside:,} late packets")
    untold = told.within(since, until)
    causes = [found.labels.blame(packet).cause for packet in np.flatnonzero(untold).tolist()]
    assert set(causes) <= {"unexplained"}


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
    room += 20_000 if truth.told.floor_ns else 0  # sums of short ones are laid out evenly
    dark = truth.told.meets(came[number], left[number])
    whole_ns = sum(mean.values()) if not truth.told.whole else 0  # usual packets saw less
    if dark.all():
        return
    for cause in more.keys() - SERVED_SO:
        mine = _parts(found, {cause})
        most, least = more[cause] + whole_ns + room, more[cause] - surplus - whole_ns - room
        assert (mine <= most).all(), f"{cause}: {mine}, {most}"
        assert (mine >= least)[~dark].all(), f"{cause}: {mine}, {least}"
    whole = _parts(found, {name.cause for name in found.joined.laid.rows.names})
    assert (whole <= excess).all()
    usually = max(0, int((left - came)[usual].mean()) - found.joined.late.median_ns)
    untold = (excess - whole)[~dark]
    assert (untold <= EDGES_NS + usually).all(), untold


def _tally(found: Explained, truth: Truth, number: Integers) -> Tally:
    """How often the cause of a packet is the one that had most of the time of its queue."""
    had = truth.overlaps(truth.queued_since[number], truth.made.left[number])
    others = [cause for cause in had if cause != "serving"]
    shares = np.stack([had[cause] for cause in others]) / np.maximum(1, sum(had[c] for c in others))
    hidden = truth.hidden(number) / np.maximum(1, sum(had[c] for c in others))
    largest = little = named = clear = 0
    dark = truth.told.meets(truth.queued_since[number], truth.made.left[number])
    for packet in range(number.size):
        cause = found.labels.blame(packet).cause
        if cause in NO_CAUSES:
            continue
        named += 1
        share = hidden[packet] + (shares[others.index(cause), packet] if cause in others else 0)
        clear += not dark[packet]
        largest += bool(share >= shares[:, packet].max() - NEARLY and not dark[packet])
        little += bool(share < LITTLE)
    return {"has the largest part": (largest, clear), "has little of it": (little, named)}


RATES = {"has the largest part": (0.97, 1.0), "has little of it": (0.0, 0.01)}
TRIAL = Trial("causes", run, rates=RATES)
