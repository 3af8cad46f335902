"""The five recommendations of "How low can you go?", checked against the data.

Each is met, not met, or cannot be told, with the numbers behind the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailtap.analysis.compare.configurations import Configuration, differs_only_in
from tailtap.analysis.compare.ranking import Pair, Ranking, Standing, needed
from tailtap.analysis.compare.significance import ALPHA, percentile_text, ratio_text, smallest_p
from tailtap.analysis.evaluation.values import HEAVY_LOSS
from tailtap.analysis.runs.run import Run
from tailtap.base.units import format_count, format_share, format_time
from tailtap.records.compare import Met, Recommendation

_TOLD = 3


def check(rankings: Sequence[Ranking]) -> list[Recommendation]:
    """All five."""
    return [
        Recommendation(
            "measurement set-up",
            "stamp packets in hardware, outside the device",
            *_stamps(rankings),
        ),
        Recommendation(
            "loss",
            "keep enough spare capacity that no packet is lost",
            *_loss(rankings),
        ),
        Recommendation(
            "kernel",
            "choose the kernel for the application, by measuring",
            *_choice(rankings, "kernel"),
        ),
        Recommendation(
            "NIC",
            "measure the NIC in the scenario, above all a recent one",
            *_choice(rankings, "nic"),
        ),
        Recommendation(
            "virtualisation",
            "prefer bare metal where the tail matters most",
            *_choice(rankings, "platform"),
        ),
    ]


def _all_runs(rankings: Sequence[Ranking]) -> Iterator[tuple[Configuration, Run]]:
    for ranking in rankings:
        for standing in ranking.standings:
            for run in standing.configuration.runs:
                yield standing.configuration, run


def _stamps(rankings: Sequence[Ranking]) -> tuple[Met, str]:
    clocks = [run.clock for _, run in _all_runs(rankings)]
    known = [clock for clock in clocks if clock not in (None, "unknown")]
    software = [clock for clock in known if clock != "hardware"]
    if not known:
        return "cannot be told", "no result says which clock stamped its packets"
    if not software and len(known) == len(clocks):
        return "met", f"all {len(known)} runs were stamped in hardware"
    if not software:
        return "cannot be told", f"{len(clocks) - len(known)} of {len(clocks)} runs do not say"
    kinds = ", ".join(sorted(set(map(str, software))))
    text = f"{len(software)} of {len(clocks)} runs were stamped in software (clock: {kinds})"
    return "not met", text + "".join(f"; {told}" for told in _floors(rankings))


def _floors(rankings: Sequence[Ranking]) -> Iterator[str]:
    """The latency of the measurement itself, where `wire` was measured."""
    for ranking in rankings:
        floors = [s.worst for s in ranking.floors if s.worst and s.worst.latency]
        fastest = min((s.worst.number for s in ranking.standings if s.worst), default=float("inf"))
        if floors and fastest < float("inf"):
            latency = max(value.latency or 0 for value in floors)
            yield (
                f"the floor (wire) takes {format_time(latency)} at "
                f"{percentile_text(ranking.percentile)}, {ranking.load.label}: "
                f"{format_share(latency / fastest)} of the fastest device's"
            )


def _loss(rankings: Sequence[Ranking]) -> tuple[Met, str]:
    losses = [
        (run.loss, f"{standing.configuration.label} at {ranking.load.label}")
        for ranking in rankings
        for standing in ranking.standings
        for run in standing.configuration.runs
        if run.loss is not None
    ]
    runs = sum(1 for _ in _all_runs(rankings))
    over = sorted((entry for entry in losses if entry[0] > HEAVY_LOSS), reverse=True)
    if over:
        lost = [f"{where} lost {format_share(loss)}" for loss, where in over]
        told = _joined(list(dict.fromkeys(lost)))
        return (
            "not met",
            f"{len(over)} of {runs} runs lost more than {format_share(HEAVY_LOSS)}: {told}",
        )
    if len(losses) < runs or not losses:
        return "cannot be told", f"{runs - len(losses)} of {runs} runs do not say what they lost"
    most, where = max(losses)
    text = f"no run lost more than {format_share(HEAVY_LOSS)}"
    return "met", text + (
        f"; the most was {format_share(most)}, {where}" if most else ": none at all"
    )


def _choice(rankings: Sequence[Ranking], aspect: str) -> tuple[Met, str]:
    """Whether a configuration is shown to be slower than one that differs in this aspect alone.

    Of platforms, one that is virtual and bare metal are compared, and the virtual one may
    be slower.
    """
    found: list[tuple[Ranking, Pair]] = []
    for ranking in rankings:
        for pair in ranking.pairs:
            slower = ranking.standings[pair.slower].configuration
            faster = ranking.standings[pair.faster].configuration
            counts = aspect != "platform" or {slower.virtual, faster.virtual} == {True, False}
            if counts and differs_only_in(slower.aspects, faster.aspects, aspect):
                found.append((ranking, pair))
    if not found:
        return "cannot be told", _why_none(rankings, aspect)
    shown = [(ranking, pair) for ranking, pair in found if pair.significant]
    against = [
        (ranking, pair)
        for ranking, pair in shown
        if aspect != "platform" or ranking.standings[pair.slower].configuration.virtual
    ]
    if against:
        return "not met", _joined([_figures(ranking, pair) for ranking, pair in against])
    if shown:
        return "met", _joined([_figures(ranking, pair) for ranking, pair in shown])
    undecided = [pair for _, pair in found if pair.corrected >= 1.0 and pair.least > ALPHA]
    if undecided:
        ranking, pair = found[0]
        sizes = [len(ranking.standings[place].values) for place in (pair.slower, pair.faster)]
        return "cannot be told", (
            f"{format_count(len(found), 'comparison')} of this alone, too few repeats: {sizes[0]} "
            f"against {sizes[1]} reach p = {smallest_p(*sizes):.2g} at best"
        )
    told = _joined([_figures(ranking, pair) for ranking, pair in found])
    return "met", f"no difference is shown: {told}"


def _figures(ranking: Ranking, pair: Pair) -> str:
    slower, faster = ranking.standings[pair.slower], ranking.standings[pair.faster]
    text = (
        f"{slower.configuration.label} over {faster.configuration.label}: "
        f"{ratio_text(pair.shift)} at {percentile_text(ranking.percentile)}"
    )
    median = _median_ratio(slower.configuration, faster.configuration)
    if median is not None:
        text += f" (x{median:.2f} at p50)"
    return f"{text}, {ranking.load.label}, p = {pair.corrected:.2g}"


def _median_ratio(slower: Configuration, faster: Configuration) -> float | None:
    """The ratio of the medians' worst repeats; None where one is not known."""
    worst = []
    for configuration in (slower, faster):
        rows = [run.percentile(0.5) for run in configuration.runs]
        worst.append(max((row.value for row in rows if row is not None), default=0))
    return worst[0] / worst[1] if all(worst) else None


def _why_none(rankings: Sequence[Ranking], aspect: str) -> str:
    known = {
        standing.configuration.aspects[aspect]
        for ranking in rankings
        for standing in ranking.standings
        if aspect in standing.configuration.aspects
    }
    name = {"nic": "NIC"}.get(aspect, aspect)
    if not known:
        return f"no result says its {name}"
    if len(known) == 1:
        return f"only one {name} was measured: {known.pop()}"
    kinds = {s.configuration.virtual for ranking in rankings for s in ranking.standings}
    if aspect == "platform" and not {True, False} <= kinds:
        return f"bare metal and a virtual platform are needed, not {', '.join(sorted(known))}"
    return f"no two configurations under one load differ in their {name} alone"


def _joined(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _TOLD} more" if len(texts) > _TOLD else ""
    return "; ".join(texts[:_TOLD]) + more


def advise(rankings: Sequence[Ranking]) -> list[str]:
    """One sentence for each load that has a ranking, and what more repeats would do."""
    told = [_under(ranking) for ranking in rankings if not ranking.reason]
    enough = needed(rankings)
    short = [
        pair
        for ranking in rankings
        for pair in ranking.pairs
        if not ranking.reason and not pair.significant and _repeats(ranking, pair) < enough
    ]
    if short:
        few = "1 comparison has" if len(short) == 1 else f"{len(short)} comparisons have"
        told.append(
            f"{few} too few repeats: with {enough} of each configuration every comparison can be "
            "decided where no run of the one overlaps with the other"
        )
    return told


def _repeats(ranking: Ranking, pair: Pair) -> int:
    return min(len(ranking.standings[place].values) for place in (pair.slower, pair.faster))


def _under(ranking: Ranking) -> str:
    first = [found for found in ranking.standings if found.best == 1]
    where = f"{ranking.load.label}, {percentile_text(ranking.percentile)}"
    if len(first) > 1:
        every = len(first) == len(ranking.standings)
        names = ", ".join(found.configuration.label for found in first)
        who = names
        if every:
            who = "the two" if len(first) == 2 else f"any of the {len(first)}"
        most = max(len(found.values) for found in first)
        reach = smallest_p(most, most)
        why = ""
        if reach > ALPHA:
            repeats = format_count(most, "repeat")
            why = f" ({most} against {repeats} can reach p = {reach:.2g} at best)"
        return f"{where}: no difference is shown between {who}{why}"
    (found,) = first
    best = f"{found.configuration.label}{_worst(found)}"
    if len(ranking.standings) < 2:
        return f"{where}: {best}"
    after = ranking.standings[1].configuration.label
    least = "" if len(ranking.standings) == 2 else ", the others longer"
    shift = ranking.over(1, 0)
    if shift.ratio is None:
        return f"{where}: {best} is faster than {after}{least}"
    ratio, gap, interval = ratio_text(shift).removeprefix("x").partition(" ")
    return f"{where}: {after} takes {ratio} times as long{gap}{interval} as {best}{least}"


def _worst(found: Standing) -> str:
    worst = found.worst
    if worst is None or worst.latency is None:
        return ""
    return f", {format_time(worst.latency)} in the worst of {len(found.values)} repeats"
