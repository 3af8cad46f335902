"""Gates, histories, rankings, claims and pairs: as rarely wrong as stated, and not blind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import get_args

import numpy as np
from comparisons import sample
from scipy import stats

from tailtap.analysis.claims.judge import judge_claims
from tailtap.analysis.claims.model import Claim, Relation
from tailtap.analysis.compare.configurations import gather
from tailtap.analysis.compare.gate import judge_loaded, repeats_needed
from tailtap.analysis.compare.history import NEAR, changes, newest
from tailtap.analysis.compare.ranking import rank
from tailtap.analysis.compare.significance import against, effect, interval, shift
from tailtap.analysis.runs.run import Experiment, Run
from tailtap.records.compare import GateAnswer
from tests.simulation.draw import Draw
from tests.simulation.latencies import Floats, Integers
from tests.simulation.states import LEVEL, scatter, side, staying
from tests.simulation.trial import Tally, Trial

Held = dict[str, tuple[int, int]]
P = 0.999
TIMES = 2
FIRST = np.arange(20)


def above(one: Floats, other: Floats) -> float:
    """The exact p-value of the one being above the other."""
    found = stats.mannwhitneyu(one, other, alternative="greater", method="exact")
    return float(found.pvalue)


def apart_by_chance(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p-value over all shares of the ranks: scipy's exact test knows no ties."""
    ranks = stats.rankdata([*one, *other])
    far = np.abs((ranks - ranks.mean())[ways(ranks.size, len(one))].sum(axis=1))
    return float((far >= far[0] - 1e-6).mean())


@cache
def ways(runs: int, size: int) -> Integers:
    """Each choice of so many of the runs, by their places."""
    return np.array([*combinations(range(runs), size)])


def by_holm(ps: Sequence[float], alpha: float) -> list[bool]:
    """Which of several hypotheses are rejected (Holm 1979): those before the first that is not."""
    order = np.argsort(ps)
    right = np.array(ps)[order] <= alpha / np.arange(len(ps), 0, -1)
    rejected: list[bool] = np.logical_and.accumulate(right)[np.argsort(order)].tolist()
    return rejected


def latencies(runs: list[Run]) -> Floats:
    rows = [run.percentile(P) for run in runs]
    return np.array([float(row.value) for row in rows if row is not None])


def by_ranks(base: list[Run], new: list[Run], margin: float) -> GateAnswer:
    """By the exact tests and the error rates that docs/reference/gate.md states."""
    old, now = latencies(base), latencies(new)
    if above(now / (1 + margin), old) <= 0.0025:
        return "worse"
    if above(old, now) <= 0.0025:
        return "better"
    return "no worse" if above(old * (1 + margin), now) <= 0.05 else "not shown"


def gate(draw: Draw) -> Held:
    """A change, or none, on a machine that has states of its own; runs take turns."""
    repeats, margin = draw.between("repeats", 5, 12), draw.choice("margin", (0.05, 0.1))
    factor = draw.choice("factor", (1.0, 1 + margin, 1 / (1 + margin), 1.3))
    held: Held = {}
    for _ in range(TIMES):
        logs = scatter(draw, "runs", 2 * repeats)
        old, new = np.split(draw.stream("order").permutation(2 * repeats), 2)
        logs[new] += math.log(factor)
        base, changed = side("base", logs[old], old), side("new", logs[new], new)
        answer = judge_loaded(base, changed, margin, P).answer
        assert answer == by_ranks(base, changed, margin)
        if factor == 1 + margin:
            count(held, "not called no worse", answer not in ("no worse", "better"))
        if factor == 1:
            count(held, "not called worse or better", answer not in ("worse", "better"))
    return held


def stored_base(draw: Draw) -> Held:
    """Nothing changed, and one side was measured after the other, while states came and went."""
    held: Held = {}
    for _ in range(TIMES):
        logs = 0.5 * staying(draw.stream("a machine"), 40)
        sides = [side(name, logs[at], at) for name, at in (("a", FIRST), ("b", FIRST + 20))]
        answer = judge_loaded(sides[0], sides[1], 0.05, P).answer
        count(held, "not called a change", answer not in ("worse", "better"))
    return held


def count(held: Held, name: str, right: bool) -> None:
    hold, of = held.get(name, (0, 0))
    held[name] = hold + right, of + 1


def power(draw: Draw) -> Held:
    """As many runs as are advised tell that there is no change, and see one of a third."""
    random = draw.stream("power")
    margin = draw.choice("margin to tell", (0.05, 0.1))
    width = float(random.uniform(0.01, 0.05))
    repeats = repeats_needed(width, margin)
    factor = draw.choice("change", (1.0, 1.33))
    logs = random.normal(0, width, (2, repeats))
    logs[1] += math.log(factor)
    answer = judge_loaded(side("base", logs[0]), side("new", logs[1]), margin, P).answer
    if factor == 1:
        return {"no change told": (int(answer in ("no worse", "better")), 1)}
    return {"change seen": (int(answer == "worse"), 1)}


def ranking(draw: Draw) -> Held:
    """Three devices under two loads, of which none differs or one does, whatever their tails."""
    random, repeats = draw.stream("ranking"), draw.between("ranked repeats", 3, 8)
    factor = {"vm": draw.choice("slower device", (1, 1, 4))}
    runs = [
        sample(label, repeat, LEVEL * factor.get(label, 1) * (1 + random.pareto(1.1)), rate=rate)
        for rate in (10_000, 50_000)
        for label in ("bare-metal", "vm", "container")
        for repeat in range(repeats)
    ]
    found = [(one.standings, pair) for one in rank(gather(runs), P) for pair in one.pairs]
    sides = [[among[place].numbers for place in (of.slower, of.faster)] for among, of in found]
    ps = [apart_by_chance(*pair) for pair in sides]
    assert np.allclose([pair.p for _, pair in found], ps)
    shown = [pair.significant for _, pair in found]
    assert shown == by_holm(ps, 0.05)
    one, other = 3 * random.lognormal(0, 0.5, 6), random.lognormal(0, 0.5, 5)
    apart = shift(one, other)
    assert apart.low is not None and apart.high is not None
    held = {"shift": (int(apart.low <= 3 <= apart.high), 1)}
    if factor["vm"] == 1:
        held["not ranked"] = int(not any(shown)), 1
    return held


def by_tests(relation: Relation, margin: float, new: Floats, base: Floats) -> str:
    """By the exact tests and the level that docs/reference/verdict.md states."""
    later, not_later = above(new / (1 + margin), base), above(base * (1 + margin), new)
    earlier, not_earlier = above(base * (1 - margin), new), above(new / (1 - margin), base)
    beyond, within = 2 * min(later, earlier), max(not_later, not_earlier)
    shown, wrong = {
        "worse": (later, not_later),
        "no worse": (not_later, later),
        "better": (earlier, not_earlier),
        "different": (beyond, within),
        "no different": (within, beyond),
    }[relation]
    return "held" if shown <= 0.05 else "contradicted" if wrong <= 0.05 else "not shown"


def claim(draw: Draw) -> Held:
    """A claim that is just wrong, or right, or far from either."""
    random, repeats = draw.stream("claim"), draw.between("repeats of a claim", 3, 8)
    relation: Relation = draw.choice("relation", get_args(Relation))
    just = 0.9 if relation == "better" else 1.1
    factor = draw.choice("claimed factor", (0.5, 1.0, just, just, 1.5))
    width = draw.choice("width", (0.02, 0.2))
    runs = [
        sample(name, number, LEVEL * by * float(random.lognormal(0, width)),
               more={"variables": {"dut.platform": name}})
        for name, by in (("new", factor), ("base", 1.0))
        for number in range(repeats)
    ]  # fmt: skip
    said = Claim.model_validate({
        "says": "It is so.", "for": {"dut.platform": "new"}, "against": {"dut.platform": "base"},
        "at": "p99.9", "is": relation, "by": "10 %",
    })  # fmt: skip
    [row] = judge_claims(Experiment("made", Path(), tuple(runs)), [said])
    new, base = np.split(latencies(runs), 2)
    assert row.answer == by_tests(relation, 0.1, new, base)
    [shown] = row.evidence
    assert row.compares and shown.runs == repeats and shown.ratio is not None
    apart = np.subtract.outer(np.log(new), np.log(base))
    assert math.isclose(math.log(shown.ratio), np.median(apart), abs_tol=1e-9)
    assert (shown.low or 0) < shown.ratio < (shown.high or math.inf)
    if factor != just:
        return {}
    return {
        "not held": (int(row.answer != "held"), 1),
        "not contradicted": (int(row.answer != "contradicted"), 1),
    }


def pairs(draw: Draw) -> Held:
    """Somebody looks after each pair of runs with a change and without it."""
    random, factor = draw.stream("pairs"), draw.choice("effect", (1.0, 1.0, 0.7, 1.05, 2.0))
    logs = random.normal(0, float(random.uniform(0.03, 0.3)), (25, 2))
    if draw.has("disturbed runs", 0.3):
        logs += (random.random((25, 2)) < 0.1) * random.exponential(1.5, (25, 2))
    numbers = [(factor * one, other) for one, other in np.exp(logs).tolist()]
    looked = [interval(numbers[:count], 0.05, 0.01) for count in range(3, 26, 2)]
    symmetrical(numbers)
    ends = [(one.low or 0.0, one.high or math.inf) for one in looked]
    held = {
        "not below": (int(all(low <= factor for low, _ in ends)), 1),
        "not above": (int(all(factor <= high for _, high in ends)), 1),
    }
    if factor == 2.0:
        held["effect seen"] = int(any(effect(one, 0.2) == "harms" for one in looked[:4])), 1
    if factor == 1.05:
        held["pairs not worse"] = int(all(against(one, 0.05) != "worse" for one in looked)), 1
    return held


def symmetrical(numbers: list[tuple[float, float]]) -> None:
    """Neither the order nor the unit matters, and the other side sees the inverse."""
    found = interval(numbers, 0.05, 0.01)
    assert interval(numbers[::-1], 0.05, 0.01) == found
    scaled = interval([(1e6 * one, 1e6 * other) for one, other in numbers], 0.05, 0.01)
    turned = interval([(other, one) for one, other in numbers], 0.01, 0.05)
    assert found.ratio is not None and found.low is not None and found.high is not None
    assert scaled.low is not None and math.isclose(scaled.low, found.low, rel_tol=1e-3)
    assert turned.high is not None and math.isclose(turned.high, 1 / found.low, rel_tol=1e-3)
    assert found.low < found.ratio < found.high


def medians(random: np.random.Generator, level: Floats, repeats: int) -> list[float]:
    """Of runs of each commit that scatter by 10 %, and of which each tenth is much slower."""
    values = level[:, None] + random.normal(0, 0.1, (level.size, repeats))
    values += (random.random(values.shape) < 0.1) * np.log1p(3 * random.pareto(1.5, values.shape))
    return [float(value) for value in LEVEL * np.exp(np.median(values, axis=1))]


def history(draw: Draw) -> Held:
    """Commits without a change, commits with two, and newest commits that are no slower."""
    random, commits = draw.stream("history"), draw.count("commits", 60, 200)
    level = np.zeros(commits)
    known = []
    if draw.has("changes", 0.5):
        middle = commits // 2
        ends = (15, middle - 5), (middle + 5, commits - 15)
        known = [int(random.integers(*end)) for end in ends]
        level[slice(*known)] = random.choice([-1, 1]) * math.log(1.3)
    places = changes(medians(random, level, 5))
    near = [any(abs(place - one) <= NEAR for place in places) for one in known]
    held = {"no mark without a change": (int(len(places) <= sum(near)), 1)}
    if known:
        held["changes found"] = sum(near), 2
    late = draw.choice("late commits", (0, 2, 3))
    level = np.zeros(draw.between("commits of a level", 8, 30))
    level[level.size - late :] = math.log(10) * (late > 0)
    repeats = 5 if late else draw.choice("runs of a commit", (1, 3, 5))
    values = np.array(medians(random, level, repeats))
    _, decided = newest(values.tolist())
    assert decided == any(
        above(sign * values[-count:], sign * values[:-count]) <= 0.01 / 2 ** (count - 1)
        for count in range(2, 6)
        for sign in (1, -1)
    )
    if not late:
        held["newest like those before"] = int(not decided), 1
    elif level.size >= 20:
        held["newest ten times slower"] = int(decided), 1
    return held


def run(draw: Draw, folder: Path) -> Tally:
    """One of each."""
    parts = (gate, stored_base, power, ranking, claim, pairs, history)
    return {name: one for part in parts for name, one in part(draw).items()}


TRIAL = Trial(
    "gates",
    run,
    rates={
        "not called worse or better": (0.995, 1.0),
        "not called a change": (0.98, 1.0),
        "not called no worse": (0.95, 1.0),
        "no change told": (0.8, 1.0),
        "change seen": (0.95, 1.0),
        "not ranked": (0.95, 1.0),
        "shift": (0.95, 0.98),
        "not held": (0.95, 1.0),
        "not contradicted": (0.95, 1.0),
        "not below": (0.99, 1.0),
        "not above": (0.95, 1.0),
        "effect seen": (0.7, 1.0),
        "pairs not worse": (0.99, 1.0),
        "no mark without a change": (0.9, 1.0),
        "changes found": (0.95, 1.0),
        "newest like those before": (0.98, 1.0),
        "newest ten times slower": (0.95, 1.0),
    },
)
