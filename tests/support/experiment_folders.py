"""Experiment folders as `tailtap run` writes them, from latencies that numpy makes up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stamps import write_sides

from tailtap.analysis.evaluation import evaluate
from tests.simulation.folders import write_run as made_run
from tests.simulation.traffic import NEVER, Packets

START = 7_000_000_000_000
BASE = {"wire": 900, "bare-metal": 4_200, "container": 4_600, "vm": 9_000}


def traffic(
    platform: str, rate: int, packets: int, seed: int, loss: float | None = None
) -> Packets:
    """A heavy tail, a timer's regular delays, a few bursts behind a stall, and some loss."""
    random = np.random.default_rng(seed)
    ingress = START + (np.arange(packets) * (1_000_000_000 / rate)).astype(np.int64)
    ingress = ingress + random.gamma(2, 60, packets).astype(np.int64)
    latency = BASE[platform] * random.lognormal(0, 0.08, packets)
    latency += random.pareto(1.6, packets) * (random.random(packets) < 0.004) * BASE[platform]
    if platform != "wire":
        latency += np.where((ingress // 1000) % 4_000 < 12, 3_000, 0)
        for _ in range(3):
            first = int(random.integers(0, packets - 60))
            stall = random.integers(200_000, 1_500_000)
            queue = stall - (ingress[first : first + 60] - ingress[first])
            latency[first : first + 60] += np.maximum(queue, 0)
    lost = np.zeros(packets, dtype=bool)
    if platform != "wire":  # two, and ten in a row
        first = int(random.integers(packets // 2, packets - 10))
        lost[[3, packets // 3, *range(first, first + 10)]] = True
    if loss is not None:
        lost[:] = np.arange(packets) < round(loss * packets)
    egress = ingress + np.rint(latency).astype(np.int64)
    return Packets(ingress, np.where(lost, NEVER, egress))


def write_evaluation(folder: Path, made: Packets) -> None:
    """The evaluation of packets in `folder`, and the captures beside it."""
    folder.parent.mkdir(exist_ok=True)
    sides = write_sides(folder.parent, made.sent, made.left, *np.flatnonzero(made.left == NEVER))
    evaluate(sides / "ingress.stamps", sides / "egress.stamps", throughout=True).write(folder)


def write_run(
    folder: Path,
    number: int,
    variables: Mapping[str, Any],
    *,
    repeat: int = 1,
    packets: int = 20_000,
    rate: int = 10_000,
    name: str = "container-vs-bare-metal",
    warnings: list[dict[str, str]] | None = None,
    status: str = "done",
    error: str | None = None,
    loss: float | None = None,
    achieved: float | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """One run folder; without an evaluation unless `status` is ``done``.

    `changes` are more keys of its record.
    """
    platform = variables.get("dut.platform", "bare-metal")
    tap = {"file": "x.stamps", "seen": packets + 500, "stored": packets + 500, "lost": 0,
           "other": 500, "interface": "tt-tap0"}  # fmt: skip
    taps = {"ingress": tap, "egress": {**tap, "stored": packets + 488, "lost": 12}}
    return made_run(
        folder / "runs" / f"{number:03}-{platform}-{rate}-{repeat}",
        number,
        traffic(platform, rate, packets, seed=number, loss=loss),
        variables,
        name=name,
        repeat=repeat,
        rate=rate,
        achieved=achieved,
        status=status,
        warnings=[(one["code"], one["message"]) for one in warnings or ()],
        changes={"error": error, "taps": taps, **(changes or {})},
    )


def write_experiment(folder: Path, packets: int = 20_000) -> Path:
    """Ten finished runs, `wire` and `bare-metal` at two rates, and one failed run."""
    number = 0
    for platform, repeats in (("wire", 2), ("bare-metal", 3)):
        for rate in (10_000, 50_000):
            for repeat in range(1, repeats + 1):
                number += 1
                stolen = [{"code": "steal", "message": "31 ms were stolen by the hypervisor"}]
                slip = [{"code": "slip", "message": "a packet left 812 us behind its schedule"}]
                write_run(
                    folder,
                    number,
                    {"dut.platform": platform, "traffic.rate": f"{rate // 1000} kpkt/s"},
                    repeat=repeat,
                    packets=packets,
                    rate=rate,
                    warnings=stolen + (slip if number == 8 else []),
                )
    write_run(
        folder,
        number + 1,
        {"dut.platform": "container", "traffic.rate": "10 kpkt/s"},
        status="failed",
        error="lxc-start is not installed: apt install lxc",
    )
    return folder
