"""Losses over time: a mark for packets that were lost in a row, at the time of the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailtap.analysis.evaluation.values import KEPT_LOSSES
from tailtap.analysis.runs.groups import Configuration
from tailtap.analysis.runs.run import Floats, Integers, RunEvaluation

STEPS, STEPS_PER_DECADE = 4000, 60
"""A figure has so many places for marks, from left to right and in each decade of heights."""


def lossy(groups: Sequence[Configuration]) -> list[Configuration]:
    """Those of which it is known which packets were lost."""
    return [group for group in groups if group.shows("losses")]


def marks(evaluation: RunEvaluation) -> tuple[Floats, Integers]:
    """When bursts began, in s, and how many packets they have; one of those that coincide."""
    time, packets = evaluation.burst_time, evaluation.burst_packets
    across = (time * (STEPS / evaluation.duration)).astype(np.int64)
    up = (np.log10(packets) * STEPS_PER_DECADE).astype(np.int64)
    places = across * (1 << 16) + up
    chosen = np.sort(np.unique(places, return_index=True)[1])
    return time[chosen], packets[chosen]


def ticks(groups: Sequence[Configuration]) -> list[int]:
    """Numbers of packets to label: up to the first above the longest burst of all."""
    most = max(int(m.evaluation.burst_packets.max(initial=5)) for g in groups for m in g.members)
    steps = (1, 2, 5) if most < 1000 else (1,)
    every = [step * 10**decade for decade in range(len(str(most)) + 1) for step in steps]
    return [tick for tick in every if tick < most] + [next(t for t in every if t >= most)]


def cut_short(groups: Sequence[Configuration]) -> str:
    """The sentence about runs that lost more packets than are kept; empty without any."""
    names = [
        member.label
        for group in lossy(groups)
        for member in group.members
        if member.evaluation.burst_packets.size
        and member.evaluation.counts.get("lost", 0) > KEPT_LOSSES
    ]
    if not names:
        return ""
    return f"Of {', '.join(names)} only the first {KEPT_LOSSES:,} lost packets are shown."
