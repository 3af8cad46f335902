"""What an evaluation keeps of a run's tail: its largest latencies in time order, and blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.evaluation.values import Blocks, Column
from tailtap.base.errors import InputError
from tailtap.records.evaluation import Side

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
    #: What every latency may be off by, to either side, and why.
    within: Within = field(default_factory=Within)

    @property
    def tied(self) -> bool:
        """Whether fewer packets are stored than should be: too many share the next latency."""
        return self.position.size < min(self.packets, ALWAYS)

    @property
    def loss(self) -> float:
        """Lost packets as a share of those whose fate is known."""
        known = self.packets + self.lost
        return self.lost / known if known else 0.0


def tail_of(evaluation: Evaluation, folder: Path | None, name: str) -> StoredTail:
    """The tail of the evaluation in `folder`; `name` is what reports call the run.

    Raises `InputError` when its tables do not fit together.
    """
    floor_ns, position, ingress_ns, latency_ns = evaluation.exceedances
    blocks = evaluation.blocks
    wrong = ""
    if int(blocks.packets.sum()) != evaluation.counts.matched:
        wrong = "blocks.parquet counts other packets than evaluation.json"
    elif np.any(np.diff(blocks.start_ns) <= 0):
        wrong = "blocks.parquet is not in order"
    elif np.any(np.diff(position) <= 0) or np.any(latency_ns <= floor_ns):
        wrong = "exceedances.parquet is not in order"
    if wrong:
        raise InputError(f"not a whole evaluation ({wrong}); run tailtap evaluate --out again").at(
            folder or name
        )
    return StoredTail(
        name=name,
        packets=evaluation.counts.matched,
        lost=evaluation.counts.lost,
        rate=rate_of(evaluation.inputs.ingress),
        floor_ns=floor_ns,
        position=position,
        ingress_ns=ingress_ns,
        latency_ns=latency_ns,
        blocks=blocks,
        within=evaluation.within,
    )


def rate_of(side: Side) -> float:
    """Packets a second of a capture, rounded to three digits: no more is known of a clock."""
    duration = side.last_ns - side.first_ns
    if duration <= 0:
        return 0.0
    return float(f"{(side.packets - 1) * SECOND_NS / duration:.3g}")
