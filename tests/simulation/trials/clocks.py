"""Captures of two clocks: whatever these are to each other, the truth lies in all bounds.

The true clock is that of the tap before the device, without its steps.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from pairs import in_pieces
from stamps import write_stamps

from tailtap.analysis.clocks.alignment import Stepped
from tailtap.analysis.clocks.host import guest_clock
from tailtap.analysis.evaluation import Evaluation, Settings, evaluate
from tailtap.analysis.evaluation.clocks import Clocks, aligned, known, of_cards
from tailtap.analysis.evaluation.values import papers
from tailtap.analysis.verdict.requirement import parse_requirement
from tailtap.analysis.verdict.runs import judge_runs
from tailtap.base.errors import InputError, NothingMatched
from tests.simulation.clocks import Clock, another, read_by, resolution
from tests.simulation.draw import Draw
from tests.simulation.machine import Integers
from tests.simulation.traffic import NEVER, START_NS, Packets, packets
from tests.simulation.trial import Tally, Trial

ENOUGH, MANY, SAMPLE = 100, 16, 1_000
"""Packets and different gaps that show the step of a clock (docs/explanation/latency.md), and how
many packets are looked at for that.
"""
DATE_NS = 1_760_000_000_000_000_000
LEAST_NS = 200
"""No packet takes less, either way."""
FILES = ("ingress", "guest-ingress", "guest-egress", "egress")
"""There before and behind the device, back before and behind it: as a run has those of a guest."""


@dataclass(frozen=True)
class World:
    """Packets both ways through a device between two taps."""

    there: Packets
    back: Packets
    ours: Clock
    theirs: Clock

    @property
    def stamps(self) -> list[tuple[Integers, Integers]]:
        """Times and numbers of what each file holds, as in `FILES`."""
        found = []
        for made, clocks in (
            (self.there, (self.ours, self.theirs)),
            (self.back, (self.theirs, self.ours)),
        ):
            found.append((clocks[0].shows(made.sent), np.arange(made.sent.size)))
            found.append((clocks[1].shows(made.left[made.arrived]), made.arrived))
        return found

    @property
    def steady(self) -> bool:
        """Whether nobody set the other clock meanwhile."""
        return not self.theirs.step_ns and not self.theirs.bend

    def write(self, folder: Path) -> None:
        for name, (times, ids) in zip(FILES, self.stamps, strict=True):
            write_stamps(folder / f"{name}.stamps", times, ids)


def shown(times: Integers) -> bool:
    """Whether so many stamps show the step of their clock, the first of them as well."""
    gaps = np.unique(np.diff(np.sort(times[:SAMPLE])))
    return times.size >= ENOUGH and (gaps.size >= MANY or (gaps.size > 1 and gaps[0] == 0))


def showing(world: World) -> World:
    """The same with clocks in steps only where all stamps show that."""
    if all(shown(times) for times, _ in world.stamps):
        return world
    fine = (replace(clock, resolution_ns=1) for clock in (world.ours, world.theirs))
    return World(world.there, world.back, *fine)


def way_back(draw: Draw, there: Packets) -> Packets:
    """Packets the other way at the same time, by other delays."""
    number = draw.count("back", 2, 1_000)
    first, last = int(there.sent[0]), int(there.sent[-1]) + 1
    random = draw.stream("back")
    sent = np.sort(random.integers(first, last, number))
    if draw.has("back at times", 0.2):
        about = draw.stream("back at times").choice(sent, 3)
        sent = np.sort(random.choice(about, number) + random.integers(0, 1_000_000, number))
    least = draw.magnitude("least back", LEAST_NS, 100_000)
    took = least + np.rint(random.exponential(draw.magnitude("mean back", 10, 10**6), number))
    return Packets(sent, sent + took.astype(np.int64))


def dated(made: Packets) -> Packets:
    """The same packets this year."""
    return Packets(made.sent + DATE_NS, np.where(made.left == NEVER, NEVER, made.left + DATE_NS))


def run(draw: Draw, folder: Path) -> Tally:
    there = packets(draw)
    back = way_back(draw, there)
    theirs = another(draw, int(there.sent[-1]))
    ours = Clock(resolution_ns=resolution(draw, "our stamps"))
    if draw.has("a date", 0.3):
        there, back = dated(there), dated(back)
        since_ns, step_at_ns = START_NS + DATE_NS, theirs.step_at_ns + DATE_NS
        theirs = replace(theirs, since_ns=since_ns, step_at_ns=step_at_ns)
    world = showing(World(there, back, ours, theirs))
    world.write(folder)
    tally: Tally = {}
    if there.arrived.size:
        tally = by_packets(draw, world, folder)
        by_interval(draw, world, folder)
        by_readings(draw, world, folder)
    return tally


def by_packets(draw: Draw, world: World, folder: Path) -> Tally:
    """What packets both ways leave open, or that they show a step."""
    before, after, left, came = (folder / f"{name}.stamps" for name in FILES)
    try:
        clocks = aligned(before, after, (left, came))
        found = evaluated(before, after, clocks)
    except InputError as error:
        if "stepped, or changed its rate" in str(error) or "stepped by" in str(error):
            assert not world.steady, error
            return {"noticed": (1, 1)}
        assert any(one in str(error) for one in ("different times", "open", "known to")), error
        return {}
    if not world.steady:
        return {"noticed": (0, 1)}
    holds_truth(found, world)
    holds_line(found, world)
    if draw.has("in pieces", 0.2):
        settings = pickle.loads(pickle.dumps(Settings(clocks=clocks, throughout=True)))
        assert in_pieces(before, after, settings, chunk_bytes=2_000).as_json() == found.as_json()
    if world.ours.resolution_ns == world.theirs.resolution_ns == 1:
        holds_moments(world, folder)
    if draw.has("judged", 0.2):
        judged(draw, found, world, folder)
    quickest = min(took(world.there)) + min(took(world.back))
    assert 2 * clocks.within_ns >= quickest * (1 - abs(world.theirs.drift)) - 2
    return {"twice the quickest": (clocks.within_ns <= quickest, 1)}


def by_interval(draw: Draw, world: World, folder: Path) -> None:
    """Somebody knows all that the clocks' difference ever was."""
    times = np.concatenate([world.there.sent, world.there.left[world.there.arrived]])
    ahead = world.theirs.ahead(times)
    spare = [draw.magnitude("spare", 1, 100_000) for _ in range(2)]
    ends = int(ahead.min()) - spare[0], int(ahead.max()) + spare[1]
    before, after = (folder / f"{name}.stamps" for name in FILES[:2])
    try:
        found = evaluated(before, after, known(*ends))
    except InputError as error:
        assert ends[1] - ends[0] >= 4 * 10**9 and "as long as --window" in str(error), error
        return
    if world.theirs.step_ns >= 0:
        holds_truth(found, world)


def by_readings(draw: Draw, world: World, folder: Path) -> None:
    """Both clocks were read all the time, by a third one."""
    drift = draw.choice("third", (-1, 1)) * draw.magnitude("third", 1, 50_000) / 1e8
    third = Clock(draw.between("third", 0, 10**15), drift)
    first, last = int(world.there.sent[0]), int(world.there.left.max())
    taps = (read_by(draw, clock, third, first, last) for clock in (world.ours, world.theirs))
    before, behind = (folder / f"{name}.stamps" for name in FILES[:2])
    try:
        found = evaluated(before, behind, of_cards(*taps))
    except InputError as error:
        # A small step looks like a drift, but packets may leave before they come.
        stepped = isinstance(error.__cause__, Stepped) or isinstance(error, NothingMatched)
        assert not world.steady and stepped, error
        return
    if world.steady:
        holds_truth(found, world)


def evaluated(before: Path, after: Path, clocks: Clocks) -> Evaluation:
    return evaluate(before, after, clocks=clocks, throughout=True)


def took(made: Packets) -> Integers:
    """The latencies of those that arrived, in the order in which they did."""
    return (made.left - made.sent)[made.arrived]


def holds_truth(found: Evaluation, world: World) -> None:
    """All numbers of an evaluation of two clocks against those of the true one."""
    off, true = found.within_ns, np.sort(took(world.there))
    counts = found.counts
    lost = int((world.there.left == NEVER).sum())
    assert (counts.matched, counts.lost, counts.noncausal) == (true.size, lost, 0)
    latency = world.there.left - world.there.sent
    for packet in found.worst():
        assert abs(packet.latency - int(latency[int(packet.key)])) <= off, packet
        assert packet.egress_ns - packet.ingress_ns == packet.latency
    assert len(found.worst()) == true.size
    assert np.abs(np.repeat(*found.distribution) - true).max() <= off
    told = found.as_json()["latency_ns"]
    for name, value in (("min", true[0]), ("max", true[-1]), ("mean", true.mean())):
        low, high = told["bounds"][name] if "bounds" in told else 2 * [told[name]]
        assert low - 1e-6 <= value <= high + 1e-6, name
    rows = found.percentiles(papers())
    # A share in floating point may be a little more or less than that of a whole number.
    shares = np.array([row.p for row in rows]) * true.size
    ranks = (np.clip(np.ceil(shares + about) - 1, 0, true.size - 1) for about in (-1e-6, 1e-6))
    least, most = (true[rank.astype(np.int64)].tolist() for rank in ranks)
    for row, low, high in zip(rows, least, most, strict=True):
        assert low - off <= row.value <= high + off, row
        assert row.low is None or row.low <= high
        assert row.high is None or low <= row.high


def holds_line(found: Evaluation, world: World) -> None:
    """What is said of the clocks: when, how far apart they were then, and how fast they drifted."""
    told = found.as_json()["clocks"]
    assert told["by"] == "packets" and told["widest_ns"] == 2 * told["within_ns"]
    steps = world.ours.resolution_ns + world.theirs.resolution_ns
    truth = world.theirs.ahead(np.array(told["at_ns"])).tolist()
    for (least, most), ahead in zip(told["ahead_ns"], truth, strict=True):
        assert least - steps <= ahead <= most + steps
    assert world.theirs.wander or told["drifts"][0] <= world.theirs.drift <= told["drifts"][1]
    assert [one.code for one in found.warnings].count("two-clocks") == 1


def holds_moments(world: World, folder: Path) -> None:
    """The clock of a guest is as near as it says."""
    clock = guest_clock(folder)
    times = np.concatenate([world.there.sent, world.there.left[world.there.arrived]])
    theirs = times + world.theirs.ahead(times)
    off = clock.off_ns(times) + 1
    assert (np.abs(clock.host_ns(theirs) - times) <= off).all()


def judged(draw: Draw, found: Evaluation, world: World, folder: Path) -> None:
    """What is shown of a limit is so by the true clock."""
    found.write(folder / "found")
    assert Evaluation.load(folder / "found").as_json() == found.as_json()
    true = np.sort(took(world.there))
    middle = int(draw.stream("limit").choice(true))
    limit = max(1, middle + draw.choice("limit", (-1, 1)) * draw.magnitude("limit", 1, 100_000))
    late = int((true >= limit).sum())
    below = {
        "max": late == 0,
        "mean": true.mean() < limit,
        "p50": late <= true.size // 2,
        "p90": late <= true.size // 10,
    }
    wanted = [parse_requirement(f"{name} < {limit} ns") for name in below]
    if limit < found.as_json()["clocks"]["widest_ns"]:
        with pytest.raises(InputError, match="leave open"):
            judge_runs([folder / "found"], wanted)
        return
    verdicts = judge_runs([folder / "found"], wanted).verdicts
    for row, holds in zip(verdicts, below.values(), strict=True):
        assert row.answer == "not shown" or (row.answer == "holds") == holds, row


TRIAL = Trial("clocks", run, rates={"noticed": (0.3, 0.7), "twice the quickest": (0.65, 0.95)})
"""Steps of any size are noticed where they are larger than what the packets leave open."""
