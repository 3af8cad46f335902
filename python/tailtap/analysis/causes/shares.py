"""What makes each percentile: of the packets above it, the share of delay by cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailtap.analysis.causes.stored import Causes
from tailtap.analysis.evaluation.values import Column

UNEXPLAINED, OWN = "unexplained", "own-work"
FEWEST = 10
"""A percentile with fewer packets above it is not supported."""
POINTS = 80


@dataclass(frozen=True)
class Shares:
    """Shares of the delay of the slowest packets, by cause; those of a row add up to one."""

    above: Column
    """How many packets are above each percentile, the most first."""
    p: npt.NDArray[np.float64]
    """The percentiles, between 0 and 1."""
    by_cause: dict[str, npt.NDArray[np.float64]]
    """For each cause its share at each percentile; those with most delay come first."""


def delays(causes: Causes) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """The excess of each late packet by cause, in ns: names, and packets × causes.

    What a packet behind a stall, or in a queue, waits while its core serves is its cause's. Causes
    by exclusion count as the others do, as in the tables. A part of what is only present, and what
    no part covers, is unexplained. Rows add up to the excess.
    """
    blamed = causes.late["blamed"].to_pylist()
    state = causes.late["state"].to_pylist()
    excess = causes.column("late", "excess_ns")
    claimed = {(row.cause, row.detail) for row in causes.record.causes if row.claim != "present"}
    names: dict[str, int] = {UNEXPLAINED: 0}
    cells = np.zeros((excess.size, 1), np.int64)
    packets, ns = (causes.column("parts", name) for name in ("packet", "ns"))
    parts = zip(causes.parts["cause"].to_pylist(), causes.parts["detail"].to_pylist(), strict=True)
    places = np.zeros(ns.size, np.int64)
    for at, (packet, part) in enumerate(zip(packets.tolist(), parts, strict=True)):
        cause = part[0] if part in claimed else UNEXPLAINED
        if part[0] == OWN:
            cause = OWN if state[packet] == "direct" else blamed[packet]
            if cause == "mixed" or blamed[packet] == UNEXPLAINED:
                cause = UNEXPLAINED
        places[at] = names.setdefault(cause, len(names))
    cells = np.zeros((excess.size, len(names)), np.int64)
    np.add.at(cells, (packets, places), ns)
    cells[:, 0] += excess - cells.sum(axis=1)
    return tuple(names), cells


def shares(causes: Causes) -> Shares:
    """The shares of a run's causes, from its threshold to the highest supported percentile."""
    names, cells = delays(causes)
    order = np.argsort(-causes.column("late", "latency_ns"), kind="stable")
    sums = np.cumsum(cells[order], axis=0)
    late = order.size
    above = np.unique(np.geomspace(min(FEWEST, late), late, POINTS).round().astype(np.int64))[::-1]
    rows = sums[above - 1] / np.maximum(1, sums[above - 1].sum(axis=1, keepdims=True))
    largest = sorted(range(len(names)), key=lambda at: (names[at] == UNEXPLAINED, -sums[-1, at]))
    found = {names[at]: rows[:, at] for at in largest if rows[:, at].any()}
    return Shares(above, 1 - above / causes.packets, found)
