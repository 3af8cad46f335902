"""Why packets were late in a node of two workers: by what the core did that served each."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
from stamps import on_cpu
from traced import write_run

from tailtap.analysis.causes.explain import explain
from tailtap.analysis.runs.reader import finished_runs
from tests.simulation.device import NEIGHBOUR, SERVERS, SERVES, Device, Load, device, served_by
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.tracer import Told, traced
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Tally, Trial, added
from tests.simulation.trials.causes import (
    RATES,
    Usual,
    check_parts,
    check_stalls,
    late_and_usual,
    load_of,
    percentile,
    tally_of,
)
from tests.simulation.trials.lines import CORES, ONE_CORE, lost_of, on_both
from tests.simulation.truth import Truth


def _alike(seed: int) -> int:
    """The seed of another core that serves in the same way."""
    kinds = ((other, Draw(other).choice("forwarder", list(SERVERS)))
             for other in (seed + (at << 32) for at in count()))  # fmt: skip
    _, kind = next(kinds)
    return next(other for other, its in kinds if its == kind)


def workers(draw: Draw) -> tuple[list[Told], Integers]:
    """Two cores of one device, and which of them each packet goes to."""
    without = draw.without | ONE_CORE | {"generator is held"}
    draws = [Draw(seed, without, draw.scale) for seed in (draw.seed, _alike(draw.seed))]
    load, stream, parts = load_of(draws[0]), draw.stream("queues"), []
    goes = (stream.random(load.arrivals.size) < stream.uniform(0.2, 0.8)).astype(np.int64)
    for place, one in enumerate(draws):
        one.features = draw.features
        mine = goes == place
        its = Load(load.arrivals[mine], load.service[mine], 2 * load.gap_ns)
        parts.append(traced(one, device(one, its, START_NS - 1_000_000)))
    return parts, goes


def together(parts: list[Told], goes: Integers) -> Device:
    """What is stamped of both."""
    sent, left = np.zeros((2, goes.size), np.int64)
    for place, one in enumerate(parts):
        sent[goes == place], left[goes == place] = one.made.sent, one.made.left
    core = copy(parts[0].made.core)
    core.left = left.tolist()
    return replace(parts[0].made, sent=sent, held=np.zeros_like(sent), core=core)


def run(draw: Draw, folder: Path) -> Tally:
    """Each packet was late by what its own core did, and by nothing of the other one."""
    parts, goes = workers(draw)
    made = together(parts, goes)
    if percentile(made) == (made.left - made.sent).max():
        return {}
    served, lost = served_by(made.core.server), lost_of(parts)
    served |= {"cpus": [*CORES], "pids": [SERVES, SERVES + 1] if served["pids"] else []}
    write_run(
        folder / "001-workers", on_both(parts, made), served=served, lost=lost,
        cpus=[NEIGHBOUR, *CORES],
    )  # fmt: skip
    cores = np.array(CORES)[goes]
    on_cpu(folder / "001-workers/egress.stamps", cores[np.argsort(made.left, kind="stable")])
    [one] = finished_runs(folder / "001-workers")
    found = explain(one, late="p98.5")
    said = {one.code for one in found.warnings}
    assert said - {"trace-blind"} == ({"trace-lost"} if lost else set())
    number, usual = late_and_usual(found, made)
    assert np.array_equal(found.joined.cpu, cores[number])
    within = np.where(goes, np.cumsum(goes), np.cumsum(1 - goes)) - 1
    truths = [Truth(told) for told in parts]
    often = Usual.of(
        *((truth, within[usual[goes[usual] == place]]) for place, truth in enumerate(truths))
    )
    tallies = []
    for place, truth in enumerate(truths):
        check_stalls(found, truth, CORES[place])
        mine = np.flatnonzero(goes[number] == place)
        check_parts(found, truth, within[number[mine]], often, mine)
        tallies.append(tally_of(found, truth, within[number[mine]], often, mine))
    return added(tallies)


TRIAL = Trial("workers", run, every=5, rates=RATES)
