"""The tail that an evaluation keeps, from latencies that a test makes up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from made_records import OPTIONS, counts, sides

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.tables import columns
from tailtap.analysis.evaluation.values import NO_LOSSES
from tailtap.analysis.tail import StoredTail, tail_of

Integers = npt.NDArray[np.int64]
START = 7_000_000_000_000
LIMIT = 1 << 20
WANTED = 1 << 16
BLOCKS = 1 << 14
SHORTEST = 20


def floor_of(latency: Integers) -> int:
    enough = max(WANTED, -(-latency.size // 50))
    wanted, limit = min(latency.size, enough), min(LIMIT, 2 * enough)
    ordered = np.sort(latency)[::-1]
    floor = int(ordered[wanted - 1]) - 1
    if int((latency > floor).sum()) <= limit:
        return floor
    distinct = np.unique(latency)
    above = latency.size - np.searchsorted(ordered[::-1], distinct, side="right")
    return int(distinct[np.argmax(above <= limit)])


def tail_tables(latency: Integers, ingress: Integers) -> tuple[pa.Table, int, pa.Table, int]:
    """Exceedances and their floor, blocks and their width; packets in the order of leaving."""
    egress = ingress + latency
    order = np.argsort(egress, kind="stable")
    latency, ingress, egress = latency[order], ingress[order], egress[order]
    floor = floor_of(latency)
    position = np.flatnonzero(latency > floor)
    exceedances = {
        "position": position,
        "ingress_ns": ingress[position],
        "latency_ns": latency[position],
    }
    shift = SHORTEST
    while (egress[-1] >> shift) - (egress[0] >> shift) >= BLOCKS:
        shift += 1
    number = egress >> shift
    first = np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1])))
    blocks = {
        "start_ns": number[first] << shift,
        "packets": np.diff(np.concatenate((first, [egress.size]))),
        "sum_ns": np.add.reduceat(latency, first),
        "max_ns": np.maximum.reduceat(latency, first),
    }
    return pa.table(exceedances), floor, pa.table(blocks), 1 << shift


def write_tail(folder: Path, latency: Integers, rate: int = 10_000, lost: int = 0) -> Path:
    """An evaluation of packets sent at a constant rate (pkt/s), without gaps and rates."""
    ingress = START + np.arange(latency.size) * 1_000_000_000 // rate
    exceedances, floor, blocks, width = tail_tables(latency, ingress)
    egress = np.sort(ingress + latency)
    worst = np.argsort(-latency, kind="stable")[:1]
    nothing = {side: (np.empty(0, np.int64),) * 2 for side in ("ingress", "egress")}
    Evaluation(
        key="moonsniff",
        key_reason=None,
        counts=counts(
            ingress=latency.size + lost, egress=latency.size, matched=latency.size, lost=lost
        ),
        mean=float(latency.mean()),
        columns={
            "distribution": np.unique(latency, return_counts=True),
            "worst": (latency[worst], ingress[worst], ingress[worst] + latency[worst], ["0"]),
            "exceedances": (floor, *columns(exceedances)),
            "blocks": (width, *columns(blocks)),
            "gaps": nothing,
            "rates": nothing,
            "losses": NO_LOSSES,
        }.__getitem__,
        inputs=sides(ingress, egress),
        options=OPTIONS,
    ).write(folder)
    return folder


def load_tail(folder: Path, name: str) -> StoredTail:
    return tail_of(Evaluation.load(folder), folder, name)
