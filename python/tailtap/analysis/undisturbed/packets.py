"""All packets of a run by when they came; an evaluation keeps the latest ones only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tailtap import _core
from tailtap.analysis.causes.late import SAMPLE_BYTES, packets_of
from tailtap.analysis.evaluation.settings import of_evaluation
from tailtap.analysis.evaluation.values import Column
from tailtap.analysis.runs.run import Run
from tailtap.base.errors import InputError


def all_packets(run: Run, before: Path, after: Path) -> tuple[Column, Column]:
    """Ingress stamps, ascending, and latencies of all matched packets of a run, in ns.

    The captures are matched piece by piece; each piece is so small that all of it is kept. Needs
    16 bytes of memory a packet, and as much to sort them. Raises `InputError` when the captures are
    not those that were evaluated.
    """
    stored = run.stored
    # No packet was matched later than the largest latency, and pieces are read so much further.
    settings = of_evaluation(stored, worst=0, losses=False, window_ns=stored.max + 1)
    pieces = _core.plan(before, after, settings.matching, chunk_bytes=SAMPLE_BYTES)
    found = [pair for piece in pieces for pair in packets_of(piece)]
    ingress = np.concatenate([np.empty(0, np.int64), *(pair[0] for pair in found)])
    latency = np.concatenate([np.empty(0, np.int64), *(pair[1] for pair in found)])
    values, counts = stored.distribution
    again, numbers = np.unique(latency, return_counts=True)
    if not (np.array_equal(again, values) and np.array_equal(numbers, counts)):
        raise InputError(
            "the stamps are not those that were evaluated: run `tailtap evaluate "
            f"{before.parent}` again"
        ).at(before)
    order = np.argsort(ingress, kind="stable")
    return ingress[order], latency[order]
