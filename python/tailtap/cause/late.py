"""Which packets of a run are late, and a sample of usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from tailtap import _core
from tailtap.errors import InputError
from tailtap.evaluation.percentiles import label
from tailtap.evaluation.values import Column
from tailtap.results.run import Run
from tailtap.units import format_time, parse_time

DEFAULT = "p99.9"
MOST_LATE = 1_000_000
"""So many late packets take a second or two; a longer tail needs a higher threshold."""
SAMPLES = 8
SAMPLE_BYTES = 1 << 19
"""Usual packets are looked for in so many pieces of the captures, of so many bytes each."""
_LEAST_WINDOW_NS = 10_000_000
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Packets:
    """Packets as columns, in the order in which they left; times in ns."""

    ingress_ns: Column
    egress_ns: Column

    @property
    def latency_ns(self) -> Column:
        """Their latencies."""
        return self.egress_ns - self.ingress_ns


@dataclass(frozen=True)
class Late:
    """The late packets of a run."""

    packets: Packets
    threshold_ns: int
    words: str
    """The threshold as people read it."""
    median_ns: int

    @property
    def excess_ns(self) -> Column:
        """How much longer than the median each took."""
        return self.packets.latency_ns - self.median_ns


def late_packets(run: Run, text: str = DEFAULT) -> Late:
    """The packets of a run whose latency is above `text`, a percentile or a time.

    Raises `InputError` when it is neither, when the evaluation has not kept all of these packets,
    and when there is none.
    """
    tail, stored = run.tail, run.stored
    match = _PERCENTILE.fullmatch(text.strip())
    if match is not None:
        p = float(Decimal(match[1]) / 100)
        if not 0 < p < 1:
            raise InputError(f"--late {text!r}: a percentile lies between p0 and p100")
        threshold = stored.percentile(p).value
        words = f"{label(p)}, {format_time(threshold)}"
    else:
        try:
            threshold = parse_time(text)
        except InputError as error:
            raise InputError(
                f"--late {text!r}: give a percentile such as p99.9, or a latency such as '100 us'"
            ) from error
        words = format_time(threshold)
    if threshold < tail.floor_ns:
        raise InputError(
            f"{run.slug}: --late {text}: the evaluation keeps the packets above "
            f"{format_time(tail.floor_ns)} only; give a threshold of at least that"
        )
    kept = tail.latency_ns > threshold
    if not kept.any():
        raise InputError(
            f"{run.slug}: no packet took longer than {words}: give a lower --late; the longest "
            f"latency is {format_time(stored.max)}"
        )
    if int(kept.sum()) > MOST_LATE:
        raise InputError(
            f"{run.slug}: {int(kept.sum()):,} packets took longer than {words}: give a higher "
            f"--late, for {MOST_LATE:,} at most"
        )
    ingress, latency = tail.ingress_ns[kept], tail.latency_ns[kept]
    order = np.argsort(ingress + latency, kind="stable")
    packets = Packets(ingress[order], (ingress + latency)[order])
    return Late(packets, threshold, words, stored.percentile(0.5).value)


def usual_packets(run: Run, folder: Path) -> Packets:
    """Packets between the quartiles of the latency, from pieces all over the run's captures.

    Raises `InputError` when the captures are gone.
    """
    stored = run.stored
    low, high = (stored.percentile(p).value for p in (0.25, 0.75))
    sides = [_capture(stored.inputs[side], folder) for side in ("ingress", "egress")]
    options: dict[str, Any] = {
        "key": stored.key,
        "trim_ns": int(stored.options["trim_ns"]),
        # A usual packet leaves soon, and pieces are read a window further than they reach.
        "window_ns": max(_LEAST_WINDOW_NS, 4 * high),
        "worst": 0,
    }
    pieces = _core.plan(*sides, chunk_bytes=SAMPLE_BYTES, **options)
    chosen = pieces[:: max(1, len(pieces) // SAMPLES)][:SAMPLES]
    found = [exceedances for piece in chosen for exceedances in _packets_of(piece)]
    ingress = np.concatenate([np.empty(0, np.int64), *(pair[0] for pair in found)])
    latency = np.concatenate([np.empty(0, np.int64), *(pair[1] for pair in found)])
    usual = (latency >= low) & (latency <= high)
    ingress, egress = ingress[usual], (ingress + latency)[usual]
    order = np.argsort(egress, kind="stable")
    return Packets(ingress[order], egress[order])


def _packets_of(piece: bytes) -> Iterator[tuple[Column, Column]]:
    """Ingress stamps and latencies of a piece; nothing where no packet of it came through."""
    try:
        found: Any = _core.conclude(_core.evaluate_piece(piece), bucket_ns=100)
    except InputError:
        return
    _, _, ingress, latency = found["exceedances"]
    yield np.frombuffer(ingress, np.int64), np.frombuffer(latency, np.int64)


def _capture(side: Any, folder: Path) -> Path:
    path = folder / Path(str(side["path"])).name
    if not path.is_file():
        raise InputError(
            f"{path}: the stamps of the run are gone; without them nobody can say which core "
            "served a packet, or what usual packets see"
        )
    return path
