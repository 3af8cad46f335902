"""The tail that an evaluation keeps, from latencies that a test makes up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Integers = npt.NDArray[np.int64]
START = 7_000_000_000_000
LIMIT = 1 << 20
WANTED = 1 << 16
BLOCKS = 1 << 14
SHORTEST = 20


def floor_of(latency: Integers) -> int:
    """The latency that all stored packets lie above."""
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
    """What the model reads of an evaluation, of packets sent at a constant rate (pkt/s)."""
    folder.mkdir(parents=True, exist_ok=True)
    ingress = START + np.arange(latency.size) * 1_000_000_000 // rate
    exceedances, floor, blocks, width = tail_tables(latency, ingress)
    pq.write_table(exceedances, folder / "exceedances.parquet")
    pq.write_table(blocks, folder / "blocks.parquet")
    meta = {
        "schema": "tailtap.evaluation/1",
        "counts": {"matched": latency.size, "lost": lost},
        "inputs": {
            "ingress": {
                "packets": latency.size,
                "first_ns": int(ingress[0]),
                "last_ns": int(ingress[-1]),
            }
        },
        "exceedances": {"floor_ns": floor, "packets": exceedances.num_rows},
        "blocks": {"width_ns": width},
    }
    (folder / "evaluation.json").write_text(json.dumps(meta), "utf-8")
    return folder
