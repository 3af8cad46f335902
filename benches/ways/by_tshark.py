"""tshark prints stamp and payload of each packet, a file on each core; a script joins them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benches import process
from benches.timing import Answer
from benches.traffic import Pair, ranks

FIELDS = ("-T", "fields", "-e", "frame.time_epoch", "-e", "udp.payload")


def evaluate(pair: Pair) -> Answer:
    """From the captures to the percentiles."""
    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(_read, (pair.ingress, pair.egress))
    return joined(before, after)


def joined(before: dict[str, int], after: dict[str, int]) -> Answer:
    """The percentiles of packets by their payloads and times in ns."""
    latency = sorted(time - before[key] for key, time in after.items() if key in before)
    return Answer([latency[rank - 1] for rank in ranks(len(latency))])


def _read(capture: Path) -> dict[str, int]:
    printed = process.run("tshark", "-n", "-r", capture, *FIELDS).stdout
    rows = (line.split("\t") for line in printed.splitlines())
    return {payload: int(time.replace(".", "")) for time, payload in rows}
