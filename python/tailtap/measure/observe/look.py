"""A short look at the packets of two interfaces, before they are observed.

It tells where the device is (before the interfaces or behind them), by what its packets are known
again, and who served them. What it reads of packets stays in memory, and goes when it ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from tailtap.analysis.evaluation.evaluate import Settings, evaluate_by
from tailtap.analysis.evaluation.model import SIDES
from tailtap.analysis.evaluation.sources import source_of
from tailtap.analysis.evaluation.transactions import transactions_by
from tailtap.analysis.runs.folder import main_kind
from tailtap.base.errors import InputError
from tailtap.base.units import format_count, format_rate, format_time, list_cpus
from tailtap.host.changes import clean
from tailtap.host.changes.systemd import Folder
from tailtap.host.cpu.cpus import usable
from tailtap.lab.instruments.taps.links import At, TapLink
from tailtap.lab.served import Server, server_records
from tailtap.measure.beside import own_folder
from tailtap.measure.observe.interfaces import (
    PHYSICAL,
    Interface,
    Target,
    parse_target,
    passed,
    xdp_of,
    xdp_words,
)
from tailtap.measure.observe.serving import Contexts, contexts
from tailtap.records.live import LiveRecord, Moment
from tailtap.records.stamps import read_marks
from tailtap.remote.local import STOP_SECONDS, LocalHost, Process

LOOK_NS = 1_000_000_000
BUDGET = 0.02


@dataclass(frozen=True)
class Options:
    """What is observed, and how; the options of `tailtap observe`."""

    ingress: Target
    egress: Target | None = None
    """None: `ingress` is the only interface, and what comes in is answered there."""
    both: bool = False
    """Whether the way back is observed as well."""
    duration_ns: int | None = None
    packets: int | None = None
    """It ends when every tap has seen so many."""
    trace: str = "thin"
    """``thin``, ``full`` or ``none``."""
    cpus: Sequence[int] = ()
    """Where packets are served; empty: to be found out."""
    served: Sequence[Server] = ()
    """By what; empty: to be found out."""
    key: str | None = None
    """What packets are matched by; None: to be found out."""
    filter: str | None = None
    sample: int = 1
    budget: float | None = BUDGET
    """The share of the serving cores' time that observing may take; None: any."""
    look_ns: int = LOOK_NS
    """How long packets are looked at before, at least."""
    on_step: Callable[[str], object] = field(default=lambda step: None, compare=False)
    """Called with what is done before it begins: it may take a while."""
    on_numbers: Callable[[LiveRecord], object] | None = field(default=None, compare=False)
    """Called each second with what is known; None: nothing is counted before the end."""

    @classmethod
    def of(
        cls, ingress: str, egress: str | None = None, served: Sequence[str] = (), **others: Any
    ) -> Options:
        """Those with what is typed of interfaces and servers; `others` are fields. Raises
        `InputError` for what is no target, no server and no time.
        """
        options = cls(
            ingress=parse_target(ingress),
            egress=None if egress is None else parse_target(egress),
            served=[Server.parse(one) for one in served],
            **others,
        )
        server_records(options.served, options.cpus)
        if not options.look_ns:
            raise InputError("--look: give a time above zero")
        return options


SHARED = Path("/dev/shm")
"""A file system in memory on every Linux."""


def name_of(identity: str, pid: int) -> str:
    """The folder of the process `pid`; ``*`` for an `identity` finds it."""
    return f"tt-{identity}-observe-{pid}"


@contextlib.contextmanager
def observing_folder(parent: Path = SHARED) -> Iterator[Path]:
    """A folder of this process, in memory by default. Raises as `own_folder` does.

    Those of processes that were killed and have left nothing but such are removed.
    """
    found = clean.find()
    dead = {one.journal for one in found if one.owner == "dead" and one.kind == Folder.kind}
    dead -= {one.journal for one in found if one.kind not in (Folder.kind, "journal")}
    clean.remove([one for one in found if one.journal in dead])
    with own_folder(parent, f"observe-{os.getpid()}") as path:
        yield path


READY_SECONDS = 120.0
"""How long loading the programs may take on a machine that is busy."""
SNAP = "512 B"
"""What of each packet is looked at, and kept where a hash is not enough: heads of requests."""
UNHASHED = ("packet-stream", "packet-bytes", "signature")
"""Keys that are more than a hash, of which no marks are taken."""
ANY_KEY = "ip+0:4:le"
"""Every packet of IP has such a number."""
ENOUGH, TRIES = 50, 5
"""A way with so many packets is one; until there are, the look lasts for so many times as long."""
MANY, PARTS = 1_000, 10
"""The first look ends sooner, after any of so many parts of it, when so many have passed."""
SHOWN = 5
"""Other interfaces that are named where the named ones have no packets."""
MUCH = 100_000
"""Packets of one look, however long it is to last: they are in memory."""
MOST_NONCAUSAL = 0.1
"""Where more packets seem to leave before they came, they went the other way."""
HEADS, STAMPS = 1 << 15, 1 << 18
"""Packets, and stamps, of each link for which there is room in the kernel: 17 MB, and 6 MB."""
PACKETS, TRANSACTIONS = "packets", "transactions"
"""How what comes in is matched with what goes out, as in `evaluation.match`."""
AT: Mapping[Moment, At] = {"arrival": At.ARRIVAL, "egress": At.EGRESS}
OF_KERNEL = (
    "The stamp is the kernel's: a card stamps all that arrives only when its receive filter is "
    "told to, and of what leaves only what a sender asks it for."
)
"""Why a card's own stamps are not used, by Documentation/networking/timestamping.rst."""


@dataclass(frozen=True)
class End:
    """An interface, and which of its packets are stamped."""

    interface: Interface
    at: Moment

    def link(self, name: str) -> TapLink:
        """As a link of `tailtap tap`."""
        return TapLink(name, self.interface.name, self.interface.namespace, AT[self.at])

    def stamped(self) -> str:
        """Where its packets are stamped, and what of their way lies outside: sentences."""
        said = self.link("").stamped()
        return f"{said} {OF_KERNEL}" if self.interface.kind == PHYSICAL else said


Way = tuple[End, End]
"""Where packets are stamped before the device, and behind it."""


@dataclass(frozen=True)
class Looked:
    """What a look found."""

    way: Way
    key: str
    match: str
    """``packets`` or ``transactions``."""
    packets: int = 0
    seen: Contexts | None = None
    took_ns: int = 0

    def order(self) -> tuple[bool, bool, int]:
        """Ascends: a way that passes both interfaces in one direction comes before the others."""
        return self.packets >= ENOUGH, self.way[0].at != self.way[1].at, self.packets


def ways_of(options: Options, came: Interface, left: Interface) -> list[Way]:
    """The ways that packets may take, by what the targets say."""
    through: Way = (End(came, "arrival"), End(left, "egress"))
    behind: Way = (End(came, "egress"), End(left, "arrival"))
    ways = [through, behind]
    if options.egress is not None:  # a packet would be its own answer
        ways += [(End(came, at), End(left, at)) for at in AT]
    first, second = options.ingress.at, None if options.egress is None else options.egress.at
    return [way for way in ways if first in (None, way[0].at)
            and second in (None, way[1].at)]  # fmt: skip


def look(options: Options, came: Interface, left: Interface) -> Looked:
    """Look at the packets that pass. Raises `InputError` where none can be told apart."""
    ways = ways_of(options, came, left)
    ends = list(dict.fromkeys(end for way in ways for end in way))
    names = {end: f"look-{place}" for place, end in enumerate(ends)}
    before = {one: one.inside(passed) for one in (came, left)}
    passing = Passing(options, ways, dict.fromkeys(ends, 0), before)
    with contextlib.ExitStack() as stack:
        # The tracer is loaded meanwhile.
        tracer = _look_tracer(options, stack)
        while passing.left:
            with observing_folder() as folder:
                passing.watch(names, folder)
                best = _best(options, ways, names, folder)
                if best is None and passing.looks > 1 and _any_way(options):
                    best = _best(options, [back_of(way) for way in ways], names, folder)
            if best is not None and (best.packets >= ENOUGH or not passing.left):
                served = best if tracer is None else _served(options, best, *tracer)
                return replace(served, took_ns=passing.took_ns)
    raise InputError(passing.nothing())


def _best(
    options: Options, ways: Sequence[Way], names: Mapping[End, str], folder: Path
) -> Looked | None:
    """The way of these that packets take; None where they take none."""
    found = [one for way in ways if (one := _matched(options, way, names, folder))]
    return max(found, key=Looked.order, default=None)


def _any_way(options: Options) -> bool:
    """Whether the interfaces may have been named in the other order."""
    return options.egress is not None and options.ingress.at is options.egress.at is None


@dataclass
class Passing:
    """What passes interfaces during a look, of which so many parts are `left`."""

    options: Options
    ways: Sequence[Way]
    seen: dict[End, int]
    before: Mapping[Interface, Mapping[str, tuple[int, int]]]
    """What all interfaces of their namespaces had received and sent before."""
    left: int = TRIES * PARTS
    idle: int = 0
    """For how many parts no packet has come."""
    looks: int = 0

    @property
    def took_ns(self) -> int:
        """How long packets have been looked at."""
        return (TRIES * PARTS - self.left) * self.options.look_ns // PARTS

    def watch(self, names: Mapping[End, str], folder: Path) -> None:
        """Write packets down until enough have passed, or the look is over."""
        options, earlier, first = self.options, dict(self.seen), not self.looks
        self.looks += 1
        words = ("--snap-length", SNAP, "--clock", "monotonic", "--records", str(HEADS))
        with _counting(_tap(names, folder, "pcap", options, *words), options) as counts:
            for parts, told in enumerate(counts, 1):
                self.left -= 1
                here = {end: told[name]["seen"] for end, name in names.items()}
                now = {end: earlier[end] + count for end, count in here.items()}
                self.idle, self.seen = self.idle + 1 if now == self.seen else 0, now
                most = max(min(here[end] for end in way) for way in self.ways)
                is_whole = parts % PARTS == 0
                if most >= (ENOUGH if is_whole else MANY if first else inf):
                    break
                if sum(here.values()) > MUCH or not self.left:
                    break
                if is_whole:
                    options.on_step(f"waiting for packets: so far {self._said()}")
            rates = ((told[name]["rate"], end) for end, name in names.items())
            said = [f"{format_rate(rate)} {_words(end)}" for rate, end in rates if rate]
            options.on_step(", ".join(said) or "no packets")

    def nothing(self) -> str:
        """Why no packet was matched, and what may help."""
        both = any(all(self.seen[end] for end in way) for way in self.ways)
        what = "was matched between the two places" if both else "passed both places"
        if past := "; ".join(self._past_hooks()):
            remedy = past
        elif not both:
            remedy = "wait for traffic, or say with @arrival and @egress where it passes"
            if elsewhere := self._elsewhere():
                remedy = f"packets pass {elsewhere}: name two of these, or {remedy}"
        elif self.idle >= PARTS:
            idle = format_time(self.idle * self.options.look_ns // PARTS)
            remedy = f"none in the last {idle}: the traffic has ended, so start it again first"
        elif self.options.egress is not None:
            remedy = (
                "give --key (docs/explanation/latency.md), or one interface alone where "
                "packets end and are answered"
            )
        else:
            remedy = "give --key, or a second interface where packets pass through"
        took = format_time(TRIES * self.options.look_ns)
        return f"no packet {what} within {took}: {self._said()}; {remedy}"

    def _said(self) -> str:
        return ", ".join(
            f"{format_count(count, 'packet') if count else 'no packet'} {_words(end)}"
            for end, count in self.seen.items()
        )

    def _elsewhere(self) -> str:
        """Other interfaces of the same namespaces, by how many packets they have had since."""
        named = {interface.target.text for interface in self.before}
        found = dict[str, int]()
        for interface, before in self.before.items():
            place, slash, _ = interface.target.text.rpartition("/")
            for name, counts in interface.inside(passed).items():
                more = sum(counts) - sum(before.get(name, counts))
                if more >= ENOUGH and name != "lo":
                    found[f"{place}{slash}{name}"] = more
        most = sorted(found.keys() - named, key=lambda text: -found[text])[:SHOWN]
        return ", ".join(f"{text} ({format_count(found[text], 'packet')})" for text in most)

    def _past_hooks(self) -> Iterator[str]:
        """What interfaces count that nothing was seen of."""
        for end, count in self.seen.items():
            interface, way = end.interface, 0 if end.at == "arrival" else 1
            name = interface.name
            more = interface.inside(passed)[name][way] - self.before[interface][name][way]
            if count or more < ENOUGH:
                continue
            packets = format_count(more, "packet")
            if way:
                yield (
                    f"{name} sent {packets} past its hook, as PACKET_QDISC_BYPASS, AF_XDP and XDP "
                    "do: name the interface by which they come in, such as the other end of a veth "
                    "pair, and @arrival"
                )
            else:
                programs = interface.inside(xdp_of).programs
                why = xdp_words(programs, name) if programs else "AF_XDP may have taken them"
                yield f"{name} received {packets} that its hook did not see: {why}"


def _words(end: End) -> str:
    return f"{'came in by' if end.at == 'arrival' else 'left through'} {end.interface.name}"


def back_of(way: Way) -> Way:
    """The way back: packets come where others leave."""
    other: Mapping[Moment, Moment] = {"arrival": "egress", "egress": "arrival"}
    before, behind = way
    return End(behind.interface, other[behind.at]), End(before.interface, other[before.at])


def _tap(
    names: Mapping[End, str], folder: Path, suffix: str, options: Options, *more: str
) -> list[str]:
    links = [str(end.link(name)) for end, name in names.items()]
    write = ["--write", str(folder / f"{{link}}.{suffix}")]
    chosen = [] if options.filter is None else ["--filter", options.filter]
    return ["tap", *links, *write, *chosen, *more, "--json"]


@contextlib.contextmanager
def _counting(words: Sequence[str], options: Options) -> Iterator[Iterator[Mapping[str, Any]]]:
    """A tap that is ready, as what it says of each link after each part of a look; it has ended
    behind the context.
    """
    part_ns = max(1, options.look_ns // PARTS)

    def counts() -> Iterator[Mapping[str, Any]]:
        while True:
            yield tap.expect("counts", part_ns / 1e9 + READY_SECONDS)["links"]

    with contextlib.ExitStack() as stack:
        tap = _started([*words, "--tell", f"{part_ns} ns"], stack)
        tap.expect("ready", READY_SECONDS)
        yield counts()
        tap.interrupt()
        tap.expect("done", STOP_SECONDS)


def _look_tracer(options: Options, stack: contextlib.ExitStack) -> tuple[Process, Path] | None:
    """A tracer of all CPUs that is being loaded, and its folder; None where nobody wants it."""
    if options.trace == "none" or (options.cpus and options.served):
        return None
    folder = stack.enter_context(observing_folder())
    trace = ["trace", "--cpus", list_cpus(usable()), "--out", str(folder), "--floor", "0 s"]
    return _started([*trace, "--json"], stack), folder


def _started(words: Sequence[str], stack: contextlib.ExitStack) -> Process:
    host = LocalHost()
    process = host.start([*host.program, *words])
    stack.callback(process.close)
    return process


def _matched(options: Options, way: Way, names: Mapping[End, str], folder: Path) -> Looked | None:
    """How the packets of a way are matched; None where they do not take it."""
    before, behind = (folder / f"{names[end]}.pcap" for end in way)
    settings = Settings(key=options.key or "auto", losses=False, worst=1)
    try:
        if options.egress is None:
            found = main_kind(transactions_by(settings, source_of(before), source_of(behind)), None)
        else:
            found = evaluate_by(settings, before, behind)
    except InputError:
        return None
    if found.counts.noncausal > MOST_NONCAUSAL * found.counts.matched:
        return None
    match = TRANSACTIONS if options.egress is None else PACKETS
    key = options.key or ("auto" if options.egress is None else found.key)
    return Looked(way, key, match, found.counts.matched)


def _served(options: Options, looked: Looked, tracer: Process, traced: Path) -> Looked:
    """The same, with who served the packets that left during a second look."""
    options.on_step("looking at who serves them")
    names = dict(zip(looked.way, SIDES, strict=True))
    key = looked.key if looked.match == PACKETS and looked.key not in UNHASHED else ANY_KEY
    with observing_folder() as folder:
        tap = _tap(names, folder, "marks", options, "--hash", key, "--records", str(STAMPS))
        tracer.expect("ready", READY_SECONDS)
        with _counting(tap, options) as counts:
            for parts, told in enumerate(counts, 1):
                if parts == PARTS or told[SIDES[1]]["seen"] >= MANY:
                    break
        tracer.interrupt()
        tracer.expect("done", STOP_SECONDS)
        came, left = (read_marks(folder / f"{side}.marks") for side in SIDES)
    if looked.match == PACKETS and key != ANY_KEY:  # others leave there as well
        left = left[np.isin(left["key"], came["key"])]
    return replace(looked, seen=contexts(traced, left))


def unlooked(options: Options, came: Interface, left: Interface) -> Iterator[Looked]:
    """What is known without a look; nothing where something is to be found out."""
    ways = ways_of(options, came, left)
    if len(ways) > 1 or options.key is None:
        return
    if not (options.cpus and options.served) and options.trace != "none":
        return
    yield Looked(ways[0], options.key, TRANSACTIONS if options.egress is None else PACKETS)
