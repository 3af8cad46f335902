"""Network cards: which can stamp packets in hardware."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from tailtap.doctor.check import Check
from tailtap.experiment.environment import physical_nics
from tailtap.host.local import LocalHost

AREA = "network cards"
_FILTERS = re.compile(r"Hardware Receive Filter Modes:(.*)", re.DOTALL)


def check_nics() -> Iterator[Check]:
    """One check for each interface with a device behind it."""
    nics = physical_nics()
    if not nics:
        yield Check(AREA, "timestamping", "missing", "there is no physical network card")
        return
    if shutil.which("ethtool") is None:
        remedy = "install the Debian package ethtool, which asks the card"
        for nic in nics:
            yield Check(AREA, nic.name, "untested", "hardware timestamps unknown", remedy)
        return
    for nic in nics:
        yield judge(nic.name, LocalHost().run(["ethtool", "-T", nic.name], check=False).stdout)


def judge(name: str, told: str) -> Check:
    """The check of interface `name` from what ``ethtool -T`` told about it."""
    if "hardware-receive" not in told:
        remedy = "software taps serve; for hardware stamps take an Intel E810, X710 or I210"
        return Check(AREA, name, "poor", "no hardware receive timestamps", remedy)
    match = _FILTERS.search(told)
    modes = match[1].split() if match else []
    if "all" in modes:
        return Check(AREA, name, "ok", "stamps every received packet in hardware")
    remedy = "it stamps PTP packets only: a capture card or a card with filter mode `all` is needed"
    return Check(AREA, name, "poor", f"hardware stamps for {' '.join(modes) or 'nothing'}", remedy)
