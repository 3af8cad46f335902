"""Network cards: which can stamp every packet in hardware, and which have virtual functions."""

from __future__ import annotations

from collections.abc import Iterator

from tailtap.base.bugs import foreseen
from tailtap.base.check import Check
from tailtap.base.errors import MachineError, TailtapError
from tailtap.host.facts.machine import physical_nics
from tailtap.host.net.nic import Timestamping, timestamping
from tailtap.host.net.virtual_functions import Ability
from tailtap.lab.instruments.taps.hardware import judge

AREA = "network cards"


def check_nics() -> Iterator[Check]:
    """The checks of each interface with a device behind it."""
    nics = physical_nics()
    if not nics:
        yield Check(AREA, "timestamping", "missing", "there is no physical network card")
    for nic in nics:
        try:
            yield check(timestamping(nic.name))
        except (TailtapError, ModuleNotFoundError) as error:  # a Python that lacks a part
            why = str(foreseen(error))
            yield Check(AREA, nic.name, "untested", "hardware timestamps unknown", why)
        yield from check_functions(Ability.of(nic.name))


def check_functions(able: Ability) -> Iterator[Check]:
    """The check of a card that can have virtual functions; nothing of others."""
    if able.total == 0:
        return
    name, found = f"{able.interface}: SR-IOV", f"{able.total} virtual functions for dut.over"
    try:
        able.require(1)
        able.require_driver()
    except MachineError as error:
        yield Check(AREA, name, "poor", found, str(error))
    else:
        yield Check(AREA, name, "ok", found)


def check(answer: Timestamping) -> Check:
    """The check of an interface from what it told about itself."""
    verdict = judge(answer)
    # A clock alone stamps nothing that is received.
    clock = "" if answer.clock is None or verdict.method else f", clock /dev/ptp{answer.clock}"
    kinds = ", ".join(answer.filters) or "none"
    if verdict.method is not None:
        found = f"{verdict.reason}; filters {kinds}"
        if verdict.is_known:
            return Check(AREA, answer.interface, "ok", found)
        link = f"in={answer.interface}"
        trial = f"tailtap tap {link} --clock hardware --write in.stamps --packets 10"
        remedy = f"`{trial}` tries it, with packets of `tailtap generate` that come in"
        return Check(AREA, answer.interface, "untested", found, remedy)
    remedy = (
        "software taps serve; for --clock hardware take a card with the filter `all`: "
        "Intel E810, I225 or X550, NVIDIA ConnectX"
    )
    return Check(AREA, answer.interface, "poor", f"{verdict.reason}{clock}", remedy)
