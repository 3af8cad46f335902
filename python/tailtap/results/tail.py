"""What an evaluation keeps of a run's tail: its largest latencies in time order, and blocks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailtap.errors import InputError
from tailtap.evaluation import tables
from tailtap.evaluation.values import Blocks, Column

SECOND_NS = 1_000_000_000
#: An evaluation keeps as many of the largest latencies, where there are as many.
ALWAYS = 65_536


@dataclass(frozen=True)
class StoredTail:
    """The tail of one run.

    `position`, `ingress_ns` and `latency_ns` are of all packets whose latency is above
    `floor_ns`, by `position`: how many packets were matched before them.
    """

    name: str
    #: Packets that latencies were measured of, and those that did not arrive.
    packets: int
    lost: int
    #: Packets a second before the device.
    rate: float
    floor_ns: int
    position: Column
    ingress_ns: Column
    latency_ns: Column
    blocks: Blocks
    #: What every latency may be off by, to either side: more than 0 where the clocks are two.
    within_ns: int = 0

    @property
    def tied(self) -> bool:
        """Whether fewer packets are stored than should be: too many share the next latency."""
        return self.position.size < min(self.packets, ALWAYS)

    @property
    def loss(self) -> float:
        """Lost packets as a share of those whose fate is known."""
        known = self.packets + self.lost
        return self.lost / known if known else 0.0


def load_tail(folder: Path, name: str) -> StoredTail:
    """The tail that the evaluation in `folder` keeps; `name` is what reports call the run.

    Raises `InputError` when the folder holds no evaluation, or one without its tail.
    """
    try:
        meta = json.loads((folder / "evaluation.json").read_text("utf-8"))
        if "exceedances" not in meta:
            raise InputError(
                f"{folder}: this evaluation kept no exceedances, only a distribution without "
                "time; evaluate the captures again: tailtap evaluate --out"
            )
        return _tail(meta, folder, name)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot read the evaluation: {error.strerror or error}; "
            "run tailtap evaluate --out again"
        ) from error
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{folder}: not a whole evaluation ({error}); run tailtap evaluate --out again"
        ) from error


def _tail(meta: dict[str, Any], folder: Path, name: str) -> StoredTail:
    exceedances = tables.read(folder, "exceedances")
    blocks = tables.read(folder, "blocks")
    counts = meta["counts"]
    found = StoredTail(
        name=name,
        packets=int(counts["matched"]),
        lost=int(counts["lost"]),
        rate=rate_of(meta["inputs"]["ingress"]),
        floor_ns=int(meta["exceedances"]["floor_ns"]),
        position=tables.column(exceedances, "position"),
        ingress_ns=tables.column(exceedances, "ingress_ns"),
        latency_ns=tables.column(exceedances, "latency_ns"),
        blocks=Blocks(
            int(meta["blocks"]["width_ns"]),
            *(
                tables.column(blocks, column)
                for column in ("start_ns", "packets", "sum_ns", "max_ns")
            ),
        ),
        within_ns=int((meta.get("clocks") or {}).get("within_ns", 0)),
    )
    if int(found.blocks.packets.sum()) != found.packets:
        raise ValueError("blocks.parquet counts other packets than evaluation.json")
    if np.any(np.diff(found.position) <= 0) or np.any(found.latency_ns <= found.floor_ns):
        raise ValueError("exceedances.parquet is not in order")
    return found


def rate_of(side: dict[str, Any]) -> float:
    """Packets a second of a capture, rounded to three digits: no more is known of a clock."""
    duration = int(side["last_ns"]) - int(side["first_ns"])
    if duration <= 0:
        return 0.0
    return float(f"{(int(side['packets']) - 1) * SECOND_NS / duration:.3g}")
