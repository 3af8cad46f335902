"""The clocks of a machine's cards, read while nobody uses them and while their cards stamp."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from tailtap.base.errors import TailtapError
from tailtap.base.files import read_text
from tailtap.host.facts.machine import physical_nics
from tailtap.host.knobs.tree import Tree
from tailtap.host.net.nic import timestamping
from tailtap.lab.instruments.taps.hardware import Watch, judge, stamp
from tailtap.lab.instruments.taps.links import TapLink
from tailtap.records.datapath import ByCard
from tailtap.records.record import Record, Texts

STAMPING_NS = 1_000_000_000
"""How long each card is made to stamp."""


class CardClock(Record, kw_only=True):
    """A clock as it was read."""

    device: str
    ports: Texts
    quiet: ByCard
    stamping: ByCard | None = None
    """Read while its card stamped, after that; None where nobody made it."""

    def __str__(self) -> str:
        """As people read it: ``/dev/ptp0 (eth0, eth1)``."""
        return f"{self.device} ({', '.join(self.ports)})"


def read_clocks(duration_ns: int, cards: Collection[str] | None = None) -> list[CardClock]:
    """The clocks of this machine's cards, or of some of them. Cards without the default route stamp
    for a second.
    """
    ports: dict[int, list[str]] = {}
    able: set[str] = set()
    for nic in physical_nics():
        if cards is not None and nic.name not in cards:
            continue
        try:
            answer = timestamping(nic.name)
        except (TailtapError, ModuleNotFoundError):  # `check_nics` says so
            continue
        if answer.clock is not None:
            ports.setdefault(answer.clock, []).append(nic.name)
            if judge(answer).method is not None and read_text(nic / "operstate") == "up":
                able.add(nic.name)
    watches = {number: Watch([number]) for number in ports}
    for watch in watches.values():
        watch.begin()
    time.sleep(duration_ns / 1e9)
    for watch in watches.values():
        watch.end()
    free = able - Tree().default_route() if os.geteuid() == 0 else set()
    return [
        CardClock(
            device=(device := f"/dev/ptp{number}"),
            ports=names,
            quiet=ByCard(clock_device=device, readings=watches[number].readings(number)),
            stamping=_stamping([name for name in names if name in free]),
        )
        for number, names in sorted(ports.items())
    ]


def _stamping(ports: Sequence[str]) -> ByCard | None:
    """The readings of the clock of ports that stamp; None where they cannot, or there are none."""
    if not ports:
        return None
    with tempfile.TemporaryDirectory(prefix="tt-") as folder:
        links = [(TapLink(port, port), Path(folder, f"{port}.stamps")) for port in ports]
        try:
            taps = stamp(
                links, "hardware", lambda: None, duration_ns=STAMPING_NS, count=None, cpu=None
            )
        except TailtapError:
            return None
    first = taps[ports[0]]
    return ByCard(clock_device=first.clock_device, readings=first.readings)
