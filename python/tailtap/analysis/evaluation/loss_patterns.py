"""What the packets that were lost have in common: flow, length, distance, bursts, load, stalls.

Each pattern is tested against chance, by bursts, as packets of a burst are no evidence of their
own. Of captures whose losses have nothing in common, fewer than three in 1,000 show a pattern.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tailtap.analysis.evaluation.values import Column, Exceedances, Losses, Pair
from tailtap.base.units import format_share, format_time
from tailtap.records.evaluation import LossPattern

CHANCE = 1e-4
"""A pattern that chance makes more often than this is none."""
DEVIATIONS = 4
"""Busy stretches lose more than others by so many standard deviations, where chance is not all."""
MOST_BUSY = 0.6
"""What holds for more of the packets than this is no matter of their time."""
STRETCHES = 1_000
"""Time is cut into so many stretches or more, where packets are many."""
LEAST = 8
"""Of fewer lost packets nothing is said but what holds for all of a flow."""
NAMED = 3
"""So many flows are named."""
PER_STRETCH = 8
"""Stretches of time are as long as this many packets take on average, or longer."""

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Arrivals:
    """All packets with a key before the device, those that were lost among them."""

    flows: Mapping[str, int]
    """How many there are of each flow."""
    lengths: Mapping[int, int]
    """And of each length in bytes; empty where the capture does not say lengths."""
    width_ns: int
    """How long stretches of time are."""
    blocks: Pair
    """Their starts in ns, ascending, and how many packets came in each; empty ones are left out."""

    @property
    def packets(self) -> int:
        """How many there are."""
        return int(self.blocks[1].sum())


def loss_patterns(losses: Losses, arrivals: Arrivals, late: Exceedances) -> list[LossPattern]:
    """What `losses` have in common, the surest first; nothing where chance explains them.

    `late` are the largest latencies of the packets that were not lost.
    """
    whole = _whole_flows(losses, arrivals)
    found = [] if whole is None else [whole[0]]
    left = np.ones(len(losses.position), dtype=bool) if whole is None else ~whole[1]
    if left.sum() < LEAST:
        return found
    rest = Losses(
        losses.ingress_ns[left], losses.position[left], losses.length[left], losses.burst[left],
        list(compress(losses.flow, left)), list(compress(losses.key, left)),
    )  # fmt: skip
    starts = np.diff(rest.position, prepend=-2) != 1
    patterns = (
        _only_flows(rest, starts, arrivals),
        _lengths(rest, starts, arrivals),
        _period(rest, starts, arrivals),
        _bursts(rest, starts, arrivals),
        *_in_time(rest, arrivals, late),
    )
    return found + [one for one in patterns if one is not None]


def _names(flows: Sequence[str]) -> str:
    named = ", ".join(flows[:NAMED])
    more = len(flows) - NAMED
    return f"{named} and {more:,} other{'s' if more > 1 else ''}" if more > 0 else named


def _whole_flows(losses: Losses, arrivals: Arrivals) -> tuple[LossPattern, Mask] | None:
    """Flows of which every packet was lost, and which of the lost packets are theirs."""
    lost = Counter(losses.flow)
    flows, position = np.array(losses.flow, dtype=object), losses.position
    bursts = np.cumsum(np.diff(position, prepend=-2) != 1)

    def by_chance(name: str) -> float:
        # Among the others that came meanwhile, so that an outage is no rule against a short flow.
        mine = np.flatnonzero(flows == name)
        count, first, last = len(mine), mine[0], mine[-1]
        share = (last + 2 - first - count) / (position[last] - position[first] + 2 - count)
        return float(share ** len(np.unique(bursts[mine]))) * len(arrivals.flows)

    whole = [name for name, count in lost.most_common() if count == arrivals.flows.get(name)]
    # A flow that alone was lost, and all of it, is as good as named.
    alone = len(whole) == len(lost) <= NAMED and min(lost.values(), default=0) > LEAST
    if not alone:
        whole = [name for name in whole if by_chance(name) < CHANCE]
    if not whole or len(arrivals.flows) == 1:
        return None
    count = sum(lost[name] for name in whole)
    of_whom = f"flow {whole[0]}" if len(whole) == 1 else f"{len(whole):,} flows ({_names(whole)})"
    text = f"{count:,} of {count:,} packets of {of_whom} are lost"
    if len(whole) == len(lost):
        text += "; no other flow lost one" if len(arrivals.flows) > len(lost) else ""
    return LossPattern(kind="flow", lost=count, text=text), np.isin(flows, whole)


def _only_flows(losses: Losses, starts: Mask, arrivals: Arrivals) -> LossPattern | None:
    """A few flows that lost packets, where others lost none."""
    lost = Counter(losses.flow)
    names = [name for name, _ in lost.most_common()]
    total = sum(arrivals.flows.get(name, arrivals.packets) for name in names)
    share, ways = total / arrivals.packets, math.comb(len(arrivals.flows), len(names))
    if len(names) > NAMED or share ** int(starts.sum()) * ways >= CHANCE:
        return None
    which = "flow" if len(names) == 1 else "flows"
    text = f"only packets of {which} {_names(names)} are lost: {len(losses.flow):,} of {total:,}"
    return LossPattern(kind="flow", lost=len(losses.flow), text=text)


def _lengths(losses: Losses, starts: Mask, arrivals: Arrivals) -> LossPattern | None:
    """A range of lengths outside of which no packet was lost."""
    if not arrivals.lengths or losses.length.min() < 0:
        return None
    least, most = int(losses.length.min()), int(losses.length.max())
    total = sum(count for one, count in arrivals.lengths.items() if least <= one <= most)
    ways = len(arrivals.lengths) ** 2
    if (total / arrivals.packets) ** int(starts.sum()) * ways >= CHANCE:
        return None
    shorter = max((one for one in arrivals.lengths if one < least), default=None)
    longest = max(arrivals.lengths)
    if most == longest and shorter is not None:
        which = f"of more than {shorter:,} bytes"
    elif least == most:
        which = f"of {least:,} bytes"
    else:
        which = f"of {least:,} to {most:,} bytes"
    count = len(losses.length)
    text = f"only frames {which} are lost: {count:,} of {total:,}"
    return LossPattern(kind="length", lost=count, text=text)


def _period(losses: Losses, starts: Mask, arrivals: Arrivals) -> LossPattern | None:
    """One loss in so many packets."""
    steps = np.diff(losses.position[starts])
    if len(steps) < LEAST:
        return None
    values, counts = np.unique(steps, return_counts=True)
    period, equal = int(values[counts.argmax()]), int(counts.max())
    # The likeliest distance between losses is as likely as a loss.
    chance = special.bdtrc(equal - 1, len(steps), min(1.0, starts.sum() / arrivals.packets))
    if period < 2 or equal < 0.9 * len(steps) or chance * len(values) >= CHANCE:
        return None
    lost = len(losses.position)
    throughout = lost * period >= 0.9 * arrivals.packets
    what = f"one packet in {period:,} is lost" if throughout else "losses come at one distance"
    text = f"{what}: {equal:,} of {len(steps):,} are {period:,} packets behind the one before"
    return LossPattern(kind="period", lost=lost, text=text)


def _bursts(losses: Losses, starts: Mask, arrivals: Arrivals) -> LossPattern | None:
    """Fewer bursts than chance makes of as many losses."""
    lost, bursts = len(losses.position), int(starts.sum())
    kept = arrivals.packets - lost
    if kept < 0 or bursts == lost or _fewer_runs(bursts, lost, kept) >= CHANCE:
        return None
    ends = np.append(np.flatnonzero(starts)[1:], lost)
    longest = int((ends - np.flatnonzero(starts)).max())
    what = "in one burst" if bursts == 1 else f"in {bursts:,} bursts, {longest:,} in a row at most"
    text = f"{lost:,} packets are lost {what}"
    return LossPattern(kind="bursts", lost=lost, text=text)


def _in_time(losses: Losses, arrivals: Arrivals, late: Exceedances) -> list[LossPattern]:
    """Loss that comes with load, and loss while packets wait for long."""
    width_ns, (starts, packets) = arrivals.width_ns, arrivals.blocks
    # Fewer and longer stretches, until there are packets in each.
    while len(starts) >= 2 * STRETCHES and packets.mean() < PER_STRETCH:
        width_ns *= 2
        numbers = (starts - starts[0]) // width_ns
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        starts = starts[0] + numbers[first] * width_ns
        packets = np.add.reduceat(packets, first)
    places = np.searchsorted(starts, losses.ingress_ns, "right").clip(1) - 1
    lost = np.bincount(places, minlength=len(starts))
    packets = np.maximum(packets, lost)
    order = np.argsort(packets)
    median = packets[order][np.searchsorted(packets[order].cumsum(), packets.sum() / 2)]
    found = []
    busy = packets > median
    if share := _beyond_chance(lost, packets, busy):
        text = (
            f"loss comes with load: {format_share(share[0])} of the lost packets, and "
            f"{format_share(share[1])} of all, "
            f"came at more than {median * 1e9 / width_ns:,.0f} packets a second"
        )
        found.append(LossPattern(kind="load", lost=int(lost[busy].sum()), text=text))
    if not len(late.latency_ns):
        return found
    stalled = np.zeros(len(starts) + 1, dtype=np.int64)
    ends = late.ingress_ns + late.latency_ns
    np.add.at(stalled, np.searchsorted(starts, late.ingress_ns, "right").clip(1) - 1, 1)
    np.add.at(stalled, np.searchsorted(starts, ends, "right"), -1)
    during = stalled[:-1].cumsum() > 0
    if share := _beyond_chance(lost, packets, during):
        longest = int(late.latency_ns.argmax())
        at = (int(late.ingress_ns[longest]) - int(starts[0])) / 1e9
        text = (
            f"loss comes with stalls: {format_share(share[0])} of the lost packets, and "
            f"{format_share(share[1])} of all, came while one waited for "
            f"{format_time(int(late.latency_ns.min()))} or more, the longest at {at:.6f} s"
        )
        found.append(LossPattern(kind="stall", lost=int(lost[during].sum()), text=text))
    return found


def _beyond_chance(lost: Column, packets: Column, where: Mask) -> tuple[float, float] | None:
    """The shares of lost packets and of all in some stretches, where loss keeps to these.

    Either losses begin there too often, or the stretches lose more than those that follow them:
    each such pair counts once, however many packets it lost.
    """
    of_all = float(packets[where].sum() / packets.sum())
    share = float(lost[where].sum() / lost.sum())
    if not 0 < of_all <= MOST_BUSY or share < min(1.5 * of_all, (1 + of_all) / 2):
        return None
    begins = (lost > 0) & (np.append(0, lost[:-1]) == 0)
    if special.bdtrc((begins & where).sum() - 1, begins.sum(), of_all) < CHANCE:
        return share, of_all
    pairs = np.cumsum(where & ~np.append(False, where[:-1]))
    (lost_in, lost_of), (all_in, all_of) = (
        [np.bincount(pairs, np.where(mask, counts, 0)) for mask in (where, True)]
        for counts in (lost, packets)
    )
    # How much more than its part of a pair's losses the first of the two has.
    more = lost_in - all_in * lost_of / np.maximum(all_of, 1)
    spread = math.sqrt(float((more**2).sum()))
    return (share, of_all) if spread and more.sum() / spread > DEVIATIONS else None


def _fewer_runs(runs: int, lost: int, kept: int) -> float:
    """How likely `lost` packets among others lie in so few runs or fewer (Wald and Wolfowitz)."""
    k = np.arange(1, min(runs, kept + 1) + 1)
    every = _log_comb(lost + kept, np.array([lost]))
    return float(np.exp(_log_comb(lost - 1, k - 1) + _log_comb(kept + 1, k) - every).sum())


def _log_comb(n: int, k: Column) -> Floats:
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
