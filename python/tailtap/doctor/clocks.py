"""How the clocks of network cards run: read for a while against the kernel's and each other.

Read once more while their cards stamp: some drivers set a clock when that begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from tailtap.analysis.clocks.host import HostClock, clock_of_card, step_of
from tailtap.analysis.evaluation.clocks import of_cards
from tailtap.base.errors import Check, InputError
from tailtap.base.units import format_time
from tailtap.lab.instruments.taps.clock_readings import CardClock, read_clocks

AREA = "clocks of cards"
MOST_OPEN_NS = 10_000
"""Clocks that are known to this serve for latencies of some microseconds."""
QUARTZ = 1e-4
"""How much faster than another one a quartz runs at most."""
CALLS = {
    "precise": "PTP_SYS_OFFSET_PRECISE",
    "extended": "PTP_SYS_OFFSET_EXTENDED",
    "plain": "PTP_SYS_OFFSET",
}
UNSET = "let the program that sets it settle (ptp4l, phc2sys), or stop it while packets are stamped"


def check_clocks(duration_ns: int) -> Iterator[Check]:
    """The checks of all clocks, which are read for so long."""
    yield from judged(read_clocks(duration_ns))


def judged(clocks: Sequence[CardClock]) -> Iterator[Check]:
    """What readings say of clocks, and of each two of them. A pure function."""
    if not clocks:
        remedy = "stamps of the kernel serve; hardware stamps need a card that has one (ethtool -T)"
        yield Check(AREA, "clocks", "missing", "no card here has a clock (/dev/ptpN)", remedy)
    known: list[CardClock] = []
    for one in clocks:
        if one.quiet.readings is None:
            yield Check(AREA, str(one), "untested", "it cannot be read", "run it with sudo")
            continue
        try:
            clock = clock_of_card(one.quiet)
        except InputError as error:
            yield Check(AREA, str(one), "poor", str(error), UNSET)
            continue
        known.append(one)
        yield _runs(one, clock)
        yield _begins(one, clock)
    for one, other in combinations(known, 2):
        yield _apart(one, other)


def _runs(one: CardClock, clock: HostClock) -> Check:
    readings = one.quiet.readings
    assert readings is not None
    open_ns = max(most - least for least, most in clock.ahead_ns)
    shown, at = clock.moments()
    rate = float((shown[-1] - shown[0]) / (at[-1] - at[0])) - 1
    unsure = sum(clock.off_ns(at[[0, -1]]).tolist()) / float(at[-1] - at[0])
    found = (
        f"known to {format_time(open_ns)} by {CALLS[readings.by]}, in steps of "
        f"{format_time(step_of(np.array(readings.times_ns, np.int64)[:, 1]))}; runs "
        f"{abs(rate) * 1e6:.2f} ± {unsure * 1e6:.2f} ppm "
        f"{'slower' if rate < 0 else 'faster'} than the kernel's"
    )
    if open_ns > MOST_OPEN_NS:
        remedy = "a run takes longer, so that more readings tell; keep other work off this machine"
        return Check(AREA, str(one), "poor", found, remedy)
    if abs(rate) - unsure > QUARTZ:
        return Check(AREA, str(one), "poor", f"{found}, as no quartz does", UNSET)
    return Check(AREA, str(one), "ok", found)


def _begins(one: CardClock, clock: HostClock) -> Check:
    name = f"{one}: while stamping"
    if one.stamping is None or one.stamping.readings is None:
        why = "run it as root, with its ports up, connected and without the default route"
        return Check(AREA, name, "untested", "no port of it was made to stamp every packet", why)
    try:
        after = clock_of_card(one.stamping)
    except InputError as error:
        return Check(AREA, name, "poor", str(error), UNSET)
    at = np.array(after.at_ns[:1], np.int64)
    low, high = after.ahead_ns[0]
    shown, off = clock.moments()[0][-1], clock.off_ns(at)
    last = clock.moments()[1][-1]
    rate = sum(clock.drifts) / 2
    ahead = int(shown - last + round(rate * int(at[0] - last)))
    jump, open_ns = (low + high) // 2 - ahead, (high - low) // 2 + int(off[0])
    if abs(jump) > open_ns:
        remedy = "a run reads it from then on; begin no other tap at its ports while one is made"
        found = f"it jumps by {format_time(abs(jump))} when its card begins to stamp"
        return Check(AREA, name, "poor", found, remedy)
    found = f"no jump of more than {format_time(open_ns)} when its card begins to stamp"
    return Check(AREA, name, "ok", found)


def _apart(one: CardClock, other: CardClock) -> Check:
    name = f"{one.device} and {other.device}"
    try:
        clocks = of_cards(one.quiet, other.quiet)
    except InputError as error:
        return Check(AREA, name, "poor", str(error), "read them for longer")
    found = f"latencies from one to the other may be off by {format_time(clocks.within_ns)}"
    if clocks.within_ns > MOST_OPEN_NS:
        return Check(AREA, name, "poor", found, "take two ports that have one clock")
    return Check(AREA, name, "ok", found)
