"""scapy reads both files, and a dictionary joins the packets by their payloads."""

from __future__ import annotations

from pathlib import Path

from scapy.layers.inet import UDP
from scapy.utils import rdpcap

from benches.timing import Answer
from benches.traffic import SECOND_NS, Pair
from benches.ways.by_tshark import joined


def evaluate(pair: Pair) -> Answer:
    """From the captures to the percentiles."""
    return joined(_read(pair.ingress), _read(pair.egress))


def _read(capture: Path) -> dict[str, int]:
    packets = rdpcap(str(capture))
    return {bytes(one[UDP].payload).hex(): int(one.time * SECOND_NS) for one in packets}
