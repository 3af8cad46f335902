"""Why packets were late on a line of two nodes: by what its own core did, where each waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from stamps import on_cpu
from traced import write_line

from tailtap.analysis.causes.explain import Explained, explain
from tailtap.analysis.causes.record import record, tables, worst_stalls
from tailtap.analysis.runs.reader import finished_runs
from tests.simulation.device import CORE, NEIGHBOUR, SERVES, Device, device, served_by
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.records import ends
from tests.simulation.tracer import Told, traced
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Tally, Trial, added
from tests.simulation.trials.causes import (
    EDGES_NS,
    RATES,
    SERVED_SO,
    Usual,
    beyond_usual,
    check_stalls,
    late_and_usual,
    load_of,
    parts_of,
    percentile,
    served,
    tally_of,
)
from tests.simulation.truth import Truth

CORES = CORE, 2
ONE_CORE = frozenset(
    {"held elsewhere", "short ones added up", "older kernel", "names alike", "trace begins late",
     "trace ends early", "tracer pauses", "trace is cut"}
)  # fmt: skip
"""What is tried on one core alone."""


def nodes(draw: Draw) -> list[Told]:
    """Two devices with a core each; the second serves what the first lets go."""
    without, began = draw.without | ONE_CORE, START_NS - 1_000_000
    first = Draw(draw.seed, without, draw.scale)
    second = Draw(draw.seed + (1 << 32), without | {"generator is held"}, draw.scale)
    first.features = second.features = draw.features
    load = load_of(first)
    before = device(first, load, began)
    behind = device(second, served(second, before.left, load.gap_ns), began)
    return [traced(first, before), traced(second, behind)]


def on_both(parts: Sequence[Told], made: Device) -> Told:
    """What a tracer of both cores tells; what is stamped is `made`."""
    one, other = parts
    records = other.records[other.records["cpu"] == CORE]
    records["cpu"] = CORES[1]
    records["id"][records["id"] == SERVES] += 1
    both = np.concatenate([one.records, records])
    both = both[np.argsort(ends(both), kind="stable")]
    return replace(one, made=made, records=both, ended=max(one.ended, other.ended))


def lost_of(parts: Sequence[Told]) -> dict[str, int]:
    """Lost records by core, as `trace.json` says them."""
    return {str(cpu): one.lost for cpu, one in zip(CORES, parts, strict=True) if one.lost}


def _check_parts(
    found: Explained,
    truths: Sequence[Truth],
    number: Integers,
    often: Sequence[Usual],
    excess: Integers,
) -> None:
    """The parts of each cause are those of both nodes: of each, no more than it took beyond its
    usual. Where records were lost, nobody knows how much less.
    """
    most: dict[str, Integers] = defaultdict(lambda: np.zeros_like(number))
    least, dark = most.copy(), np.zeros(number.size, bool)
    for truth, usual, more_ns in zip(truths, often, excess.T, strict=True):
        more, surplus, room = beyond_usual(truth, number, usual, more_ns)
        unsure = truth.meets(truth.made.sent[number], truth.made.left[number], more_ns)
        dark |= unsure
        lost = unsure * more.get("throttled", 0)  # whose record may be lost
        for cause, ns in more.items():
            most[cause] += np.minimum(ns + usual.unseen + lost, more_ns) + room
            least[cause] += ns - surplus - usual.unseen - room
    names = {name.cause for name in found.joined.laid.rows.names}
    assert (parts_of(found, names - most.keys()) <= EDGES_NS)[~dark].all()
    for cause in most.keys() - SERVED_SO:
        mine = parts_of(found, {cause})
        assert (mine <= most[cause]).all(), f"{cause}: {mine}, {most[cause]}"
        assert (mine >= least[cause])[~dark].all(), f"{cause}: {mine}, {least[cause]}"
    assert (parts_of(found, names) <= excess.sum(axis=1)).all()


def _check_record(found: Explained) -> None:
    """What is stored and shown says where packets were late."""
    late = np.bincount(found.joined.segment, minlength=len(CORES)).tolist()
    rows = [(row.nodes, row.cpus, row.packets) for row in record(found).segments]
    assert rows == [([f"node{cpu}"], [cpu], many) for cpu, many in zip(CORES, late, strict=True)]
    stored = tables(found)["causes-late"]["segment"].to_numpy()
    assert np.array_equal(stored, found.joined.segment + 1)
    worst = found.joined.late.excess_ns.argmax()
    place = CORES[found.joined.segment[worst]]
    assert f" late in node{place} (CPU {place})" in worst_stalls(found, 1)[0].words


def run(draw: Draw, folder: Path) -> Tally:
    """Each packet was late in the node that took most more than usual, by the causes there."""
    parts = nodes(draw)
    told = on_both(parts, replace(parts[1].made, sent=parts[0].made.sent))
    latency = told.made.left - told.made.sent
    if percentile(told.made) == latency.max():
        return {}
    servers = [
        {"node": f"node{cpu}", **served_by(one.made.core.server), "cpus": [cpu]}
        for cpu, one in zip(CORES, parts, strict=True)
    ]
    servers[1]["pids"] = [SERVES + 1] * bool(servers[1]["pids"])
    cpus = [*CORES] if told.senders else [NEIGHBOUR, *CORES]
    lost = lost_of(parts)
    write_line(folder / "001-line", told, parts[0].made.left, servers, cpus=cpus, lost=lost)
    for name, cpu in zip(("between", "egress"), CORES, strict=True):
        on_cpu(folder / f"001-line/{name}.stamps", cpu)
    [one] = finished_runs(folder / "001-line")
    found = explain(one, late="p98.5")
    number, usual = late_and_usual(found, told.made)
    hops = np.column_stack([one.made.left - one.made.sent for one in parts])
    excess = (hops - np.median(hops[usual], axis=0).astype(np.int64))[number]
    assert np.array_equal(found.joined.segment, excess.argmax(axis=1))
    assert np.array_equal(found.joined.excess_ns, excess.max(axis=1))
    said = {one.code for one in found.warnings}
    assert said - {"trace-blind"} == ({"trace-lost"} if lost else set())
    _check_record(found)
    truths = [Truth(one) for one in parts]
    often = [Usual.of((truth, usual)) for truth in truths]
    _check_parts(found, truths, number, often, np.maximum(0, excess))
    tallies = []
    for place, truth in enumerate(truths):
        check_stalls(found, truth, CORES[place])
        mine = np.flatnonzero(found.joined.segment == place)
        tallies.append(tally_of(found, truth, number[mine], often[place], mine))
    return added(tallies)


TRIAL = Trial("lines", run, every=2, rates=RATES)
