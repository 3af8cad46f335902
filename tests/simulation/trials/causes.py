"""Why packets were late, on a machine of which every nanosecond has a known owner."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from captures import frame, pcap
from made_records import rewrite
from traced import write_run
from two_machines import Apart, move_apart

from tailtap.analysis.causes.explain import Explained, explain
from tailtap.analysis.causes.joined import UNEXPLAINED
from tailtap.analysis.causes.labels import GAP_NS
from tailtap.analysis.causes.record import record
from tailtap.analysis.causes.taxonomy import Named, is_of_generator
from tailtap.analysis.evaluation import evaluate
from tailtap.analysis.runs.reader import finished_runs
from tailtap.analysis.undisturbed.stretches import of_trace
from tailtap.base.errors import InputError
from tailtap.base.units import format_count
from tailtap.records.causes import CausesRecord
from tests.simulation.device import (
    CORE,
    LOCKER,
    NEIGHBOUR,
    OTHERS,
    RAISERS,
    Device,
    Load,
    device,
)
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.records import AWAY_NS, ends, taken_before
from tests.simulation.tracer import ALIKE, traced
from tests.simulation.traffic import START_NS
from tests.simulation.trial import Tally, Trial
from tests.simulation.truth import OF_GENERATOR, Truth, rows_of

SERVED_SO = {"serving", "gap"}
"""The server's own time, whatever it does: the trace does not look into it."""
NO_CAUSES = ("unexplained", "behind", "own-work", "gap", "mixed")
EDGES_NS = 2_000
"""So much may be another's: records within others, rounding, what usual packets saw."""
SPREAD_NS = 20_000
"""So much more is where short ones are added up: sums are laid out evenly."""
SOURCE_PORT = 34
"""Where it stands in a `frame`."""
NEARLY, LITTLE = 0.1, 0.25
"""Shares: of what has about the largest part, and of what has little."""
EVERY = slice(None)


def load_of(draw: Draw) -> Load:
    """Packets at some rate, which the device can serve."""
    number = draw.count("packets", 1_000, 4_000)
    gap = draw.magnitude("gap", 5_000, 1_000_000)
    jitter = draw.stream("jitter").integers(0, max(1, gap // 2), number)
    arrivals = START_NS + gap * np.arange(number) + jitter
    return served(draw, arrivals, gap)


def served(draw: Draw, arrivals: Integers, gap: int) -> Load:
    """What a device has to do for packets that come so, mostly with `gap` between them."""
    least = min(draw.magnitude("service", 500, 20_000), gap // 3)
    service = least + draw.stream("service").integers(0, max(1, least // 8), arrivals.size)
    return Load(arrivals, service, gap)


def run(draw: Draw, folder: Path) -> Tally:
    """Each part is the true one, and each named cause had the largest part."""
    made = device(draw, load_of(draw), START_NS - 1_000_000)
    told = traced(draw, made)
    folder = write_run(folder / "001-traced", told)
    clock = _other_clock(draw, folder) if told.end is None else None
    flows = _flows(draw, folder, told.made) if clock is None else None
    [one] = finished_runs(folder)
    latest = int((made.left - made.sent).max() - np.median(made.left - made.sent))
    if clock is not None and latest < 8 * clock.width_ns:
        with suppress(InputError):  # of no packet anything can be told
            explain(one, late="p98.5")
        return {}
    if percentile(made) == (made.left - made.sent).max():
        with pytest.raises(InputError):
            explain(one, late="p98.5")
        return {}
    found = explain(one, late="p98.5")
    said = record(found)
    assert (said.clock is None) == (clock is None)
    truth = Truth(told, clock.width_ns if clock else 0)
    number, usual = checked(found, truth)
    if flows is not None:
        _check_flows(found, said, flows[number])
    _check_raisers(said, truth)
    if told.whole and clock is None:
        _check_pauses(found, truth)
    tally = dict(tally_of(found, truth, number, usual))
    if "tasks" in told.names:
        tally |= _names(found, said, truth, number)
    if told.whole and draw.has("another one without a cause", 0.3):
        tally |= _without(draw, found, made)
    return tally


def late_and_usual(found: Explained, made: Device) -> tuple[Integers, Integers]:
    """The late packets, which are so late, and the usual ones."""
    latency, late = made.left - made.sent, found.joined.late
    number = np.searchsorted(made.sent, late.packets.ingress_ns)
    low, median, high = quartiles(latency)
    assert np.array_equal(made.left[number], late.packets.egress_ns)
    assert np.array_equal(late.excess_ns, latency[number] - median)
    return number, np.flatnonzero((latency >= low) & (latency <= high))


def checked(found: Explained, truth: Truth) -> tuple[Integers, Usual]:
    """The late packets and what usual ones see, of which all that is said is true."""
    number, often = late_and_usual(found, truth.made)
    usual = Usual.of((truth, often))
    _check_warnings(found, truth, number)
    check_parts(found, truth, number, usual)
    _check_gaps(found, truth, number)
    check_stalls(found, truth)
    return number, usual


def quartiles(latency: Integers) -> Integers:
    """The latencies that a quarter of all do not exceed, a half, and three quarters."""
    found: Integers = np.sort(latency)[[-(-of * latency.size // 4) - 1 for of in (1, 2, 3)]]
    return found


def percentile(made: Device) -> int:
    """The latency that packets exceed which are late."""
    latency = np.sort(made.left - made.sent)
    return int(latency[-(-985 * latency.size // 1000) - 1])


def _other_clock(draw: Draw, folder: Path) -> Apart | None:
    """Has another machine than the device stamp the packets, in some seeds.

    Two hosts of one kernel have one clock, however long they take to answer.
    """
    if draw.has("one kernel", 0.05):
        move_apart(folder, Apart(width_ns=100_000_000), same_kernel=True)
        return None
    if not draw.has("two clocks", 0.12):
        return None
    stream = draw.stream("two clocks")
    clock = Apart(
        int(stream.integers(-3_000_000_000, 3_000_000_000)), float(stream.uniform(-5e-5, 5e-5)),
        draw.magnitude("clocks are known to", 100, 20_000), float(stream.uniform(-1, 1)),
    )  # fmt: skip
    move_apart(folder, clock)
    return clock


def _flows(draw: Draw, folder: Path, made: Device) -> Integers | None:
    """Has the tap before the device write frames of some flows, in some seeds: each packet's."""
    if not draw.has("frames", 0.2):
        return None
    flows = draw.stream("flows").integers(0, draw.between("flows", 1, 5), made.sent.size)
    packets = [
        (time, data[:SOURCE_PORT] + struct.pack(">H", flow + 1) + data[SOURCE_PORT + 2 :])
        for time, flow, data in zip(
            made.sent.tolist(), flows.tolist(), map(frame, range(flows.size)), strict=True
        )
    ]
    (folder / "ingress.stamps").unlink()
    (folder / "ingress.pcap").write_bytes(pcap(packets))
    both = (folder / "ingress.pcap", folder / "egress.stamps")
    evaluate(*both, key="moonsniff", flows=True).write(folder / "evaluation")
    rewrite(folder / "run.json", taps={"ingress": {"clock": "monotonic"}})
    return flows


def _check_flows(found: Explained, said: CausesRecord, flows: Integers) -> None:
    """Each flow has its late packets, and their causes."""
    blamed = np.array([str(found.labels.blame(packet)) for packet in range(flows.size)])
    assert sum(one.late for one in said.flows) == flows.size
    for one in said.flows:
        port = int(one.flow.split(" > ")[0].rpartition(":")[2])
        mine = blamed[flows == port - 1]
        assert one.late == mine.size and one.whole is not None
        named = {str(Named(cause.cause, cause.detail)): cause.packets for cause in one.causes}
        assert named == Counter(mine.tolist())
        assert one.whole.latency_ns is not None and one.worst_ns == one.whole.latency_ns.max


def _check_warnings(found: Explained, truth: Truth, number: Integers) -> None:
    """What the trace lacks is said and counted, and nothing else is."""
    told = truth.told
    since, until = told.made.sent[number], told.made.left[number]
    outside = int(((since < told.began) | (until > told.ended)).sum())
    coarse = found.joined.untold
    said = {one.code: one.message for one in found.warnings}
    assert len(said) == len(found.warnings)
    expected = {
        "trace-damaged": told.end is not None,
        "trace-thinned": told.paused_ns > 0,
        "trace-lost": told.known_lost > 0,
        "trace-not-covering": outside > 0,
        "host-clock-coarse": coarse is not None and bool(coarse.any()),
        "guest-clock-coarse": found.joined.coarse > 0,
    }
    assert said.keys() - {"trace-blind"} == {code for code, so in expected.items() if so}, said
    if told.known_lost:
        assert f" {told.known_lost:,} on CPU {CORE}:" in said["trace-lost"]
    if outside and not truth.width_ns:
        assert said["trace-not-covering"].startswith(format_count(outside, "late packet"))
    if told.dark and told.end is None and not truth.width_ns:
        blamed = map(found.labels.blame, range(number.size))
        unknown = np.array([one.cause == "unexplained" for one in blamed])
        meets = [(since < end) & (until > start) for start, end in told.dark]
        assert record(found).unexplained.untraced == (np.any(meets, axis=0) & unknown).sum()
    wide = found.joined.late.excess_ns < 4 * truth.width_ns  # the clocks leave a fifth of it open
    assert found.guest is not None or (found.joined.state[wide] == UNEXPLAINED).all()
    untold = told.within(since, until)
    causes = [found.labels.blame(packet).cause for packet in np.flatnonzero(untold).tolist()]
    assert set(causes) <= {"unexplained"}


def parts_of(found: Explained, causes: Collection[str], detail: str = "") -> Integers:
    """What causes have of each late packet, of those whose detail has this in it."""
    joined = found.joined
    names = enumerate(joined.laid.rows.names)
    rows = [row for row, name in names if name.cause in causes and detail in name.detail]
    mine = np.isin(joined.part_row, rows)
    sums = np.zeros(joined.state.size, np.int64)
    np.add.at(sums, joined.of_packets()[mine], joined.part_ns[mine])
    return sums


class Usual(NamedTuple):
    """What usual packets of a device see, on the mean; in ns."""

    had: Mapping[str, int]
    """Of each cause."""
    took: int
    """How long they take."""
    unseen: int
    """How much less of all causes they may have seen by the trace."""

    @classmethod
    def of(cls, *cores: tuple[Truth, Integers]) -> Usual:
        """That of these packets of each core."""
        sums: Counter[str] = Counter()
        for truth, usual in cores:
            came, left = truth.made.sent[usual], truth.made.left[usual]
            sums.update({"": int((left - came).sum())})
            sums.update({cause: int(ns.sum()) for cause, ns in truth.overlaps(came, left).items()})
        number = max(1, sum(usual.size for _, usual in cores))
        had = {cause: total // number for cause, total in sums.items()}
        took, whole = had.pop(""), all(truth.told.whole for truth, _ in cores)
        return cls(had, took, 0 if whole else sum(had.values()))


def beyond_usual(
    truth: Truth, number: Integers, usual: Usual, excess: Integers
) -> tuple[dict[str, Integers], Integers, Integers]:
    """What packets that took so much longer saw of each cause beyond the usual; how much of that is
    cut off the smallest; and how much of each may be another's.
    """
    true = truth.overlaps(truth.made.sent[number], truth.made.left[number])
    more = {cause: np.maximum(0, ns - usual.had[cause]) for cause, ns in true.items()}
    room = EDGES_NS + excess // 50 + truth.hidden(number) + truth.width_ns
    room += SPREAD_NS * bool(truth.told.floor_ns)
    return more, np.maximum(0, sum(more.values()) - excess), room


def check_parts(
    found: Explained, truth: Truth, number: Integers, usual: Usual, late: Integers | slice = EVERY
) -> None:
    """Parts are what each cause had beyond the usual; all of them are the excess."""
    excess = found.joined.late.excess_ns[late]
    came, left = truth.made.sent[number], truth.made.left[number]
    more, surplus, room = beyond_usual(truth, number, usual, excess)
    spread = SPREAD_NS if truth.told.floor_ns else 0
    dark = truth.meets(came, left, excess)
    if dark.all():
        return
    names = {name.cause for name in found.joined.laid.rows.names}
    assert (parts_of(found, names - more.keys())[late] <= EDGES_NS)[~dark].all()
    for cause in more.keys() - SERVED_SO:
        mine = parts_of(found, {cause})[late]
        most = more[cause] + usual.unseen + room
        least = more[cause] - surplus - usual.unseen - room
        most += dark * more.get("throttled", 0)  # whose record may be lost
        assert (mine <= most).all(), f"{cause}: {mine}, {most}"
        assert (mine >= least)[~dark].all(), f"{cause}: {mine}, {least}"
    sent = truth.by_generator(came, left)
    of_generator = parts_of(found, names, OF_GENERATOR.strip())[late]
    least = sent - surplus - usual.unseen - room
    assert (of_generator <= sent + room).all(), f"{of_generator}, {sent}"
    assert (of_generator >= least)[~dark].all(), f"{of_generator}, {sent}"
    whole = parts_of(found, names)[late]
    assert (whole <= excess).all()
    usually = max(0, usual.took - found.joined.late.median_ns)
    untold = (excess - whole)[~dark]
    assert (untold <= EDGES_NS + spread + truth.width_ns + usually).all(), untold


def _check_gaps(found: Explained, truth: Truth, number: Integers) -> None:
    """Nobody says that the core was away of a packet that its server was busy with."""
    made = truth.made
    blamed = map(found.labels.blame, range(number.size))
    gaps = np.array([one.cause == "gap" for one in blamed])
    gaps &= ~truth.meets(made.sent[number], made.left[number], found.joined.late.excess_ns)
    elsewhere = made.held + np.array(made.load.arrivals) - made.sent
    assert ((truth.hidden(number) + elsewhere[number])[gaps] >= GAP_NS - EDGES_NS).all()


def check_stalls(found: Explained, truth: Truth, cpu: int = CORE) -> None:
    """The core did not serve during a stall, and no other cause had more of it."""
    joined = found.joined
    since, until = joined.stall_start, joined.stall_end
    true = truth.overlaps(since, until)
    hidden = sum(truth.taken(cause, since, until) for cause in ("steal", "gap"))
    room = (
        EDGES_NS
        + truth.width_ns
        + 2 * hidden  # nobody sees within which of two it was
        + (until - since) // 50
        + (SPREAD_NS if truth.told.floor_ns else 0)
    )
    seen = ~truth.told.meets(since, until) & (joined.stall_cpu == cpu)
    assert (true["serving"] <= room)[seen].all()
    most = truth.largest(since, until)
    for place in np.flatnonzero(seen).tolist():
        cause = joined.laid.rows.names[int(joined.stall_row[place])].cause
        mine = true[cause][place] if cause in true else 0
        assert mine >= most[place] - room[place], f"{cause}: {mine} of {most[place]}"


def _check_raisers(said: CausesRecord, truth: Truth) -> None:
    """What raised the softirqs that made packets late is the one that did."""
    raised = {what.aux >> 32 for what in truth.made.core.table if what.cause == "softirq"}
    expected = [name for name, bits in RAISERS.items() if bits and bits in raised]
    for row in said.causes:
        named = [one.detail for one in row.raised_by]
        if row.cause == "softirq" and row.stalls and not truth.told.floor_ns:
            assert named == expected
        # Of short ones that were added up nobody knows it.
        assert not named or (row.cause == "softirq" and named == expected)


def _check_pauses(found: Explained, truth: Truth) -> None:
    """What was stolen of the cores that serve and send is a pause, and nothing else is."""
    made = truth.made
    told = {(one.by, one.cpu): one.spans for one in of_trace(found.trace)[0]}
    senders = {NEIGHBOUR: made.sender} if truth.told.senders else {}
    for cpu, core in {CORE: made.core, **senders}.items():
        assert core is not None
        start, end = rows_of(core).get(("steal", ""), (np.zeros(0, np.int64),) * 2)
        records = truth.told.records[truth.told.records["cpu"] == cpu]
        known = taken_before(start, end, ends(records)[[0, -1]]) if records.size else (0, 0)
        most, spans = int(known[1] - known[0]), told.pop(("steal", cpu), None)
        seen = spans.total_ns if spans else 0
        untold = AWAY_NS * start.size if cpu != CORE else 0  # short ones of who sends
        assert most - untold <= seen <= most, f"{seen} of {most}"
    assert not told


def _without(draw: Draw, found: Explained, made: Device) -> Tally:
    """How often the tail without a cause is that of the same machine without it."""
    assert found.removal is not None
    latency = made.left - made.sent
    causes = {OTHERS[feature][0].cause for feature in draw.features if feature in OTHERS}
    nothing, everything = (found.removal.without(names) for names in ((), found.labels.names))
    assert nothing.percentile_ns == percentile(made)
    assert nothing.worst_ns == latency.max()
    assert everything.least_ns <= everything.percentile_ns <= nothing.percentile_ns
    near = low = of = 0
    for cause in causes:
        alike = {feature for feature, (what, _) in OTHERS.items() if what.cause == cause}
        again = Draw(draw.seed, draw.without | alike, draw.scale)
        other = device(again, load_of(again), made.began)
        names = [name for name in found.joined.laid.rows.names if name.cause == cause]
        told = found.removal.without(names)
        assert told.measured_ns == percentile(made)
        true = max(percentile(other), told.least_ns)
        if true > told.measured_ns // 2:
            continue
        of += 1
        near += told.percentile_ns <= 3 * true
        low += told.percentile_ns < true - true // 20
    return {"tail without it is near": (near, of), "tail without it is too low": (low, of)}


def tally_of(
    found: Explained,
    truth: Truth,
    number: Integers,
    usual: Usual,
    late: Integers | None = None,
) -> Tally:
    """How often the cause of a packet is what had most of its queue's time beyond the usual.

    `late` are the places of these packets among the late ones, if they are not all.
    """
    late = np.arange(number.size) if late is None else late
    since, until = truth.queued_since[number], truth.made.left[number]
    had = truth.overlaps(since, until)
    had = {cause: np.maximum(0, ns - usual.had[cause]) for cause, ns in had.items()}
    others = [cause for cause in had if cause != "serving"]
    shares = np.stack([had[cause] for cause in others]) / np.maximum(1, sum(had[c] for c in others))
    hidden = truth.hidden(number) / np.maximum(1, sum(had[c] for c in others))
    largest = little = named = clear = 0
    dark = truth.meets(since, until, found.joined.excess_ns[late])
    for packet, place in enumerate(late.tolist()):
        cause = found.labels.blame(place).cause
        if cause in NO_CAUSES:
            continue
        named += 1
        share = hidden[packet] + (shares[others.index(cause), packet] if cause in others else 0)
        clear += not dark[packet]
        largest += bool(share >= shares[:, packet].max() - NEARLY and not dark[packet])
        little += bool(share < LITTLE)
    return {"has the largest part": (largest, clear), "has little of it": (little, named)}


def _names(found: Explained, said: CausesRecord, truth: Truth, number: Integers) -> Tally:
    """Of two tasks of one name, the one that had more of a late packet's time is named, with its
    process and its group; never one that had nothing of it.
    """
    since, until = truth.queued_since[number], truth.made.left[number]
    dark = truth.meets(since, until, found.joined.late.excess_ns)
    had = {what: truth.overlaps_of(("task", what), since, until) for what in ALIKE.values()}
    right = of = 0
    for packet in np.flatnonzero(~dark).tolist():
        name = found.labels.blame(packet)
        if name.cause == "task" and not is_of_generator(name):
            mine = had[ALIKE[name.detail]][packet]
            assert mine, f"{name} had nothing of packet {packet}"
            right += bool(mine >= max(ns[packet] for ns in had.values()) * (1 - NEARLY))
            of += 1
    for row in said.causes:
        if row.task is not None and not is_of_generator(Named(row.cause, row.detail)):
            assert (ALIKE[row.detail] == "locker") == (row.task.pid == LOCKER)
    return {"names the right one": (right, of)}


RATES = {
    "names the right one": (0.95, 1.0),
    "has the largest part": (0.97, 1.0),
    "has little of it": (0.0, 0.01),
    "tail without it is near": (0.7, 1.0),
    "tail without it is too low": (0.0, 0.05),
}
TRIAL = Trial("causes", run, rates=RATES)
