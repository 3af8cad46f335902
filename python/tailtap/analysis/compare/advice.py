"""Advice on what to choose, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailtap.analysis.compare.ranking import Pair, Ranking, Standing, needed
from tailtap.analysis.compare.significance import ALPHA, smallest_p
from tailtap.analysis.compare.words import percentile_text, ratio_text
from tailtap.base.units import format_time


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
            why = f" ({most} against {most} repeats can reach p = {reach:.2g} at best)"
        return f"{where}: no difference is shown between {who}{why}"
    (found,) = first
    return f"{where}: {found.configuration.label}{_worst(found)}" + "".join(_margin(ranking))


def _worst(found: Standing) -> str:
    worst = found.worst
    if worst is None or worst.latency is None:
        return ""
    return f", {format_time(worst.latency)} in the worst of {len(found.values)} repeats"


def _margin(ranking: Ranking) -> Iterator[str]:
    """How much slower the next one is."""
    if len(ranking.standings) > 1:
        other = ranking.standings[1].configuration.label
        yield f"; {other} is next, {ratio_text(ranking.over(1, 0))}"
