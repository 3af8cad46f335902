"""Stamps by network cards: whether a card can take them, how, and taking them.

The clocks of cards are read meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from tailtap.base.errors import InputError, MachineError
from tailtap.host.net.card_clocks import CardClock, Reading
from tailtap.host.net.nic import Timestamping, timestamping
from tailtap.lab.instruments.taps.links import At, TapLink
from tailtap.records.datapath import CardReadings, TappedLink, of_core

PERIOD_SECONDS = 0.1
"""How often each clock is read."""
AT_ENDS = 20
"""How often in a row at both ends, which shows the steps in which it goes, too."""


class Watch:
    """A thread that reads the clocks /dev/ptpN from `begin` to `end`."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = numbers
        self._clocks: dict[int, CardClock] = {}
        self._read: dict[int, list[Reading]] = {number: [] for number in numbers}
        self._over = Event()
        self._thread = Thread(target=self._run, name="tt-clocks", daemon=True)

    def begin(self) -> None:
        """Read them: once their cards stamp, as some set their clocks at the start of that.

        Raises `MachineError` where one of several clocks cannot be read.
        """
        for number in self._numbers:
            try:
                self._clocks[number] = CardClock(number)
            except MachineError:
                if len(self._numbers) > 1:
                    raise
        self._look(AT_ENDS)
        self._thread.start()

    def end(self) -> None:
        """Read them a last time."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
            self._look(AT_ENDS)
        for clock in self._clocks.values():
            clock.close()

    def readings(self, number: int) -> CardReadings | None:
        """Those of a clock; None where it cannot be read."""
        clock = self._clocks.get(number)
        if clock is None:
            return None
        return CardReadings(by=clock.by, times_ns=[*self._read[number]])

    def _run(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            self._look()

    def _look(self, times: int = 1) -> None:
        for number, clock in [*self._clocks.items()] * times:
            with contextlib.suppress(MachineError):  # its card was unplugged
                if (reading := clock.read()) is not None:
                    self._read[number].append(reading)


STAMPERS = ("hardware", "software")
"""Whose clock can stamp instead of an eBPF program: the card's, or for comparison the kernel's
CLOCK_REALTIME when a packet socket receives.
"""
METHODS: Mapping[str, str] = {
    "metadata": "XDP metadata",
    "messages": "SO_TIMESTAMPING",
}
"""How the stamps of a card get to us."""


@dataclass(frozen=True)
class Verdict:
    """Whether a card can stamp every received packet: how, or else why not."""

    method: str | None
    """A key of `METHODS`, or None."""
    reason: str
    is_known: bool = True
    """Whether the card said so; else stamping tells, by `method`."""


def judge(answer: Timestamping) -> Verdict:
    """What an interface's answer means. A pure function.

    A card that can stamp all packets may still have none for a packet; those are counted when it
    happens.
    """
    lacking = [
        name
        for name in ("hardware-receive", "hardware-raw-clock")
        if name not in answer.capabilities
    ]
    kinds = [name for name in answer.filters if name != "none"]
    if "hardware-receive" in lacking:
        return Verdict(None, f"{_who(answer)} stamps in software only (no {lacking[0]})")
    if "all" not in kinds:
        told = ", ".join(kinds) or "no packets"
        return Verdict(None, f"{_who(answer)} has no receive filter `all`, it stamps {told} only")
    method = "metadata" if answer.metadata else "messages"
    if lacking:
        return Verdict(
            method,
            f"not known whether it stamps: {_who(answer)} has the receive filter `all`, and does "
            f"not say {lacking[0]}",
            is_known=False,
        )
    clock = "a clock without a device" if answer.clock is None else f"/dev/ptp{answer.clock}"
    return Verdict(
        method, f"stamps every received packet, by {METHODS[method]}; its clock is {clock}"
    )


def _who(answer: Timestamping) -> str:
    return "its driver" if answer.driver is None else f"its driver {answer.driver}"


def stamp(
    links: Sequence[tuple[TapLink, Path]],
    clock: str,
    on_ready: Callable[[], object],
    *,
    duration_ns: int | None,
    count: int | None,
    cpu: int | None,
) -> dict[str, TappedLink]:
    """Stamp what links receive, each into its file, until SIGINT or SIGTERM: by the card, or for
    comparison by the kernel. Meanwhile the clocks of cards are read against CLOCK_MONOTONIC, and by
    that against each other.

    Raises `InputError` for a link that forwards, is tapped on its way out or is in another network
    namespace, and `MachineError` with the reason for an interface that cannot stamp every packet,
    that stamped none, or where cards have several clocks of which one cannot be read.
    """
    from tailtap import _core

    chosen: list[tuple[TapLink, Path, str]] = []
    clocks: dict[str, int | None] = {}
    for link, path in links:
        if link.namespace is not None:
            raise InputError(
                f"link {link.name!r}: --clock {clock} stamps in the current network "
                f"namespace: leave {link.namespace}/ out, and start it by `ip netns exec`"
            )
        if link.at is not At.INGRESS or link.onward is not None:
            raise InputError(
                f"link {link.name!r}: --clock {clock} stamps what an interface receives "
                "and forwards nothing: leave @egress, @receipt and the interface to forward to "
                "out"
            )
        method = "messages"
        if clock == "hardware":
            answer = timestamping(link.interface)
            verdict = judge(answer)
            if verdict.method is None:
                raise MachineError(
                    f"interface {link.interface} cannot stamp every received packet in hardware: "
                    f"{verdict.reason}; `tailtap doctor` tells which interfaces can"
                )
            method, clocks[link.name] = verdict.method, answer.clock
        chosen.append((link, path, method))
    watch = Watch({number for number in clocks.values() if number is not None})

    def ready() -> None:
        watch.begin()
        on_ready()

    try:
        told = _core.stamp(chosen, clock, ready, duration_ns=duration_ns, count=count, cpu=cpu)
    finally:
        watch.end()
    done = of_core(told)
    for name, number in clocks.items():
        require_stamps(done[name])
        if number is not None:
            done[name].clock_device = f"/dev/ptp{number}"
            done[name].readings = watch.readings(number)
    for name, doubt in differing(clocks).items():
        done[name].warnings.append(doubt)
    return done


def require_stamps(told: TappedLink) -> None:
    """Raises `MachineError` when a card stamped none of the packets that came."""
    if told.unstamped and not told.stored:
        raise MachineError(
            f"interface {told.interface} stamps no packet in hardware: {told.unstamped} came, and "
            "none had a stamp"
        )


def differing(clocks: Mapping[str, int | None]) -> dict[str, str]:
    """Warnings for links of which nobody knows how their clock stands to that of the first one; N
    of ``/dev/ptpN`` by link.
    """
    first = next(iter(clocks), None)
    return {
        name: f"its clock is not known to be that of {first}: latencies between them mean "
        "something only if somebody keeps both together (phc2sys, ts2phc)"
        for name, number in clocks.items()
        if first is not None and name != first and None in (number, clocks[first])
    }
