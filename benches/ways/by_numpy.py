"""A NumPy script that knows the record layout and the ids: percentiles only, of whole captures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from captures import RECORD
from numpy.typing import NDArray

from benches.timing import Answer
from benches.traffic import SECOND_NS, Integers, Pair, ranks

PCAP_HEADER_BYTES = 24


def load(capture: Path) -> tuple[Integers, NDArray[np.uint32]]:
    """Stamps in nanoseconds and ids, straight from the records."""
    records = np.memmap(capture, RECORD, "r", offset=PCAP_HEADER_BYTES)
    times = records["seconds"].astype(np.int64) * SECOND_NS + records["ns"]
    return times, np.ascontiguousarray(records["frame"][:, 42:46]).view("<u4").ravel()


def evaluate(pair: Pair) -> Answer:
    """A direct index by id, and one sort."""
    before, before_ids = load(pair.ingress)
    after, after_ids = load(pair.egress)
    by_id = np.zeros(int(before_ids.max()) + 1, np.int64)
    by_id[before_ids] = before
    latency = np.sort(after - by_id[after_ids])
    return Answer(latency[ranks(len(latency)) - 1].tolist())
