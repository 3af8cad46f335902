"""How long lines of devices take to stand, to forward, and to go, by their length, and what taps
between their nodes cost. Needs root.

A line stands when all ports are up, and forwards when every node routes. All lengths have their
turn in each round. So have runs with taps between the nodes and without.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benches.runs import compared, head
from tailtap.lab.forwarders import FORWARDERS, Setting
from tailtap.lab.generators.model import Traffic
from tailtap.lab.platforms import PLATFORMS, DutSpec, alike, build, graph_of
from tailtap.lab.topology.graphs import FORWARD
from tailtap.lab.topology.lab import Lab
from tailtap.lab.topology.placement import Placement

ROUNDS = 3
LENGTHS = (1, 2, 4, 8, 16, 32, 64)
KINDS = ("bare-metal", "container", "crun", "runc", "podman")
SHORT = ("crun", "runc", "podman")
"""Kinds whose longest line is a short one."""
LONGEST_SHORT = 16
TAPPED = {"tc-mirred": 32, "kernel-route": 8}
TAPPED_ROUNDS = 7
TRAFFIC = {"rate": "5 kpkt/s", "duration": "2 s", "warm_up": "500 ms", "cpu": 0}
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
                    if platform in SHORT and length > LONGEST_SHORT:
                        continue
                    row = once(platform, length, Path(folder))
                    found.setdefault((platform, length), []).append(row)
    print(f"{'':16}{'nodes':>6}{'stand':>10}{'forward':>10}{'gone':>10}   median of {ROUNDS}, s")
    for (platform, length), rounds in found.items():
        values = "".join(
            f"{statistics.median(column):10.2f}" for column in zip(*rounds, strict=True)
        )
        print(f"{platform:16}{length:6}{values}")
    for forwarder, length in TAPPED.items():
        dut = {"forwarder": forwarder, "line": length, "cpus": [CPU]}
        print(f"\n{length} nodes of {forwarder}, {TAPPED_ROUNDS} rounds\n")
        print(head("taps, us"))
        for line in compared(
            "dut.taps", ("ends", "hops", "queues"), TAPPED_ROUNDS, {"dut": dut, "traffic": TRAFFIC}
        ):
            print(line)


if __name__ == "__main__":
    main()
