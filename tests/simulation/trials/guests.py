"""Why packets were late in a guest: the parts are true, and each is its kernel's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from guests import CLOCK, HOST_HOG, IN_NS, OUT_NS, write_guest_run

from tailtap.analysis.causes.explain import explain
from tailtap.analysis.causes.record import record
from tailtap.analysis.runs.reader import finished_runs
from tests.simulation.device import CORE, OTHERS, device
from tests.simulation.draw import Draw
from tests.simulation.records import of_course
from tests.simulation.tracer import Told
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Tally, Trial
from tests.simulation.trials.causes import (
    EDGES_NS,
    RATES,
    checked,
    load_of,
    parts_of,
    percentile,
    tally_of,
)
from tests.simulation.truth import Truth

WANTED = {**OTHERS, "steal": (HOST_HOG, 0.7)}
"""What the core may have to do; what the host takes of it is the work of another task there."""


def run(draw: Draw, folder: Path) -> Tally:
    """What the guest's clock leaves open is not blamed on the guest."""
    made = device(draw, load_of(draw), START_NS - 1_000_000, WANTED)
    if percentile(made) == (made.left - made.sent).max():
        return {}
    told = Told(made, of_course(made.core, CORE), made.began, made.ended)
    [one] = finished_runs(write_guest_run(folder / "001-guest", told))
    found = explain(one, late="p98.5")
    guest = record(found).guest
    assert guest is not None
    clock = guest.clock
    ahead = int(CLOCK.ahead(np.array([clock.at_ns]))[0])
    assert clock.offset_ns[0] <= ahead <= clock.offset_ns[1]
    assert clock.drifts[0] <= CLOCK.drift <= clock.drifts[1]
    assert clock.packets.there == clock.packets.back == made.sent.size
    assert clock.width_ns >= IN_NS + OUT_NS
    truth = Truth(told, clock.width_ns)
    number, usual = checked(found, truth)
    of_host = truth.overlaps_of(HOST_HOG.row, made.sent[number], made.left[number])
    assert (parts_of(found, {"task"}, "host: ") <= of_host + EDGES_NS).all()
    excess = found.joined.late.excess_ns
    unclear = excess < 4 * clock.width_ns
    assert unclear.sum() <= found.joined.coarse <= (excess < 6 * clock.width_ns).sum()
    causes = {name.cause for name in found.joined.laid.rows.names}
    assert not parts_of(found, causes, "guest: ")[unclear].any()
    return tally_of(found, truth, number, usual)


TRIAL = Trial("guests", run, every=5, rates=RATES)
