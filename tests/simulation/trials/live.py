"""Captures that grow while they are followed: each packet counts once, as it does in the end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tailtap.analysis.evaluation import Settings, evaluate
from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.analysis.live.counting import BOUNDS_NS, SCHEMA, Counted, Counter, Histogram
from tailtap.analysis.live.numbers import Above, Episode, Episodes, Found, Lost
from tailtap.analysis.live.written import Growing, Row
from tests.simulation.draw import Draw
from tests.simulation.growing import KINDS, SECOND, Tap, tap
from tests.simulation.machine import Integers
from tests.simulation.traffic import NEVER, START_NS
from tests.simulation.trial import Trial

LATEST_NS = 2_900_000_000
"""How long a tap keeps what it stamped before it writes it."""
PRECISION = 2.0**-10
"""By how much percentiles meanwhile may be too large: docs/howto/live.md."""
LONGEST = 10
"""An incident is at most so many times as long as what is kept before it."""


@dataclass(frozen=True)
class Traffic:
    """Packets in the order in which they come."""

    sent: Integers
    left: Integers
    ids: Integers
    window_ns: int

    @property
    def arrived(self) -> npt.NDArray[np.bool_]:
        """Whether each left in time."""
        came = self.left != NEVER
        in_time: npt.NDArray[np.bool_] = came & (self.left - self.sent <= self.window_ns)
        return in_time


def traffic(draw: Draw) -> Traffic:
    number = draw.count("packets", 2, 3_000)
    window = draw.magnitude("window", 10_000_000, SECOND)
    random = draw.stream("traffic")
    span = draw.magnitude("span", SECOND // 2, 30 * SECOND)
    sent = np.sort(START_NS + random.integers(0, span, number))
    left = sent + draw.magnitude("least latency", 200, 100_000)
    left += random.exponential(draw.magnitude("mean", 100, 1_000_000), number).astype(np.int64)
    if draw.has("late", 0.5):
        late = draw.stream("late")
        left += (late.random(number) < 0.02) * late.integers(0, 9 * window // 10, number)
    if draw.has("too late", 0.3):
        late = draw.stream("too late")
        left += (late.random(number) < 0.01) * late.integers(window, 3 * window, number)
    if draw.has("device drops", 0.5):
        dropped = draw.stream("device drops")
        left[dropped.random(number) < dropped.choice([0.001, 0.02, 0.3])] = NEVER
    if draw.has("silence", 0.2):
        left[sent > draw.stream("silence").choice(sent)] = NEVER
    ids = np.arange(number)
    if draw.has("ids repeat", 0.3):
        # An id is another packet's some time after the first one cannot come any more.
        near = np.searchsorted(sent, sent + 8 * window) - ids
        ids = ids % max(int(near.max()), 1)
    return Traffic(sent, left, ids, window)


def run(draw: Draw, folder: Path) -> None:
    made = traffic(draw)
    kind, rotated = draw.choice("kind", KINDS), draw.has("rotated", 0.5)
    out = made.left != NEVER
    taps = (
        tap(draw, folder / f"ingress.{kind}", made.sent, made.ids, rotated=rotated),
        tap(draw, folder / f"egress.{kind}", made.left[out], made.ids[out], rotated=rotated),
    )
    counter, looks = followed(draw, taps, made, rotated=rotated)
    found = [counted for counted, _ in looks]
    adds_up(counter, found, made)
    equals_evaluated(counter, taps, made)
    for counted in found:
        holds_truth(counted, made)
    shows_incidents(draw, looks, made)


def followed(
    draw: Draw, taps: tuple[Tap, Tap], made: Traffic, *, rotated: bool
) -> tuple[Counter, list[tuple[Counted, int]]]:
    """The counter in the end, and what each look found, with when it was."""
    kind = Row if rotated else Growing
    ingress, egress = (kind(one.path) for one in taps)
    counter = Counter(ingress, egress, Settings(key="moonsniff", window_ns=made.window_ns))
    pauses, gone = draw.stream("pauses"), draw.has("files go", 0.5)
    until, now, looks = int(max(made.sent[-1], made.left.max())), START_NS, []
    while now < until + LATEST_NS:
        now += draw.magnitude("pause", SECOND // 50, 8 * SECOND)
        for one in taps:
            one.write(now - int(pauses.integers(0, LATEST_NS)), int(pauses.integers(0, 24)))
        if (counted := counter.look(now)) is not None:
            looks.append((counted, now))
        for side in (ingress, egress):
            if gone and isinstance(side, Row):
                side.drop(counter.needed_ns)
    for one in taps:
        one.write(now + SECOND)
    if (counted := counter.look(now, complete=True)) is not None:
        looks.append((counted, now))
    return counter, looks


def adds_up(counter: Counter, found: list[Counted], made: Traffic) -> None:
    """What was counted is all, and each of it once."""
    assert all(one.span.until_ns == after.span.from_ns for one, after in pairwise(found))
    for name, count in counter.counts.items():
        assert sum(one.counts[name] for one in found) == count, name
    counts, arrived = counter.counts, made.arrived
    late = int((made.left != NEVER).sum() - arrived.sum())
    told = (counts["ingress"], counts["matched"], counts["lost"], counts["unmatched_egress"])
    assert told == (made.sent.size, arrived.sum(), (~arrived).sum(), late), told
    took = np.sort((made.left - made.sent)[arrived])
    whole = [np.repeat(*one.latencies) for one in found]
    assert np.array_equal(np.sort(np.concatenate(whole)), took)
    kept = counter.latencies
    assert (kept.count, kept.sum_ns, kept.max_ns) == (took.size, took.sum(), took.max(initial=0))
    assert kept.cumulative == [int((took <= bound).sum()) for bound in BOUNDS_NS]
    below = 0
    for bucket in kept.exponential:
        below += bucket.count
        bound = 2 ** (bucket.index / 2**SCHEMA) * 1e9
        assert (took * (1 + PRECISION) <= bound).sum() <= below <= (took <= bound * 1.000001).sum()
    assert below == took.size
    merged = Histogram()
    for one in found:
        step = Histogram()
        step.add(*one.latencies)
        merged.merge(step)
    assert merged.percentiles(DEFAULT) == kept.percentiles(DEFAULT)
    assert (merged.cumulative, merged.sum_ns) == (kept.cumulative, kept.sum_ns)
    for row in kept.percentiles(DEFAULT):
        ranks = np.ceil(row.p * took.size + np.array([-1e-6, 1e-6])).astype(int) - 1
        least, most = took[np.clip(ranks, 0, took.size - 1)].tolist()
        assert least <= row.value <= most * (1 + PRECISION)
        assert row.value >= 2048 or least <= row.value <= most


def equals_evaluated(counter: Counter, taps: tuple[Tap, Tap], made: Traffic) -> None:
    paths = [one.path.with_name(f"whole-{one.path.name}") for one in taps]
    for one, path in zip(taps, paths, strict=True):
        one.write_whole(path)
    if not taps[1].times.size:
        return
    found = evaluate(*paths, key="moonsniff", window_ns=made.window_ns, throughout=True)
    # A look tells the order of its own packets only, which nobody shows.
    names = (counter.counts.keys() & found.counted.keys()) - {"reordered"}
    assert [name for name in names if counter.counts[name] != found.counted[name]] == []


def holds_truth(counted: Counted, made: Traffic) -> None:
    """Packets count where they were stamped: those that left behind the device, others before."""
    first, until = counted.span
    came, arrived = (made.sent >= first) & (made.sent < until), made.arrived
    left = (made.left >= first) & (made.left < until) & (made.left != NEVER)
    assert counted.counts["ingress"] == came.sum()
    assert counted.counts["egress"] == left.sum()
    assert np.array_equal(np.sort(counted.lost_ns), made.sent[came & ~arrived])
    took = np.sort((made.left - made.sent)[left & arrived])
    assert np.array_equal(np.repeat(*counted.latencies), took)
    worst = [(one.latency, one.egress_ns - one.ingress_ns) for one in counted.worst]
    assert worst == [(one, one) for one in took[::-1][: len(worst)].tolist()]
    assert len(worst) == min(took.size, 1_000)


def shows_incidents(draw: Draw, looks: list[tuple[Counted, int]], made: Traffic) -> None:
    """What is late or lost is of an incident, and none is longer than it may be."""
    keep = draw.magnitude("keep", SECOND // 10, 10 * SECOND)
    took = (made.left - made.sent)[made.arrived]
    if not took.size:
        return
    limit = int(np.quantile(took, 0.99))
    triggers, episodes = (Above(limit), Lost()), Episodes(keep)
    over: list[Episode] = []
    packets = longest = 0
    for counted, _ in looks:
        found: list[Found] = [one for kind in triggers if (one := kind.look(counted))]
        packets += sum(one.packets for one in found)
        longest = max([longest, *(one.last_ns - one.first_ns for one in found)])
        over += episodes.add(sorted(found))
        over += episodes.over(counted.span.until_ns)
    over += episodes.over(1 << 63)
    assert all(one.end_ns - one.begin_ns <= max(LONGEST * keep, longest + keep) for one in over)
    assert packets == (took > limit).sum() + (~made.arrived).sum()
    assert packets == sum(one.packets for one in over)
    late = made.sent[~made.arrived | (made.left - made.sent > limit)]
    within = [(late >= one.begin_ns) & (late <= one.end_ns) for one in over]
    assert np.any(within, axis=0).all()


TRIAL = Trial("live", run)
