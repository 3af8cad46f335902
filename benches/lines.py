"""How long lines of devices take to stand, to forward, and to go, by their length. Needs root.

A line stands when all ports are up, and forwards when every node routes. All lengths have their
turn in each round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tailtap.forwarder import FORWARDERS, Setting
from tailtap.platform import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.topology.lab import Lab
from tailtap.topology.placement import Placement
from tailtap.topology.smallest import FORWARD
from tailtap.traffic.model import Traffic

ROUNDS = 3
LENGTHS = (1, 2, 4, 8, 16, 32, 64)
KINDS = ("bare-metal", "container")
CPU = 1
SENT = {FORWARD: Traffic.model_validate({"ttl": max(LENGTHS) + 1})}


def once(platform: str, length: int, folder: Path) -> tuple[float, float, float]:
    """Seconds until a line stands, until it forwards, and until it is gone."""
    kind, router = PLATFORMS[platform], FORWARDERS["kernel-route"]
    devices = alike(kind, DutSpec((CPU,), kind.Options(), placement=Placement((CPU,))), length)
    with Lab(graph_of(devices)) as lab:
        began = time.perf_counter()
        nodes = build(lab, devices)
        lab.wait_until_up()
        stands = time.perf_counter()
        for node in nodes:
            router.start(node, router.Options(), Setting(lab, folder, SENT, in_line=length > 1))
        forwards = time.perf_counter()
    gone = time.perf_counter()
    return stands - began, forwards - stands, gone - forwards


def main() -> None:
    """Prints the table."""
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for platform in KINDS:
                for length in LENGTHS:
                    row = once(platform, length, Path(folder))
                    found.setdefault((platform, length), []).append(row)
    print(f"{'':16}{'nodes':>6}{'stand':>10}{'forward':>10}{'gone':>10}   median of {ROUNDS}, s")
    for (platform, length), rounds in found.items():
        values = "".join(
            f"{statistics.median(column):10.2f}" for column in zip(*rounds, strict=True)
        )
        print(f"{platform:16}{length:6}{values}")


if __name__ == "__main__":
    main()
