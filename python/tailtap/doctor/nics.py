"""Network cards: which can stamp every packet in hardware, how, and by which clock."""

from __future__ import annotations

from collections.abc import Iterator

from tailtap.check import Check
from tailtap.errors import TailtapError
from tailtap.instruments.taps.hardware import judge
from tailtap.machine.facts import physical_nics
from tailtap.machine.nic import Timestamping, timestamping

AREA = "network cards"


def check_nics() -> Iterator[Check]:
    """One check for each interface with a device behind it."""
    nics = physical_nics()
    if not nics:
        yield Check(AREA, "timestamping", "missing", "there is no physical network card")
    for nic in nics:
        try:
            yield check(timestamping(nic.name))
        except TailtapError as error:
            yield Check(AREA, nic.name, "untested", "hardware timestamps unknown", str(error))


def check(answer: Timestamping) -> Check:
    """The check of an interface from what it told about itself."""
    verdict = judge(answer)
    # A clock alone stamps nothing that is received.
    clock = "" if answer.clock is None or verdict.method else f", clock /dev/ptp{answer.clock}"
    kinds = ", ".join(answer.filters) or "none"
    if verdict.method is not None:
        found = f"{verdict.reason}; filters {kinds}"
        return Check(AREA, answer.interface, "ok", found)
    remedy = (
        "software taps serve; for --clock hardware take a card with the filter `all`: Intel E810, "
        "I225 or X550, NVIDIA ConnectX"
    )
    return Check(AREA, answer.interface, "poor", f"{verdict.reason}{clock}", remedy)
