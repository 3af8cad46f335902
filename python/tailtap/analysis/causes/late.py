"""Which packets of a run are late, a sample of usual ones, and the parts of a device.

A part, a segment, is nodes that packets pass on the same cores. A packet waits for the cores of the
segment in which it is. Where segments have other cores, the stamps between them say where each
packet was.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from pathlib import Path

import numpy as np

from tailtap import _core
from tailtap.analysis.causes.taxonomy import Served
from tailtap.analysis.causes.trace import Trace
from tailtap.analysis.evaluation.clocks import Clocks
from tailtap.analysis.evaluation.hops import first_between, ids_at
from tailtap.analysis.evaluation.values import NODE, Column, Matching, label
from tailtap.analysis.runs.folder import RunFolder, hop_captures
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.tail import StoredTail
from tailtap.base.errors import InputError, NothingMatched, WrongValue
from tailtap.base.units import format_time, parse_time, ranges
from tailtap.records.evaluation import Side

DEFAULT = "p99.9"
MOST_LATE = 1_000_000
"""So many late packets take a second or two; a longer tail needs a higher threshold."""
FEW, ENOUGH = 10, 20
"""With fewer stalls than this, chance cannot be told from a cause; with so many it can."""
LEAST_EXCESS = 8
MOST_KEPT = 200_000
STAMPS, MARKS = ".stamps", ".marks"
"""What is left of captures whose bytes nobody may keep."""
SAMPLES = 8
SAMPLE_BYTES = 1 << 19
"""Usual packets are looked for in so many pieces of the captures, of so many bytes each."""
_LEAST_WINDOW_NS = 10_000_000
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Packets:
    """Packets as columns, in the order in which they left; times in ns."""

    ingress_ns: Column
    egress_ns: Column

    @property
    def latency_ns(self) -> Column:
        """Their latencies."""
        return self.egress_ns - self.ingress_ns


@dataclass(frozen=True)
class Late:
    """The late packets of a run."""

    packets: Packets
    threshold_ns: int
    words: str
    """The threshold as people read it."""
    median_ns: int

    @property
    def excess_ns(self) -> Column:
        """How much longer than the median each took."""
        return self.packets.latency_ns - self.median_ns


def percentile_of(text: str) -> float | None:
    """The percentile, between 0 and 1, that `text` names; None for a latency."""
    match = _PERCENTILE.fullmatch(text.strip())
    return None if match is None else float(Decimal(match[1]) / 100)


def late_packets(run: Run, text: str = DEFAULT) -> Late:
    """The packets of a run whose latency is above `text`, a percentile or a time.

    Raises `InputError` when it is neither, when the evaluation has not kept all of these packets,
    and when there is none.
    """
    tail, stored = run.tail, run.stored
    p = percentile_of(text)
    if p is not None:
        if not 0 < p < 1:
            raise WrongValue("--late", text, "a percentile lies between p0 and p100")
        threshold = stored.percentile(p).value
        words = f"{label(p)}, {format_time(threshold)}"
    else:
        try:
            threshold = parse_time(text)
        except InputError as error:
            raise WrongValue(
                "--late", text, "give a percentile such as p99.9, or a latency such as '100 us'"
            ) from error
        words = format_time(threshold)
    if threshold < tail.floor_ns:
        raise InputError(
            f"the evaluation keeps the packets above {format_time(tail.floor_ns)} only; give a "
            "threshold of at least that"
        ).at(f"{run.slug}: --late {text}")
    kept = tail.latency_ns > threshold
    if not kept.any():
        raise InputError(
            f"no packet took longer than {words}: give a lower --late; the "
            f"longest latency is {format_time(stored.max)}"
        ).at(run.slug)
    if int(kept.sum()) > MOST_LATE:
        raise InputError(
            f"{int(kept.sum()):,} packets took longer than {words}: give a higher "
            f"--late, for {MOST_LATE:,} at most"
        ).at(run.slug)
    return Late(_above(tail, threshold), threshold, words, stored.percentile(0.5).value)


def lower(run: Run, late: Late) -> Late | None:
    """The packets above a lower threshold, which enough stalls must have made; None without any.

    Packets whose stays overlap are taken for one stall's. The threshold is the highest that has
    `ENOUGH` of these, or else the lowest that is allowed: what the evaluation kept, and an eighth
    of the excess that was asked for, as stalls that are much shorter are others.
    """
    tail = run.tail
    least = max(
        tail.floor_ns, late.median_ns + (late.threshold_ns - late.median_ns) // LEAST_EXCESS
    )
    falling = np.sort(tail.latency_ns[tail.latency_ns > least])[::-1][:MOST_LATE]
    asked, found = late.packets.ingress_ns.size, None
    count = asked
    while count < falling.size:
        count = min(2 * count, falling.size)
        threshold = int(falling[count]) if count < falling.size else least
        packets = _above(tail, threshold)
        if packets.ingress_ns.size == asked:
            continue
        words = f"p{100 * (1 - packets.ingress_ns.size / run.stored.counts.matched):.4g}"
        found = Late(packets, threshold, f"{words}, {format_time(threshold)}", late.median_ns)
        if _clusters(packets) >= ENOUGH:
            break
    return found


def kept(run: Run, late: Late) -> Late:
    """The packets that the evaluation kept, at most `MOST_KEPT` of the slowest: what may yet be the
    tail when causes are gone from the late ones.
    """
    tail = run.tail
    threshold = tail.floor_ns
    if tail.latency_ns.size > MOST_KEPT:
        threshold = int(np.partition(tail.latency_ns, -MOST_KEPT)[-MOST_KEPT])
    threshold = min(late.threshold_ns, max(threshold, late.median_ns))
    return Late(_above(tail, threshold), threshold, format_time(threshold), late.median_ns)


def _above(tail: StoredTail, threshold: int) -> Packets:
    kept = tail.latency_ns > threshold
    ingress, latency = tail.ingress_ns[kept], tail.latency_ns[kept]
    order = np.argsort(ingress + latency, kind="stable")
    return Packets(ingress[order], (ingress + latency)[order])


def _clusters(packets: Packets) -> int:
    """How many groups of packets there are whose stays overlap."""
    order = np.argsort(packets.ingress_ns, kind="stable")
    ends = np.maximum.accumulate(packets.egress_ns[order])
    return 1 + int((packets.ingress_ns[order][1:] > ends[:-1]).sum())


def usual_packets(run: Run, folder: Path, clocks: Clocks | None = None) -> Packets:
    """Packets between the quartiles of the latency, from pieces all over the run's captures, of
    which each has a clock of its own where there are `clocks`.

    Raises `InputError` when the captures are gone.
    """
    stored = run.stored
    low, high = (stored.percentile(p).value for p in (0.25, 0.75))
    before, after = (capture_of(side, folder) for side in stored.inputs.both)
    matching: Matching = {
        # Marks of requests and their answers have a key of their own.
        "key": None if before.suffix == MARKS else stored.key,
        "trim_ns": stored.options.trim_ns,
        # A usual packet leaves soon, and pieces are read a window further than they reach.
        "window_ns": max(_LEAST_WINDOW_NS, 4 * high),
        "worst": 0,
        "clocks": None if clocks is None else (clocks.knots, clocks.within_ns),
    }
    pieces = _core.plan(before, after, matching, chunk_bytes=SAMPLE_BYTES)
    chosen = pieces[:: max(1, len(pieces) // SAMPLES)][:SAMPLES]
    ingress, latency = packets_of(chosen)
    usual = (latency >= low) & (latency <= high)
    ingress, egress = ingress[usual], (ingress + latency)[usual]
    order = np.argsort(egress, kind="stable")
    return Packets(ingress[order], egress[order])


def packets_of(pieces: Iterable[bytes]) -> tuple[Column, Column]:
    """Ingress stamps and latencies of pieces, of some of which no packet may have come through."""
    found = [(b"", b"")]
    for piece in pieces:
        with contextlib.suppress(NothingMatched):
            _, columns, _ = _core.conclude(_core.evaluate_piece(piece), bucket_ns=100)
            found.append(columns["exceedances"][2:])
    sides = (b"".join(side) for side in zip(*found, strict=True))
    ingress, latency = (np.frombuffer(side, np.int64) for side in sides)
    return ingress, latency


class StampsGone(InputError):
    """Somebody took the stamps of a run away."""


def capture_of(side: Side, folder: Path) -> Path:
    """The capture of a side in a run folder. Raises `StampsGone` when it is gone."""
    path = folder / Path(side.path).name
    if not path.is_file():
        path = path.with_suffix(MARKS)
    if not path.is_file():
        raise StampsGone(
            "the stamps of the run are gone, and with them the core that served each packet: "
            "copy them back, or measure again"
        ).at(path)
    return path


def flows_of(run: Run, packets: Packets, folder: Path) -> Sequence[str]:
    """The flow of each packet; empty where the capture before the device does not say it."""
    capture = capture_of(run.stored.inputs.ingress, folder)
    if capture.suffix in (STAMPS, MARKS):
        return [""] * packets.ingress_ns.size
    stamps, place = np.unique(packets.ingress_ns, return_inverse=True)
    names = _core.flows_at(capture, stamps)
    return [names[at] for at in place.tolist()]


UNKNOWN = -1
"""In place of a stamp that is missing."""


@dataclass(frozen=True)
class Segment:
    """Nodes that packets pass one after the other, on the same cores."""

    nodes: tuple[str, ...]
    """Empty where the device is one node, or where nobody says."""
    served: Served
    ingress: Path
    egress: Path
    clocks: Clocks | None = None
    """How the clock of `egress` stands to that of `ingress`; None where both are one."""

    def leaving(self, times: Column) -> tuple[Column, Column]:
        """Of times, which ascend: how many packets had left before each, and the core on which one
        left then; `UNKNOWN` where nobody says.
        """
        by_egress = times
        if self.clocks is not None:
            # A packet that left then had not left before, however its stamp was rounded.
            by_egress = self.clocks.egress_ns(times) - 1
        positions, cpus = _core.leaving(self.egress, by_egress)
        return np.frombuffer(positions, np.int64), np.frombuffer(cpus, np.int64)

    def __str__(self) -> str:
        """As people read it: ``dut2 (CPU 1)``."""
        first, last = self.nodes[0], self.nodes[-1]
        cpus = self.served.cpus
        where = f"CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}"
        return f"{first} to {last} ({where})" if len(self.nodes) > 1 else f"{first} ({where})"


def segments(run: Run, trace: Trace, folder: Path) -> tuple[Segment, ...]:
    """The segments that the packets of a run pass, in their order.

    Raises `InputError` where nodes work on different cores, and no packet was stamped between them.
    """
    ends = RunFolder(folder).ingress, RunFolder(folder).egress
    hops = hop_captures(run.record, folder)
    # The queue of a node is served by what serves the node.
    nodes = list(dict.fromkeys(hop.node for hop in hops)) or _passed(run, trace)
    servers = [trace.nodes[node] for node in nodes if node in trace.nodes]
    if not trace.nodes or len({one.cpus for one in servers}) <= 1 or len(servers) < len(nodes):
        return (Segment(tuple(nodes), trace.served, *ends, trace.clocks),)
    if not hops:
        cores = ", ".join(f"{node} on {ranges(trace.nodes[node].cpus)}" for node in nodes)
        raise InputError(
            f"its nodes work on different CPUs ({cores}), and the stamps do not say at "
            "which node a packet was late: measure with `dut.taps: hops`"
        ).at(run.slug)
    return tuple(
        _joined([(hop.node, trace.nodes[hop.node], hop.ingress, hop.egress) for hop in hops])
    )


def _passed(run: Run, trace: Trace) -> list[str]:
    """The nodes that are served on the way of the run's flow, in their order."""
    flows = run.record.flows if run.record else []
    name = run.variables.get("flow", flows[0].name if flows else "")
    path = next((flow.path for flow in flows if flow.name == name), trace.nodes)
    passed = dict.fromkeys(port.partition(":")[0] for port in path)
    return [node for node in passed if node in trace.nodes]


def _joined(rows: Sequence[tuple[str, Served, Path, Path]]) -> Iterator[Segment]:
    for _, group in groupby(rows, key=lambda row: row[1].cpus):
        ones = list(group)
        served = Served.together([one[1] for one in ones])
        nodes = tuple(dict.fromkeys(one[0] for one in ones))
        yield Segment(nodes, served, ones[0][2], ones[-1][3])


def leaving(run: Run, folder: Path) -> list[Path]:
    """The stamp files of all tap points behind something that serves."""
    hops = hop_captures(run.record, folder)
    return [hop.egress for hop in hops if hop.part == NODE] or [RunFolder(folder).egress]


def stamps_of(packets: Packets, ways: Sequence[Segment]) -> Column:
    """The stamps of packets at the ends of segments: a row for each packet, `UNKNOWN` for none.

    Ids may repeat in a long capture. A packet's own stamp is the first one of its id that lies
    between its stamps at both ends and not before the tap point that it passed last. Raises
    `InputError` when a stamp file cannot be read.
    """
    found = [packets.ingress_ns]
    if len(ways) > 1:
        ids = _ids(packets, ways[0].ingress, ways[-1].egress)
        passed = packets.ingress_ns
        for way in ways[:-1]:
            stamp = first_between(way.egress, ids, passed, packets.egress_ns, UNKNOWN)
            passed = np.maximum(passed, stamp)
            found.append(stamp)
    return np.column_stack([*found, packets.egress_ns])


def _ids(packets: Packets, ingress: Path, egress: Path) -> Column:
    """The ids of packets, by both of their stamps; `UNKNOWN` where nobody has both."""
    times, at_times = ids_at(egress, packets.egress_ns)
    first = np.searchsorted(times, packets.egress_ns, "left")
    last = np.searchsorted(times, packets.egress_ns, "right")
    found = np.full(packets.egress_ns.size, UNKNOWN, np.int64)
    pending = np.flatnonzero(first < last)
    while pending.size:
        # Nearly always one packet alone left at a time.
        ids, entered = at_times[first[pending]], packets.ingress_ns[pending]
        is_it = first_between(ingress, ids, entered, entered, UNKNOWN) != UNKNOWN
        found[pending[is_it]] = ids[is_it]
        pending = pending[~is_it]
        first[pending] += 1
        pending = pending[first[pending] < last[pending]]
    return found


def between(stamps: Column, place: int) -> Packets:
    """What packets passed of a segment, as if it were the device."""
    return Packets(stamps[:, place], stamps[:, place + 1])


def only(packets: Packets, chosen: Column) -> Packets:
    """Some of the packets, by their places."""
    return replace(
        packets, ingress_ns=packets.ingress_ns[chosen], egress_ns=packets.egress_ns[chosen]
    )
