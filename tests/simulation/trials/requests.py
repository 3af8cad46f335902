"""Requests in captures: each pair that is there for certain is found, and no untrue one."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from captures import MICROSECONDS, pcap, pcapng

from tailtap.analysis.evaluation import evaluate_transactions
from tailtap.analysis.evaluation.transactions import Kind
from tailtap.base.errors import NothingMatched
from tests.simulation.draw import Draw
from tests.simulation.requests import World, world
from tests.simulation.trial import Trial
from tests.simulation.waits import Expected, Rules, Times, expected

WINDOW_NS = 5_000_000_000
START_NS = 1_700_000_000_000_000_000
DATAGRAMS_SAY = ("retransmitted", "repeated_answers", "unmatched_answers")


WHOLE, MOST = 262_144, 10_000
EDGES = {"statuses in tables", "splits", "overtaking"}
"""Features by which a window may end before an answer in it is known."""


class Taken(NamedTuple):
    """A packet in a capture."""

    time: int
    number: int
    near: bool = True


Wrap = Callable[[bool, bool, bytes], bytes]
"""Makes what is captured of a frame, by whether that is near the client, and whether it asks."""


def cooked(near: bool, asks: bool, data: bytes) -> bytes:
    return struct.pack(">HHH8s", 4 * (near != asks), 1, 6, bytes(8)) + data[12:]


def cooked_2(near: bool, asks: bool, data: bytes) -> bytes:
    outgoing = 4 * (near != asks)
    return data[12:14] + struct.pack(">HIHBB8s", 0, 3 - near, 1, outgoing, 6, bytes(8)) + data[14:]


def tagged(near: bool, asks: bool, data: bytes) -> bytes:
    return data[:12] + (b"\x81\0\0\5" if near else b"") + data[12:]


def on_links(near: bool, asks: bool, data: bytes) -> bytes:
    host, router = b"\2\0\0\0\0" + bytes([near]), b"\2\0\0\0\1" + bytes([near])
    return (router + host if near == asks else host + router) + data[12:]


PLACES: tuple[tuple[Wrap, int, tuple[str, str]], ...] = (
    (cooked_2, 276, ("interface-2", "interface-3")),
    (cooked, 113, ("received", "sent")),
    (tagged, 1, ("vlan-5", "others")),
    (on_links, 1, ("mac-020000000101", "mac-020000000100")),
)
"""Captures of several places: how these are told apart, and their names near the client and far."""


@dataclass
class Taps:
    """What is captured where."""

    files: list[list[Taken]]
    views: list[tuple[str, Times, Times]]
    """Of each place its name, and when packets passed it and were captured."""
    wrap: Wrap = lambda _near, _asks, data: data
    link: int = 1
    snap: int = WHOLE
    copied: bool = False
    """Whether it has each packet twice."""
    later: Times = field(default_factory=dict)
    """When packets of the client were captured near the server as well."""


def taps(draw: Draw, made: World, unit: int) -> Taps:
    """One capture, or of each end's packets one, or captures at two places; or a file of these."""
    kind = draw.choice("taps", ["places", "directions", "both"]) if draw.has("taps", 0.3) else "one"
    wire = {number: made.packets[number].time for number in made.order()}
    asks = {number: made.packets[number].asks for number in wire}
    far = {number: time + (unit if asks[number] else -unit) for number, time in wire.items()}
    near = [Taken(time, number) for number, time in wire.items()]
    behind = [Taken(time, number, near=False) for number, time in far.items()]
    # PTP has no addresses of its ends, and places need packets enough.
    if kind == "places" and len(near) >= 40 and "ptp-delay" not in draw.features:
        tags = "tags and tunnels" in draw.features
        wrap, link, names = PLACES[draw.between("places", 0, 1 if tags else 3)]
        views: list[tuple[str, Times, Times]] = [
            (f"@{name}", times, times) for name, times in zip(names, (wire, far), strict=True)
        ]
        return Taps([sorted(near + behind)], views, wrap, link)
    near = missing(draw, near)
    times = {number: time for time, number, _ in near}
    if kind == "directions":
        ways = [[one for one in near if asks[one.number] is way] for way in (True, False)]
        return Taps(ways, [("", wire, times)])
    if kind == "both":
        behind = missing(draw, behind)
        times = {one.number: one.time for one in near if asks[one.number]}
        times |= {one.number: one.time for one in behind if not asks[one.number]}
        passed = {number: wire[number] if asks[number] else far[number] for number in wire}
        later = {one.number: one.time for one in behind if asks[one.number]}
        return Taps([near, behind], [("", passed, times)], later=later)
    copied = draw.has("copies", 0.15) and len(near) > 40
    if copied:
        near = sorted(near + [one._replace(time=one.time + 2 * unit) for one in near])
    cut = draw.has("snap length", 0.15)
    snap = 140 + draw.magnitude("snap length", 1, 600) if cut else WHOLE
    return Taps([near], [("", wire, times)], snap=snap, copied=copied)


def missing(draw: Draw, taken: list[Taken]) -> list[Taken]:
    """What a capture has that begins late, ends early, and drops packets."""
    if draw.has("begins late", 0.2):
        taken = taken[draw.between("begins late", 0, len(taken) - 1) :]
    if draw.has("ends early", 0.2):
        taken = taken[: draw.between("ends early", 1, len(taken))]
    if draw.has("capture drops", 0.3):
        rng = draw.stream("capture drops")
        kept = rng.random(len(taken)) >= rng.choice([0.003, 0.02, 0.1, 0.3])
        if rng.random() < 0.5:
            begin = int(rng.integers(len(taken)))
            kept[begin : begin + int(rng.integers(1, 12))] = False
        taken = [one for one, keeps in zip(taken, kept, strict=True) if keeps]
    return taken


def written(draw: Draw, path: Path, made: World, taken: Sequence[Taken], of: Taps) -> Path:
    """A capture in one file or several, of some format."""
    packets = []
    for time, number, near in taken:
        packet = made.packets[number]
        packets.append((time, of.wrap(near, packet.asks, packet.frame(number))))
    if draw.has("out of order", 0.2):
        rng = draw.stream("out of order")
        for at in range(0, len(packets), 100):
            block = packets[at : at + 100]
            packets[at : at + 100] = [block[place] for place in rng.permutation(len(block))]
    orders = [partial(pcap, snap=of.snap, order=order) for order in "<>"]
    make: Callable[..., bytes] = orders[draw.between("order", 0, 1)]
    if of.snap == WHOLE and draw.has("pcapng", 0.3):
        make = pcapng
    elif "microseconds" in draw.features:
        make = partial(make, magic=MICROSECONDS)
    make = partial(make, linktype=of.link)
    if not draw.has("pieces", 0.2):
        path.write_bytes(make(packets))
        return path
    path.mkdir()
    size = max(1, len(packets) // 3)
    for at in range(0, len(packets), size):
        (path / f"{at:08}.pcap").write_bytes(make(packets[at : at + size]))
    return path


def check(found: Sequence[Kind], name: str, right: Expected) -> None:
    """The transactions of a kind at a place are the true ones."""
    one = next((one for one in found if one.name == name), None)
    pairs: Counter[tuple[int, int]] = Counter()
    if one is not None and one.evaluation is not None:
        waits = [(packet.ingress_ns, packet.latency) for packet in one.evaluation.worst(MOST)]
        pairs.update(waits)
        latencies = np.sort([wait for _, wait in waits])
        assert np.array_equal(np.repeat(*one.evaluation.distribution), latencies), name
        assert one.evaluation.percentile(0.5).value == latencies[(len(waits) - 1) // 2], name
    pairs = Counter({pair: n for pair, n in pairs.items() if pair[0] not in right.free})
    lacking = right.pairs - pairs
    assert not lacking, f"{name}: not found: {sorted(lacking)[:5]} of {sorted(pairs)[:5]}"
    wrong = {pair for pair in pairs if pair not in right.allowed}
    assert not wrong, f"{name}: untrue: {sorted(wrong)[:5]} of {sorted(right.allowed)[:5]}"
    if one is None:
        assert not found or right.requests[0] == 0, name
        return
    counts = one.counts
    ends = ("answered", "unanswered", "open_at_end", "refused", "given_up", "trimmed")
    assert counts.requests == sum(getattr(counts, end) for end in ends), name
    least, most = right.requests
    assert right.free or least <= counts.requests <= most, (name, counts, right.requests)
    if right.exact:
        assert pairs == right.pairs, f"{name}: {sorted(pairs - right.pairs)[:5]} too much"
        says = ("requests", *ends, "reordered", *(DATAGRAMS_SAY if right.datagrams else ()))
        if name.startswith("quic"):
            says = (*ends, "retransmitted")
        true = {what: right.counts[what] for what in says}
        assert {what: getattr(counts, what) for what in says} == true, f"{name}: {counts}: {true}"


def settings(draw: Draw, unit: int) -> dict[str, Any]:
    """What a user may say of what counts."""
    since = "last" if draw.has("since the last", 0.2) and "splits" not in draw.features else "first"
    short = draw.has("short window", 0.2) and not EDGES & {*draw.features}
    trim = draw.magnitude("trim", 1_000, 40_000) if draw.has("trim", 0.15) else 0
    window = draw.magnitude("short window", 500, 20_000)
    return {
        "since": since,
        "window_ns": unit * window if short else WINDOW_NS,
        "trim_ns": unit * trim,
        "worst": MOST,
    }


def shown(made: World, snap: int) -> dict[int, int]:
    """How many bytes of each packet's payload are captured."""
    found = {}
    for number, packet in enumerate(made.packets):
        frame = packet.frame(number)
        begin = frame.rindex(packet.payload) if packet.payload else len(frame)
        found[number] = max(0, min(snap - begin, len(packet.payload)))
    return found


def run(draw: Draw, folder: Path) -> None:
    made = world(draw)
    # Waits of ten thousands of nanoseconds are counted quickest.
    unit = 1_000 if draw.has("microseconds", 0.1) else 20
    made.space(unit, START_NS)
    of = taps(draw, made, unit) if made.packets else Taps([[]], [])
    if not all(of.files):
        return
    said = settings(draw, unit)
    paths = [
        written(draw, folder / f"{at}.pcap", made, file, of) for at, file in enumerate(of.files)
    ]
    found: Sequence[Kind] = ()
    with suppress(NothingMatched):
        whole = evaluate_transactions(*paths, **said)
        found = whole.kinds
        assert not of.copied or "copies" in [one.code for one in whole.warnings]
    times = [one.time for file in of.files for one in file]
    cut = min(times) + said["trim_ns"] if said["trim_ns"] else 0
    rules = Rules(said["window_ns"], said["since"], cut, max(times))
    known = set()
    for place, wire, captured in of.views:
        right = expected(made, wire, captured, shown(made, of.snap), rules, of.later)
        for kind, one in right.items():
            known.add(kind + place)
            # A flight may go on when its window has ended.
            if kind != "tls-flight" or rules.window == WINDOW_NS:
                check(found, kind + place, one)
    unknown = {one.name for one in found} - known
    assert not unknown, unknown


TRIAL = Trial("requests", run)
