"""Requirements near the truth: no answer that what nobody saw contradicts, errors as stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import stats

from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.evaluation.values import Unread
from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.judge import judge
from tailtap.analysis.verdict.requirement import parse_requirement
from tailtap.records.verdict import Answer, RunFinding
from tests.simulation.draw import Draw
from tests.simulation.latencies import INDICES, Integers, law, shares, stored
from tests.simulation.trial import Tally, Trial

ALLOWED = ("30", "10", "1", "0.1")
"""Shares in per cent that may be late."""
NEVER = 10**15
"""In place of the latency of a packet that the device dropped."""
NOBODY = np.empty(0, np.int64)
TIMES = 5
HIDES = ("changed payloads", "stamps not read", "stamps before the device not read")
OPPOSITE: Mapping[Answer, Answer] = {"holds": "violated", "violated": "holds"}


@dataclass(frozen=True)
class Device:
    """What became of packets, and which of them somebody saw."""

    latency: Integers
    """In ns by the true clocks, or `NEVER`."""
    changed: Integers
    """Packets that left the device as others: a payload was changed on the way."""
    unread: Integers
    """Packets of which the capture after the device has no stamp that is read."""
    unread_before: Integers
    """The same of that before it: these match none."""
    off_ns: int = 0
    """How far the clock after the device is ahead."""
    within_ns: int = 0
    """How far it may be, by what the captures tell."""

    @property
    def hidden(self) -> Integers:
        """The packets of which nobody knows how late they were."""
        return np.concatenate([self.changed, self.unread, self.unread_before])

    def evidence(self) -> Evidence:
        """What a run says of it."""
        arrived = self.latency != NEVER
        here = arrived.copy()
        here[self.hidden] = False
        seen = self.latency[here] + self.off_ns
        unmatched = int(arrived[np.concatenate([self.changed, self.unread_before])].sum())
        ingress = self.latency.size - self.unread_before.size
        counts = {
            "matched": seen.size,
            "lost": ingress - seen.size,
            "egress": seen.size + unmatched,
            "unmatched_egress": unmatched,
        }
        return Evidence(
            name="made",
            packets=seen.size,
            offered=ingress,
            maximum=int(seen.max()) if seen.size else None,
            mean=float(seen.mean()) if seen.size else None,
            counts=counts,
            distribution=np.unique(seen, return_counts=True) if seen.size else None,
            rate=10_000.0,
            before=Unread(self.unread_before.size),
            after=Unread(int(arrived[self.unread].sum())),
            within=Within(self.within_ns),
            unread_told=True,
        )

    def others(self) -> list[Device]:
        """Devices that look the same: of which what nobody saw is early, late or dropped. Where no
        packet behind the device lacks its like before it, none of them left.
        """
        found = [self]
        # Each stamp that is not read is of a packet that left.
        unread = self.unread[self.latency[self.unread] != NEVER]
        groups = np.concatenate([self.changed, self.unread_before]), unread
        there = [group for group in groups if (self.latency[group] != NEVER).any()]
        for value in (0, NEVER - 1, NEVER):
            latency = self.latency.copy()
            latency[np.concatenate([NOBODY, *there])] = value
            found.append(replace(self, latency=latency))
        return [
            replace(one, latency=np.where(one.latency >= NEVER - 1, one.latency, one.latency + off))
            for one in found
            for off in {0, self.off_ns - self.within_ns, self.off_ns + self.within_ns}
        ]


def device(draw: Draw) -> Device:
    """Packets that do not depend on each other, and what hides some of them."""
    random = draw.stream("packets")
    latency = law(draw).at(1 - random.random(draw.count("packets", 20, 30_000)))

    def some(feature: str) -> Integers:
        chosen = draw.stream(feature)
        share = chosen.choice([1e-4, 1e-3, 1e-2])
        return np.flatnonzero(chosen.random(latency.size) < share)

    if draw.has("device drops", 0.3):
        latency[some("device drops")] = NEVER
    hidden: list[Integers] = []
    for feature in HIDES:
        chosen = some(feature) if draw.has(feature, 0.2) else NOBODY
        hidden.append(np.setdiff1d(chosen, np.concatenate([NOBODY, *hidden])))
    changed, unread, before = hidden
    found = Device(latency, changed, unread, before)
    if draw.has("two clocks", 0.3):
        within = draw.magnitude("within", 10, 20_000)
        off = draw.between("off", -within, within)
        found = replace(found, within_ns=within, off_ns=off)
    return found


def share_answer(late: int, packets: int, allowed: Fraction) -> Answer:
    """By the exact bounds of a binomial share (Clopper and Pearson), ten of which may be late."""
    upper = 1.0 if late == packets else stats.beta.ppf(0.95, late + 1, packets - late)
    lower = 0.0 if not late else stats.beta.ppf(0.05, late, packets - late + 1)
    if packets * allowed >= 10 and upper <= allowed:
        return "holds"
    return "violated" if lower > allowed else "not shown"


def requirements(draw: Draw, latency: Integers) -> dict[str, tuple[str, Fraction, int]]:
    """What is required: its quantity, the share that may be late or lost, the limit in ns."""
    random = draw.stream("limit")
    percent = draw.choice("allowed", ALLOWED)
    allowed = Fraction(percent) / 100
    arrived = latency[latency != NEVER]
    middle = np.quantile(arrived, 1 - float(allowed) * random.choice([0.3, 0.8, 1.0, 1.2, 3.0]))
    limit = max(int(middle) + draw.between("beside", -1, 1), 1)
    largest = max(int(arrived.max()) + draw.between("beside", -1, 1), 1)
    mean = max(round(arrived.mean() * random.choice([0.5, 0.99, 1.01, 2.0])), 1)
    most = 100 - Fraction(percent)
    return {
        f"p{float(most):g} < {limit} ns": ("percentile", allowed, limit),
        f"p{float(most):g} <= {limit} ns": ("percentile", allowed, limit + 1),
        f"reliability({limit} ns) >= {float(most):g} %": ("reliability", allowed, limit + 1),
        f"loss < {percent} %": ("loss", allowed, 0),
        "loss == 0": ("loss", Fraction(0), 0),
        f"max < {largest} ns": ("max", Fraction(0), largest),
        f"mean <= {mean} ns": ("mean", Fraction(0), mean),
    }  # fmt: skip


def true_answer(quantity: str, allowed: Fraction, limit: int, latency: Integers) -> Answer:
    """What a run would show of packets each of which somebody saw."""
    arrived = latency[latency != NEVER]
    if quantity == "mean":
        return "holds" if int(arrived.sum()) <= limit * arrived.size else "violated"
    judged = latency if quantity in ("reliability", "loss") else arrived
    late = int((judged >= (limit or NEVER)).sum())
    if not allowed:
        return "violated" if late else "holds"
    return share_answer(late, judged.size, allowed)


def decided(draw: Draw) -> dict[str, tuple[int, int]]:
    """No answer is one that a device which looks the same contradicts."""
    made = device(draw)
    run, others = made.evidence(), made.others()
    assert run.lost is not None
    gone, answers = Fraction(run.lost[1], made.latency.size), 0
    wanted = requirements(draw, made.latency)
    for text, (quantity, allowed, limit) in wanted.items():
        found = judge(parse_requirement(text), run)
        answers += found.answer != "not shown"
        true = {true_answer(quantity, allowed, limit, other.latency) for other in others}
        assert OPPOSITE.get(found.answer) not in true, (text, found.reason)
        if quantity == "percentile" and gone > allowed:
            assert found.answer == "not shown", text
        elif not made.hidden.size and (not limit or limit > 2 * made.within_ns + 1):
            assert found.answer == (true.pop() if len(true) == 1 else "not shown"), text
            if not made.within_ns and "more_packets" in found.figures:
                longer(text, found, made)
    return {"decided": (answers, len(wanted))}


def longer(text: str, found: RunFinding, made: Device) -> None:
    """As many more good packets as are said to be needed show it, and fewer do not."""
    more = found.figures["more_packets"]
    for packets, answer in ((more, "holds"), (more - 2, "not shown")):
        good = np.zeros(max(packets, 0), np.int64)
        latency = np.concatenate([made.latency, good])
        run = replace(made, latency=latency).evidence()
        assert packets < 1 or judge(parse_requirement(text), run).answer == answer, text


def errors(draw: Draw) -> dict[str, tuple[int, int]]:
    """How often a run says of all packets to come what is not so, just where it begins."""
    found, random = law(draw), draw.stream("just")
    percent = draw.choice("allowed of all", ALLOWED)
    allowed, index = float(percent) / 100, 1.0
    packets = draw.count("judged packets", 200, 20_000)
    if draw.has("clusters of late packets", 0.3):
        index = float(random.choice(INDICES))
        packets = round(draw.magnitude("clusters", 10, 40) / index / allowed)
    limit = max(int(found.at(allowed * random.choice([0.7, 1.0, 1.01]))), 1)
    wrong, name = "violated", "not called violated"
    if found.above(limit) > allowed:
        wrong, name = "holds", "not said to hold" + " in clusters" * (index < 1)
    elif index < 1:
        return {}  # a run in which too many are late violates it, whatever others would do
    wanted = parse_requirement(f"p{100 - float(percent):g} <= {limit} ns")
    right = 0
    for _ in range(TIMES):
        latency = found.at(shares(random, packets, index))
        run = Device(latency, NOBODY, NOBODY, NOBODY).evidence()
        right += judge(wanted, replace(run, tail=stored(latency))).answer != wrong
    return {name: (right, TIMES)}


def run(draw: Draw, folder: Path) -> Tally:
    """One run of each."""
    return {**decided(draw), **errors(draw)}


TRIAL = Trial(
    "verdict",
    run,
    rates={
        "decided": (0.5, 1.0),
        "not said to hold": (0.95, 1.0),
        "not said to hold in clusters": (0.93, 1.0),
        "not called violated": (0.95, 1.0),
    },
)
