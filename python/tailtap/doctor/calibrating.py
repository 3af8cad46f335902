"""`tailtap calibrate`: what only the owner of a testbed can try, tried on its own cables.

Cards are lent to network namespaces meanwhile, and given back. Every load is bounded in time.
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tailtap.analysis.evaluation.clocks import of_cards
from tailtap.analysis.evaluation.evaluate import evaluate
from tailtap.base.errors import Check, InputError, MachineError, State, TailtapError
from tailtap.base.units import FRAMING, format_rate
from tailtap.doctor.calibration import (
    GENERATORS,
    LENGTH,
    TAPS,
    Apart,
    Step,
    of_cable,
    of_generator,
    of_length,
    of_tap,
)
from tailtap.doctor.clocks import judged as judged_clocks
from tailtap.measure.boots import Wanted as Boot
from tailtap.measure.testbed.boot.booting import booting_of
from tailtap.measure.testbed.check import Heard, listened
from tailtap.measure.testbed.lent import LentHost, lend
from tailtap.measure.testbed.model import Cable, RoleMap, Socket, Testbed, senders_of
from tailtap.measure.testbed.power import power_of
from tailtap.records.datapath import Counts, GeneratorRecord, TappedLink
from tailtap.records.record import parsed

HERE = "here"
"""The host of two cards of one machine."""
SIZES = (64, 512, 1518)
FIRST_RATE = 10_000
LINE_BITS = 10_000_000_000
"""Of a card that does not say what it is joined at."""
OVERTIME_SECONDS = 1.0
"""How much longer than it should a generator may send."""
FEW = 1000
"""Packets that times are taken of."""
CARDS, DRIVERS, HOSTS = "cards", "drivers and functions", "hosts"


@dataclass(frozen=True)
class Wanted:
    """How a testbed is calibrated."""

    seconds: float
    """How long each load takes."""
    rate: int | None = None
    """The highest rate that is tried; None for that of the line."""
    metres: float | None = None
    """The length of the way between two places of stamps."""
    generator: str = "af_packet"
    cpu: int | None = None
    clocks_ns: int = 3_000_000_000
    boot: bool = False
    """Whether hosts are booted first."""


def two_cards(one: str, other: str) -> Testbed:
    """A testbed of this machine, with a cable between two of its cards. Raises `InputError`."""
    document = {
        "hosts": {HERE: {}},
        "cables": [{"ends": [f"{HERE}:{one}", f"{HERE}:{other}"]}],
        "roles": dict.fromkeys(("dut", "generator", "timestamper"), HERE),
    }
    try:
        return Testbed.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{one!r}, {other!r}: name two network cards of this machine") from error


def calibrate(testbed: Testbed, wanted: Wanted, tell: Callable[[str], None]) -> list[Check]:
    """Every check of a testbed. `tell` is given what is at work. Leaves nothing behind."""
    booted = list(_of_boots(testbed, tell)) if wanted.boot else []
    with contextlib.ExitStack() as stack:
        tell("reading clocks, lending cards")
        lent = dict(lend(testbed, stack, tell, wanted.clocks_ns))
        there = {name: one for name, one in lent.items() if isinstance(one, LentHost)}
        checks = [*_of_hosts(testbed, lent, booted=wanted.boot), *booted]
        rows, came = listened(testbed, there)
        checks += map(of_cable, rows)
        loads: dict[Socket, list[Step]] = {}
        for cable, sender, row in zip(testbed.cables, senders_of(testbed), rows, strict=True):
            ends = _ends(cable, sender, testbed.roles)
            if row.answer == "ok":
                checks += Bench(there, *ends, wanted, tell).checks(came, loads)
            else:
                why = "its cable is not as the testbed file says"
                checks.append(Check(TAPS, f"{ends[1]}: loss", "untested", why))
        for name, one in there.items():
            for clock in judged_clocks(one.lent.clocks):
                checks.append(replace(clock, name=f"{name}: {clock.name}"))
        checks += [check for name, one in there.items() for check in _of_cards(name, one, tell)]
    areas = list(dict.fromkeys(check.area for check in checks))
    return sorted(checks, key=lambda check: areas.index(check.area))


def _ends(cable: Cable, sender: Socket | None, roles: RoleMap) -> tuple[Socket, Socket]:
    """The end that sends, and where its packets are stamped: behind the splitter, or at the other
    end, which is the timestamper's if one of them is.
    """
    one, other = cable.ends
    if cable.splitter is not None:
        return sender or one, cable.splitter
    return (other, one) if other.host != roles.timestamper == one.host else (one, other)


@dataclass(frozen=True)
class Bench:
    """A cable, by which one card sends what is stamped at another."""

    there: Mapping[str, LentHost]
    sender: Socket
    tap: Socket
    wanted: Wanted
    tell: Callable[[str], None]

    def checks(self, came: Heard, loads: dict[Socket, list[Step]]) -> Iterator[Check]:
        """Those of its tap, its generator and its length."""
        sizes = {size: list(self._rates(size)) for size in SIZES}
        try:
            steps = [
                self.step(rate, size)
                for size, rates in sizes.items()
                for rate in (rates if size == SIZES[0] else rates[-1:])
            ]
        except TailtapError as error:
            yield Check(TAPS, f"{self.tap}: loss", "untested", str(error))
            return
        yield of_tap(self.tap, sorted(steps, key=lambda one: one.rate))
        if self.sender not in loads:
            loads[self.sender] = steps
            yield from of_generator(self.sender, steps)
            yield self.zero_copy()
        for first, second in self._pairs(came):
            yield self.length(first, second)

    @property
    def _lowest(self) -> int:
        return min(FIRST_RATE, self.wanted.rate or FIRST_RATE)

    def _rates(self, size: int) -> Iterator[int]:
        """Rising to that which is asked for, or that of the line."""
        nic = self._of(self.sender).lent.nics[self.sender.card]
        mbit = nic.speed_mbit or 0
        bits = mbit * 1_000_000 if mbit > 0 else LINE_BITS
        line = bits // (8 * (size + FRAMING))
        last = min(line, self.wanted.rate or line)
        rate = FIRST_RATE
        while rate < last:
            yield rate
            rate *= 10
        yield last

    def _pairs(self, came: Heard) -> Iterator[tuple[Socket, Socket]]:
        """Places on one machine that a packet of the sender passes; one of them hears it."""
        at = [self.sender, *sorted(came[self.sender])]
        hearers = [one for one in at[1:] if one.host == self.tap.host]
        if len(hearers) < 2:
            hearers = [one for one in at if one.host == self.tap.host]
        others = [one for one in hearers if one != self.tap]
        if self.tap in hearers and others:
            other = others[0]
            yield (other, self.tap) if other == self.sender else (self.tap, other)

    def _of(self, card: Socket) -> LentHost:
        return self.there[card.host]

    def step(self, rate: int, size: int) -> Step:
        """Packets of a size at a rate. Raises `MachineError`."""
        self.tell(f"{self.sender} sends {format_rate(rate)} of {size} B to {self.tap}")
        host = self._of(self.tap)
        before = host.ask(counts=True).counts[self.tap.card]
        link = f"tap={host.port(self.tap.card)}:drop"
        name = f"{self.tap.card}-{rate}-{size}.stamps".replace(":", "-")
        words = ["tap", link, "--write", f"{{folder}}/{name}", "--flush", "0 s", "--json"]
        tap = host.ask(begin=words, event="ready").number
        duration = f"{round(self.wanted.seconds * 1e9)} ns"
        sent = self._send(rate, size, ["--duration", duration], self.wanted.generator)
        links = host.ask(end=tap, within=0, sends=None).printed["links"]
        counted = parsed(f"the tap at {self.tap}", links["tap"], Counts, MachineError)
        after = host.ask(counts=True).counts[self.tap.card]
        return Step(size, rate, sent, counted.seen, counted.lost, after[1] - before[1])

    def _send(self, rate: int, size: int, words: Sequence[str], kind: str) -> GeneratorRecord:
        """Have the sender send. Raises `MachineError`."""
        host = self._of(self.sender)
        cpu = [] if self.wanted.cpu is None else ["--cpu", str(self.wanted.cpu)]
        port = host.port(self.sender.card)
        given = ["--rate", f"{rate} pkt/s", "--size", f"{size} B", "--generator", kind]
        number = host.ask(
            begin=["generate", port, *given, *words, *cpu, "--json"], event=None
        ).number
        within = self.wanted.seconds + OVERTIME_SECONDS
        printed = host.ask(end=number, within=within, sends=self.sender.card).printed
        return parsed(f"the generator of {self.sender}", printed, GeneratorRecord, MachineError)

    def zero_copy(self) -> Check:
        """Whether the driver sends from the memory of AF_XDP."""
        name = f"{self.sender}: AF_XDP"
        try:
            sent = self._send(self._lowest, SIZES[0], ["--count", str(FEW)], "af_xdp")
        except TailtapError as error:
            return Check(GENERATORS, name, "missing", str(error), "--generator af_packet serves")
        if sent.mode == "native":
            return Check(GENERATORS, name, "ok", "its driver sends from our memory (zero copy)")
        remedy = "a driver with XDP and AF_XDP, such as i40e, ice, ixgbe or mlx5, is faster"
        return Check(GENERATORS, name, "poor", "the kernel copies each packet", remedy)

    def length(self, first: Socket, second: Socket) -> Check:
        """Times from one place to another, against the length of the way between them."""
        name = f"{first} to {second}"
        self.tell(f"{self.sender} sends {FEW} packets from {first} to {second}")
        try:
            return of_length(name, self.wanted.metres, self._apart(first, second))
        except TailtapError as error:
            return Check(LENGTH, name, "untested", str(error))

    def _apart(self, first: Socket, second: Socket) -> Apart:
        """Raises `InputError` where no packet was stamped at both, and `MachineError`."""
        host = self._of(first)
        by_cards = first != self.sender and {first.card, second.card} <= set(host.lent.able)
        at = "@egress" if first == self.sender else ""
        links = [f"a={host.port(first.card)}{at}", f"b={host.port(second.card)}"]
        clock = ["--clock", "hardware"] if by_cards else ["--flush", "0 s"]
        files = f"{{folder}}/{first.card}-{{link}}.stamps".replace(":", "-")
        tap = host.ask(
            begin=["tap", *links, "--write", files, *clock, "--json"], event="ready"
        ).number
        words = ["--count", str(FEW), "--no-bypass"]
        self._send(self._lowest, SIZES[0], words, "af_packet")
        printed = host.ask(end=tap, within=0, sends=None).printed["links"]
        a, b = (parsed(first.host, printed[name], TappedLink, MachineError) for name in "ab")
        clocks = None if a.clock_device == b.clock_device else of_cards(a.by_card, b.by_card)
        with tempfile.TemporaryDirectory(prefix="tt-") as folder:
            paths = [Path(folder, f"{name}.stamps") for name in "ab"]
            for path, one in zip(paths, (a, b), strict=True):
                content = host.ask(read=Path(one.file).name).content
                path.write_bytes(base64.b64decode(content))
            found = evaluate(*paths, key="moonsniff", clocks=clocks)
            if found.counts.noncausal > found.counts.matched:
                raise MachineError(f"packets come to {second} before {first}").at("cables")
        low, middle, high = (one.value for one in found.percentiles((0.01, 0.5, 0.99)))
        kind = "hardware" if by_cards else "the kernel's"
        return Apart(found.counts.matched, middle, high - low, found.within_ns, kind)


def _of_boots(testbed: Testbed, tell: Callable[[str], None]) -> Iterator[Check]:
    """A boot of each host that the testbed file says how to boot, with each of its live images."""
    for name, host in testbed.hosts.items():
        if host.boot is None:
            continue
        for kernel in host.boot.images or (None,):
            title = f"{name}: boot" + (f" of {kernel}" if kernel else "")
            try:
                booting = booting_of(testbed, name, tell)
                assert booting is not None  # its host has the key
                made = booting.boot(Boot(kernel, ""))
            except TailtapError as error:
                yield Check(HOSTS, title, "missing", str(error))
            else:
                found = f"Linux {made.release} by {made.via} in {made.seconds:g} s"
                yield Check(HOSTS, title, "ok", found)


def _of_hosts(
    testbed: Testbed, lent: Mapping[str, LentHost | str], *, booted: bool
) -> Iterator[Check]:
    """Who is there, and what can be done to a host that is not."""
    for name, host in testbed.hosts.items():
        one = lent[name]
        if isinstance(one, str):
            yield Check(HOSTS, name, "missing", one, "mend this first")
        else:
            yield Check(HOSTS, name, "ok", f"Linux {one.lent.kernel}")
        if host.ssh is None:
            continue
        if host.power is None:
            why = f"the testbed file has no hosts.{name}.power"
            yield Check(HOSTS, f"{name}: power", "untested", why)
        else:
            try:
                found = f"its power is {power_of(host.power).status()}"
                yield Check(HOSTS, f"{name}: power", "ok", found)
            except TailtapError as error:
                yield Check(HOSTS, f"{name}: power", "missing", str(error))
        if host.boot is None:
            why = f"the testbed file has no hosts.{name}.boot"
            yield Check(HOSTS, f"{name}: boot", "untested", why)
        elif not booted:
            why = f"it was not booted (by {host.boot.via})"
            yield Check(HOSTS, f"{name}: boot", "untested", why, "boot it: --boot")


def _of_cards(name: str, host: LentHost, tell: Callable[[str], None]) -> Iterator[Check]:
    """Each card, and whether it can be handed over, and have virtual functions, and is as before.
    Cards on no bus cannot.
    """
    for card in host.cards:
        which, nic = f"{name}:{card}", host.lent.nics[card]
        mbit = nic.speed_mbit or 0
        speed = f"{mbit / 1000:g} Gbit/s" if mbit > 0 else "unknown speed"
        said = f"driver {nic.driver or 'unknown'}, firmware {nic.firmware or 'unknown'}, {speed}"
        state: State = "ok" if card in host.lent.able else "poor"
        remedy = "" if state == "ok" else "stamps of the kernel serve, with its interrupts in them"
        yield Check(CARDS, which, state, f"{said}; {host.lent.stamping[card]}", remedy)
        if not nic.bus:
            yield Check(DRIVERS, f"{which}: vfio-pci", "untested", "it is on no PCI bus")
            continue
        tell(f"handing {which} over to vfio-pci and back")
        try:
            seconds = host.ask(hand_over=card).seconds
        except MachineError as error:
            yield Check(DRIVERS, f"{which}: vfio-pci", "missing", str(error))
        else:
            found = f"handed over and back in {seconds:.1f} s"
            yield Check(DRIVERS, f"{which}: vfio-pci", "ok", found)
        tell(f"making virtual functions of {which}")
        title = f"{which}: virtual functions"
        try:
            made = host.ask(functions=card)
        except MachineError as error:
            yield Check(DRIVERS, title, "missing", str(error))
        else:
            found = f"{made.number} made, one set and taken by its driver, in {made.seconds:.1f} s"
            if made.number:
                yield Check(DRIVERS, title, "ok", found)
