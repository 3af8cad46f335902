"""Whether a change made the tail worse: a baseline and what is new, run by run.

The unit is the run, as in `significance`, and the question is one of non-inferiority with a margin
(Wellek 2010): of each run the latency at the percentile enters, as a ratio to those of the
baseline. `worse` is shown where the new runs lie above those of the base even when they are divided
by 1 + margin; `no worse` where they lie below when the base's are multiplied by it; `better` where
they lie below as they are. All three are one-sided exact rank tests, so that no assumption about
the scatter is made.

A false alarm stops work, and so `worse` has the smaller error rate, which holds for all rows
together (Bonferroni). A gate is open only where every row is no worse; such a statement needs no
correction (Berger 1982).

Where the lab without a device (`wire`) changed as well, the machine may be the reason, and what it
can explain is not shown. Nor is a difference between runs that were made one after the other where
their order speaks against a change (`order`).

What the order of runs says, where one side was measured after the other.

A rank test takes it that every assignment of the runs to the two sides is equally probable. That is
so where turns are drawn. Where all runs of one side were made before those of the other, it is so
only if runs do not resemble those beside them, as they do where the machine's state stays for a
while. Two things tell such states from a change, and a change is believed where neither speaks:

- The largest step among all runs, in the order of time, lies where the one side ends. A state that
  drifts or changes by itself has its largest step anywhere (the statistic is Pettitt's, Applied
  Statistics 28, 1979, divided by its standard deviation at each place).
- Within the two sides, runs do not resemble those beside them (the rank version of von Neumann's
  ratio, Bartels 1982, by random permutations).

A state that changes exactly where the one side ends, and stays, is no different from a change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.compare.comparison import doubts, notices, read
from tailtap.analysis.compare.configurations import (
    ASKED,
    Configuration,
    Load,
    device_variables,
    gather,
)
from tailtap.analysis.compare.ranking import Ranking, Standing, Value, rank
from tailtap.analysis.compare.significance import (
    MOST_REPEATS,
    Shift,
    above_test,
    percentile_text,
    ratio_text,
)
from tailtap.analysis.runs.groups import grouped, label_parts
from tailtap.analysis.runs.run import Run
from tailtap.analysis.undisturbed import undisturbed_run
from tailtap.analysis.verdict.runs import required_percentiles
from tailtap.base.errors import InputError, MachineError
from tailtap.base.units import format_share
from tailtap.records.compare import GateAnswer, GateRecord, GateRow
from tailtap.records.record import Notice, unfilled

ALPHA = 0.0025
"""The probability that any row is called worse, or any better, where nothing changed: of 200
comparisons of something with itself, more than two are called worse once in a hundred times."""
ALPHA_NO_WORSE = 0.05
"""The probability that a row is called no worse although it is worse by the margin."""
ALPHA_FLOOR = 0.05
POWER = 0.8
"""How probably the advised number of repeats decides."""
EFFICIENCY = 3 / math.pi
"""Of the rank test, against the best one for normal scatter (Hodges and Lehmann 1956)."""
ORDER: Sequence[GateAnswer] = ("worse", "not shown", "no worse", "better")
"""The worst answer first."""
_REASONS = 3

Source = tuple[str, Path]


def judge_change(
    sources: Sequence[Source],
    margin: float,
    percentile: float | None = None,
    *,
    undisturbed: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> GateRecord:
    """Whether the second of two sides is worse than the first, by more than `margin` (a share).

    A side is a path, or all paths of one name; paths are those of `compare_runs`, and so are
    `percentile` and `undisturbed`. Raises `InputError` when there are not two sides, or when they
    have no traffic and configuration in common, and `MachineError` when one has no good run.
    """
    if not 0 < margin <= 1:
        raise InputError("the margin is above 0 and at most 100 %, such as 5 %")
    base, new = _sides(sources)
    sides = [read(side, progress) for side in (base, new)]
    if undisturbed:
        sides = [[undisturbed_run(run) for run in side] for side in sides]
    required = set() if percentile else required_percentiles(path for _, path in sources)
    progress("comparing")
    return judge_loaded(
        sides[0], sides[1], margin, percentile, required=required, names=(_name(base), _name(new))
    )


def judge_loaded(
    base: Sequence[Run],
    new: Sequence[Run],
    margin: float,
    percentile: float | None = None,
    *,
    required: set[float] | frozenset[float] = frozenset(),
    names: tuple[str, str] = ("base", "new"),
) -> GateRecord:
    """The same for runs that have been read; no run of the one has the `root` of the other."""
    if {run.root for run in base} & {run.root for run in new}:
        raise InputError(f"{names[0]} and {names[1]} are the same runs: give two measurements")
    for name, runs in zip(names, (base, new), strict=True):
        _require_good(name, runs)
    pairs, alone = _paired(gather([*base, *new]), {id(run) for run in base})
    if not pairs:
        raise InputError(
            f"{names[0]} and {names[1]} have no configuration and traffic in common: "
            f"{'; '.join(alone[:_REASONS])}"
        )
    rankings = rank(pairs, percentile, required)
    alpha = ALPHA / len(rankings)
    rows = [_judged(ranking, margin, alpha) for ranking in rankings]
    told = [Notice("unpaired", text) for text in alone]
    told += _warnings([*base, *new], rankings)
    answers = [row.answer for row in rows]
    return GateRecord(
        answer=min(answers, key=ORDER.index),
        answers={name: answers.count(name) for name in ORDER},
        base=names[0],
        new=names[1],
        margin=margin,
        alpha=ALPHA,
        alpha_no_worse=ALPHA_NO_WORSE,
        rows=rows,
        warnings=list(dict.fromkeys(told)),
    )


def smallest_one_sided(one: int, other: int) -> float:
    """The smallest one-sided p-value that so many runs against so many can reach."""
    return 1 / math.comb(one + other, one)


def repeats_needed(scatter: float, margin: float, alpha: float = ALPHA) -> int:
    """How many runs of each tell no difference from one by the margin, with probability `POWER`.

    `scatter` is the standard deviation of the logarithms of the runs' latencies. Whether it is
    worse must be decidable, too.
    """
    least = next(n for n in range(1, 30) if smallest_one_sided(n, n) <= alpha)
    normal = NormalDist()
    away = normal.inv_cdf(1 - ALPHA_NO_WORSE) + normal.inv_cdf(POWER)
    enough = 2 * (scatter * away / math.log1p(margin)) ** 2 / EFFICIENCY
    return min(max(least, math.ceil(enough)), MOST_REPEATS)


def _sides(sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    sides = grouped(sources, lambda source: source[0] or source[1].resolve())
    if len(sides) != 2:
        raise InputError(
            f"a change is judged by two sides, and {len(sides)} are given: the base, then what is "
            "new; folders with the same NAME= are one side"
        )
    base, new = sides.values()
    return base, new


def _name(side: Sequence[Source]) -> str:
    name, path = side[0]
    return name or str(path)


def _require_good(name: str, runs: Sequence[Run]) -> None:
    devices = [run for run in runs if run.traits is None or run.traits.has_dut]
    if all(run.excluded for run in devices):
        why = "; ".join(f"{run.slug}: {run.excluded}" for run in devices[:_REASONS])
        told = f" ({why})" if why else ""
        raise MachineError(f"it has no good run of a device{told}: measure it again").at(name)


def _paired(loads: Sequence[Load], base: set[int]) -> tuple[list[Load], list[str]]:
    """Loads of a configuration before and after, floors with them; what has no partner."""
    pairs: list[Load] = []
    alone: list[str] = []
    for load in loads:
        olds = [one for one in load.ranked if id(one.runs[0]) in base]
        news = [one for one in load.ranked if id(one.runs[0]) not in base]
        floors = [one for one in load.configurations if one.wire]
        one_each = len(olds) == len(news) == 1
        for new in news:
            fitting = [old for old in olds if one_each or _variables(old) == _variables(new)]
            if len(fitting) == 1:
                olds.remove(fitting[0])
                pairs.append(Load(load.load, load.label, (fitting[0], new, *floors)))
            else:
                alone.append(f"{new.label} at {load.label} is new")
        alone += [f"{old.label} at {load.label} is in the base only" for old in olds]
    return pairs, alone


def _variables(configuration: Configuration) -> dict[str, str]:
    return device_variables(configuration.runs[0])


def _judged(ranking: Ranking, margin: float, alpha: float) -> GateRow:
    first, second = ranking.load.configurations[:2]
    percentile = ranking.percentile
    known = not math.isnan(percentile)
    row = unfilled(
        GateRow,
        configuration=" · ".join(label_parts(second.runs[0], ASKED)) or "the device",
        load=ranking.load.label,
        percentile=percentile if known else None,
        percentile_text=percentile_text(percentile) if known else "",
        answer="not shown",
        reason=ranking.reason,
        base=[],
        new=[],
    )
    if ranking.reason:
        return row
    by_configuration = {id(one.configuration): one for one in ranking.standings}
    base, new = by_configuration[id(first)], by_configuration[id(second)]
    places = [ranking.standings.index(one) for one in (new, base)]
    row.base, row.new = ([value.row for value in one.values] for one in (base, new))
    row.p_worse = p_above(new, base, margin)
    row.p_no_worse = p_below(new, base, margin)
    row.p_better = p_below(new, base, 0.0)
    ratio = ranking.over(*places)
    row.ratio, row.ratio_low, row.ratio_high = ratio.ratio, ratio.low, ratio.high
    answer: GateAnswer = "not shown"
    if row.p_worse <= alpha:
        answer = "worse"
    elif row.p_better <= alpha:
        answer = "better"
    elif row.p_no_worse <= ALPHA_NO_WORSE:
        answer = "no worse"
    row.repeats_needed = _needed(base, new, margin, alpha)
    reason = _why(answer, base, new, ratio, margin, alpha, row.repeats_needed)
    if any(value.supported is False for value in (*base.values, *new.values)) and percentile < 1:
        answer = "not shown"
        reason = f"fewer than ten packets lie above {row.percentile_text} in some runs"
    elif moved := (
        _processors(base, new)
        or _moved(ranking, first, answer, margin)
        or _wandered(base, new, answer, margin)
    ):
        answer, reason = "not shown", f"{moved} ({reason})"
    else:
        answer, told = _fails_more(base, new, answer)
        reason += told
    row.answer, row.reason = answer, reason
    return row


def p_above(new: Standing, base: Standing, margin: float) -> float:
    """Of the new one's latencies being so high, were it worse by the margin."""
    return above_test([number / (1 + margin) for number in new.off(-1)], base.off(1))


def p_below(new: Standing, base: Standing, margin: float) -> float:
    """Of the new one's latencies being so low, were it worse by the margin."""
    return above_test([number * (1 + margin) for number in base.off(-1)], new.off(1))


def _fails_more(base: Standing, new: Standing, answer: GateAnswer) -> tuple[GateAnswer, str]:
    """The answer that is left where the new side loses or fails more, and how much more it is.

    It is never better then, and where that is beyond chance, it is not shown to be no worse.
    """
    shares = [[value.run.gone for value in one.values] for one in (base, new)]
    before, after = map(fmean, shares)
    if after <= before or answer not in ("better", "no worse"):
        return answer, ""
    shown = above_test(shares[1], shares[0]) <= ALPHA_FLOOR
    told = f"; {format_share(after)} failed or were lost, {format_share(before)} before"
    return "not shown" if shown else "no worse", told


def _needed(base: Standing, new: Standing, margin: float, alpha: float) -> int | None:
    """Repeats of each that would decide; None where lost packets leave no scatter to tell by."""
    logs = [np.log(np.maximum(one.numbers, 1.0)) for one in (base, new)]
    if not all(np.isfinite(one).all() and one.size > 1 for one in logs):
        return None
    degrees = sum(one.size - 1 for one in logs)
    squares = sum(float(((one - one.mean()) ** 2).sum()) for one in logs)
    return repeats_needed(math.sqrt(squares / degrees), margin, alpha)


def _why(
    answer: GateAnswer,
    base: Standing,
    new: Standing,
    ratio: Shift,
    margin: float,
    alpha: float,
    needed: int | None,
) -> str:
    sizes = len(new.values), len(base.values)
    runs = f"{sizes[0]} against {sizes[1]} runs"
    limit = format_share(margin)
    told = f"{ratio_text(ratio) if ratio.ratio else 'packets were lost or requests failed'}, {runs}"
    if answer == "worse":
        return f"{told}: by more than {limit}"
    if answer == "no worse":
        return f"{told}: by no more than {limit}"
    if answer == "better":
        return told
    more = ""
    if smallest_one_sided(*sizes) > alpha:
        more = "; so few runs can never show that it is worse"
    if needed is None:
        return f"{told}{more}"
    if needed > min(sizes):
        capped = "more than" if needed == MOST_REPEATS else "about"
        return f"{told}{more}; {capped} {needed} of each would tell {limit} at this scatter"
    return f"{told}{more}; it may be worse, by {limit} or so"


def _processors(base: Standing, new: Standing) -> str:
    """Which processors were compared, where no change of a program explains a difference."""
    models = [
        {value.run.environment.cpu.model for value in one.values} - {None} for one in (base, new)
    ]
    if not all(models) or models[0] & models[1]:
        return ""
    told = " and ".join(sorted(str(model) for one in models for model in one))
    return f"measured on different processors, {told}"


def _moved(ranking: Ranking, base: Configuration, answer: GateAnswer, margin: float) -> str:
    """What the floor did that may be the reason for the answer; empty where it is not."""
    root = base.runs[0].root
    olds = [one for one in ranking.floors if one.configuration.runs[0].root == root]
    news = [one for one in ranking.floors if one.configuration.runs[0].root != root]
    if len(olds) != 1 or len(news) != 1 or answer == "not shown":
        return ""
    old, new = olds[0], news[0]
    if answer == "worse" and p_above(new, old, margin) <= ALPHA_FLOOR:
        return "the floor (wire) is slower, too: the machine changed"
    if answer != "worse" and p_below(new, old, -margin / (1 + margin)) <= ALPHA_FLOOR:
        return "the floor (wire) is faster: the machine changed"
    return ""


def _wandered(base: Standing, new: Standing, answer: GateAnswer, margin: float) -> str:
    """What the order of runs says against the answer, where one side was made after the other."""
    if answer not in ("worse", "better") or (sides := _one_by_one(base, new)) is None:
        return ""
    up = (answer == "worse") == (sides[0] is base)
    allowed = 1 + margin if answer == "worse" else 1.0
    numbers = [
        [value.number / (allowed if side is new else 1.0) for value in _in_time(side)]
        for side in sides
    ]
    if alike(*numbers) <= ALPHA_ALIKE:
        return "runs are like those beside them, so that another time explains it: measure by turns"
    earlier, later = numbers if up else [[-number for number in side] for side in numbers]
    if not step_between(earlier, later):
        return "the largest step is not where the one side ends: measure by turns"
    return ""


def _in_time(side: Standing) -> list[Value]:
    return sorted(side.values, key=lambda value: value.run.started)


def _one_by_one(base: Standing, new: Standing) -> tuple[Standing, Standing] | None:
    """The side that was made first, and the other; None where they took turns, or nobody knows."""
    times = [[value.run.started for value in _in_time(side)] for side in (base, new)]
    if not all(side and side[0] for side in times):
        return None
    if times[0][-1] < times[1][0]:
        return base, new
    return (new, base) if times[1][-1] < times[0][0] else None


def _warnings(runs: Sequence[Run], rankings: Sequence[Ranking]) -> Iterator[Notice]:
    yield from doubts(runs)
    for ranking in rankings:
        yield from notices(ranking)
        if len(ranking.standings) == 2 and _one_by_one(*ranking.standings) is not None:
            yield Notice(
                "one-after-the-other",
                f"{ranking.load.label}: all runs of one side were made before those of the other: "
                "what else changed on the machine meanwhile counts as the change",
            )


ALPHA_ALIKE = 0.05
"""How often runs that do not depend on each other are called alike."""
_PERMUTATIONS = 9_999
_NEAR = 1e-9


def step_between(earlier: Sequence[float], later: Sequence[float]) -> bool:
    """Whether no step up is larger than that from the `earlier` runs to the `later` ones.

    Both are in the order of time, and may be infinite.
    """
    ranks = _ranks([*earlier, *later])
    count = ranks.size
    place = np.arange(1, count)
    steps = -np.cumsum(ranks - ranks.mean())[:-1] / np.sqrt(place * (count - place))
    return bool(steps[len(earlier) - 1] >= steps.max() - _NEAR)


def alike(*sides: Sequence[float]) -> float:
    """The p-value that runs resemble those beside them more than chance would have it.

    Each side is in the order of time.
    """
    random = np.random.default_rng(0)
    observed, by_chance = 0.0, np.zeros(_PERMUTATIONS)
    for side in sides:
        ranks = _ranks(side)
        observed += float((np.diff(ranks) ** 2).sum())
        mixed = random.permuted(np.tile(ranks, (_PERMUTATIONS, 1)), axis=1)
        by_chance += (np.diff(mixed, axis=1) ** 2).sum(axis=1)
    return float((1 + (by_chance <= observed + _NEAR).sum()) / (1 + _PERMUTATIONS))


def _ranks(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Midranks."""
    _, value, count = np.unique(numbers, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[value], np.float64)
