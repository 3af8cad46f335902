"""Cards with a clock each, in a machine that is emulated: what stamps leave open has the truth.

Its igb cards stamp what comes over the cable that all of them are on, by clocks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_cards import machine_with_cards
from guest_programs import script
from stamps import write_stamps

from tailtap.analysis.evaluation import Evaluation, evaluate
from tailtap.analysis.evaluation.clocks import of_cards
from tailtap.base.errors import InputError
from tailtap.records.datapath import Tap
from tailtap.records.record import parsed
from tailtap.remote.guest import GuestHost

SECONDS = 60.0
RECORDER = Path(__file__).parents[1] / "support/card_stamps.py"
ON_ONE_CABLE = (0, 0, 0, 0)
UP = "for n in 0 1 3; do ip link set dev eth$n promisc on up; done; sleep 3"
STEP_NS, RATE_PPB = 37_000_123_456, 20_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuestHost]:
    with machine_with_cards(tmp_path_factory.mktemp("guest"), ON_ONE_CABLE) as machine:
        machine.run(["sh", "-c", UP])
        yield machine


def recorded(guest: GuestHost, *words: int) -> dict[str, Any]:
    found: dict[str, Any] = script(guest, RECORDER.read_text(), *map(str, words), seconds=SECONDS)
    return found


def evaluated(found: dict[str, Any], folder: Path) -> Evaluation:
    ids, before, after, _ = np.array(found["rows"]).T
    files = folder / "ingress.stamps", folder / "egress.stamps"
    for file, times in zip(files, (before, after), strict=True):
        write_stamps(file, times, ids)
    return evaluate(*files, clocks=of_cards(*taps(found)), throughout=True)


def taps(found: dict[str, Any]) -> list[Tap]:
    return [parsed("a tap", one, Tap) for one in found["taps"]]


def test_two_clocks_that_drift_apart_are_one_within_what_is_said(
    guest: GuestHost, tmp_path: Path
) -> None:
    """Both stamps of a frame are taken within the call that sends it, however the clocks stand."""
    quickest: list[tuple[int, int]] = []
    apart: list[tuple[list[int], list[float]]] = []
    for change in ((0, 0), (STEP_NS, RATE_PPB), (-2 * STEP_NS, RATE_PPB)):
        folder = tmp_path / str(len(apart))
        folder.mkdir()
        found = recorded(guest, *change, 0)
        evaluation = evaluated(found, folder)
        off = evaluation.within_ns
        took = {str(number): ns for number, *_, ns in found["rows"]}
        worst = evaluation.worst()
        assert len(worst) == evaluation.counts.matched == len(took)
        assert all(-off <= one.latency <= took[one.key] + off for one in worst)
        clocks = evaluation.clocks
        assert clocks is not None
        assert clocks.by == "readings"
        # What is open is small against what the cards' clocks were made to differ by.
        assert off < 1_000_000
        assert clocks.drifts is not None
        quickest.append((worst[-1].latency, off))
        apart.append((clocks.ahead_ns[0], clocks.drifts))
    (first, _), (stepped, faster), _ = apart
    assert faster[0] <= RATE_PPB / 1e9 <= faster[1]
    assert stepped[0] - first[1] > STEP_NS
    # The emulated cable is as quick as before.
    for latency, off in quickest[1:]:
        assert abs(latency - quickest[0][0]) <= off + quickest[0][1] + 100_000


def test_a_clock_that_steps_meanwhile_is_not_used(guest: GuestHost) -> None:
    found = recorded(guest, 0, 0, 50_000_000)
    with pytest.raises(InputError, match="one of them stepped"):
        of_cards(*taps(found))


EXAMINED = """
import json, sys, time
from threading import Thread
sys.path.insert(0, sys.argv[1])
from card_stamps import ADJ_NANO, ADJ_SETOFFSET, Card, adjust
from tailtap.doctor.clocks import judged
from tailtap.lab.instruments.taps.clock_readings import read_clocks

numbers = {name: Card(name).clock for name in ("eth0", "eth3")}

def step():
    while True:
        adjust(numbers["eth0"], ADJ_SETOFFSET | ADJ_NANO, step_ns=50_000_000)
        time.sleep(0.5)

Thread(target=step, daemon=True).start()
found = {one.name: [one.state, one.found] for one in judged(read_clocks(3_000_000_000))}
print(json.dumps([numbers, found]))
"""


def test_doctor_finds_clocks_that_step_or_run_at_no_rate_of_a_clock(guest: GuestHost) -> None:
    """No rate fits the clock of the emulator's e1000e."""
    numbers, found = script(guest, EXAMINED, str(RECORDER.parent), seconds=SECONDS)
    state, words = found[f"/dev/ptp{numbers['eth0']} (eth0)"]
    assert state == "poor"
    assert "one of them stepped" in words
    state, words = found[f"/dev/ptp{numbers['eth3']} (eth3)"]
    assert state == "ok", words
    assert "by PTP_SYS_OFFSET_EXTENDED" in words
    assert found[f"/dev/ptp{numbers['eth3']} (eth3): while stamping"][0] == "untested"
    [(state, words)] = [told for name, told in found.items() if name.endswith("(eth1)")]
    assert state == "poor"
    assert "changed its rate" in words
