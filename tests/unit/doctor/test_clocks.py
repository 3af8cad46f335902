"""What doctor says of the clocks of cards, by readings of clocks that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailtap.doctor.clocks import judged
from tailtap.lab.instruments.taps.clock_readings import CardClock
from tailtap.records.datapath import ByCard
from tests.simulation.clocks import SECOND, Clock, read_by
from tests.simulation.draw import Draw
from tests.simulation.traffic import START_NS

UNTIL = START_NS + 3 * SECOND
GOOD = Clock(10**15, 2e-5, resolution_ns=8)


def read(clock: Clock, first: int = START_NS, last: int = UNTIL) -> ByCard:
    return read_by(Draw(first), clock, Clock(), first, last)


def card(number: int, clock: Clock, stamping: Clock | None = None) -> CardClock:
    begun = UNTIL + SECOND
    return CardClock(
        device=f"/dev/ptp{number}",
        ports=[f"eth{number}"],
        quiet=read(clock),
        stamping=None if stamping is None else read(stamping, begun, begun + SECOND),
    )


def said(*cards: CardClock) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.found) for one in judged(cards)}


def test_clocks_that_run_are_well_known() -> None:
    found = said(card(0, GOOD, GOOD), card(1, replace(GOOD, drift=-3e-5), GOOD))
    state, words = found["/dev/ptp0 (eth0)"]
    assert state == "ok"
    assert "by PTP_SYS_OFFSET_EXTENDED, in steps of 8 ns; runs " in words
    assert words.endswith(" ppm faster than the kernel's")
    for number, ppm, way in ((0, 20, "faster"), (1, 30, "slower")):
        words = found[f"/dev/ptp{number} (eth{number})"][1]
        rate, _, unsure, _, said_way = words.partition("runs ")[2].split()[:5]
        assert abs(float(rate) - ppm) <= float(unsure) < 3
        assert said_way == way
    assert found["/dev/ptp0 (eth0): while stamping"][0] == "ok"
    state, words = found["/dev/ptp0 and /dev/ptp1"]
    assert state == "ok"
    assert words.startswith("latencies from one to the other may be off by ")


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        (replace(GOOD, step_ns=100_000, step_at_ns=START_NS + SECOND), "one of them stepped"),
        (replace(GOOD, bend=1e-3, step_at_ns=START_NS + SECOND), "one of them stepped"),
        (replace(GOOD, drift=3e-4), "as no quartz does"),
        (replace(GOOD, resolution_ns=100_000), "in steps of 100 us"),
    ],
)
def test_faults_are_found(clock: Clock, words: str) -> None:
    state, found = said(card(0, clock, clock))["/dev/ptp0 (eth0)"]
    assert state == "poor"
    assert words in found


def test_a_clock_that_jumps_as_its_card_begins_to_stamp_is_told() -> None:
    jumped = replace(GOOD, ahead_ns=GOOD.ahead_ns - 5_000_000)
    state, words = said(card(0, GOOD, jumped))["/dev/ptp0 (eth0): while stamping"]
    assert state == "poor"
    assert words.startswith("it jumps by ")
    assert 4.99 < float(words.split()[3]) < 5.01


def test_what_cannot_be_read_is_untested_and_no_clock_is_missing() -> None:
    unread = CardClock(device="/dev/ptp0", ports=["eth0"], quiet=ByCard())
    assert said(unread) == {"/dev/ptp0 (eth0)": ("untested", "it cannot be read")}
    assert said() == {"clocks": ("missing", "no card here has a clock (/dev/ptpN)")}
    assert said(card(0, GOOD))["/dev/ptp0 (eth0): while stamping"][0] == "untested"
