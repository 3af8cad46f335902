"""What calibrating says of counts and times that are known."""

from __future__ import annotations

import pytest

from tailtap.base.errors import Check
from tailtap.doctor.calibration import Apart, Step, of_generator, of_length, of_tap
from tailtap.measure.testbed.model import Socket
from tailtap.records.datapath import GeneratorRecord, Slip
from tailtap.records.record import Sequenced

CARD = Socket("tester", "c0")


def step(rate: int, seen: int, late_ns: int = 1000, reached: float = 1, **more: int) -> Step:
    slip = Slip(percentiles=[Sequenced(p=0.99, value=late_ns)])
    sent = GeneratorRecord(
        sent=rate, failed=0, scheduled_rate=rate, achieved_rate=rate * reached, slip_ns=slip
    )
    return Step(64, rate, sent, seen, **more)


@pytest.mark.parametrize(
    ("last", "state", "words"),
    [
        (step(100, 100), "ok", ["none of 110 packets lost, up to 100 pkt/s"]),
        (step(100, 70), "poor", ["lost 30 of 100", "30 before its card", "at most 10 pkt/s"]),
        (step(100, 70, dropped=25), "poor", ["25 by its card or kernel and 5 before its card"]),
        (step(100, 100, unstored=7), "poor", ["lost 7 of 100", ": 7 by its ring", "a free core"]),
        (step(100, 103), "poor", ["3 packets more than the 100 sent", "who else sends"]),
    ],
)
def test_where_a_tap_loses(last: Step, state: str, words: list[str]) -> None:
    found = of_tap(CARD, [step(10, 10), last])
    assert found.state == state
    assert all(word in found.found + found.remedy for word in words), found


def judged(*steps: Step) -> Check:
    [found] = of_generator(CARD, steps)
    return found


def test_how_fast_and_how_late_a_generator_is() -> None:
    kept = judged(step(10_000, 0), step(20_000, 0, 99_000))
    assert kept.state == "ok"
    assert kept.found == "reaches 20 kpkt/s; at 20 kpkt/s 99 % leave within 99 us of their time"
    slow = judged(step(10_000, 0), step(20_000, 0, 10**8, 0.8))
    assert slow.state == "poor"
    assert slow.found.startswith("sends at most 16 kpkt/s of 20 kpkt/s; at 10 kpkt/s 99 % leave")
    assert slow.remedy.startswith("send at most 10 kpkt/s")
    late = judged(step(10_000, 0, 101_000))
    assert late.state == "poor"
    assert "at 10 kpkt/s 1 % leave later than 101 us" in late.found


@pytest.mark.parametrize(
    ("metres", "median", "within", "state"),
    [
        (None, 10, 0, "untested"),
        (2, 10, 0, "ok"),
        (2, 111, 0, "poor"),
        (2, 111, 50, "ok"),
        (100, 331, 0, "ok"),
        (100, 329, 0, "poor"),
    ],
)
def test_stamps_are_compared_with_a_length(
    metres: float | None, median: int, within: int, state: str
) -> None:
    """5 ns a metre at most, 4.3 at least, and 100 ns beside what clocks leave open."""
    apart = Apart(1000, median, 12, within, "hardware")
    assert of_length("a to b", metres, apart).state == state
