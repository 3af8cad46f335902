"""The tail that an evaluation keeps, from latencies that a test makes up."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from stamps import write_sides

from tailtap.analysis.evaluation import Evaluation, evaluate
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
    """Of packets sent at a constant rate (pkt/s); as many more among them were `lost`."""
    sent = START + np.arange(latency.size + lost) * 1_000_000_000 // rate
    gone = np.linspace(1, sent.size - 2, lost).astype(np.int64)
    left = sent.copy()
    left[np.delete(np.arange(sent.size), gone)] += latency
    with TemporaryDirectory() as captures:
        sides = write_sides(Path(captures), sent, left, *gone.tolist())
        evaluate(sides / "ingress.stamps", sides / "egress.stamps").write(folder)
    return folder


def load_tail(folder: Path, name: str) -> StoredTail:
    return tail_of(Evaluation.load(folder), folder, name)
