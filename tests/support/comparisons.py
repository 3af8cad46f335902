"""Runs to compare, as values and as folders, from latencies that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from made_records import made, traits_of

from tailtap.analysis.evaluation import Percentile
from tailtap.analysis.evaluation.clocks import Within
from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.runs.run import Run
from tests.simulation.folders import write_run as made_run
from tests.simulation.traffic import NEVER, Packets

SECOND = 1_000_000_000


class OnePercentile(Latencies):
    """What is known by one percentile."""

    mean = None
    distribution = (np.empty(0, np.int64), np.empty(0, np.int64))
    bucket_ns = None
    gap_counts = rate_counts = dict.fromkeys(("ingress", "egress"), distribution)

    def __init__(self, row: Percentile, lost: int, packets: int | None) -> None:
        """The largest latency is twice that of the percentile."""
        self.counted = {"lost": lost} | ({} if packets is None else {"matched": packets})
        self.offered = None if packets is None else packets + lost
        self.lost_at_least = lost
        self.max = 2 * row.value
        self.listed = self.curve = [row]


def sample(
    label: str,
    repeat: int,
    latency: float,
    *,
    p: float = 0.999,
    rate: int = 10_000,
    lost: int = 0,
    packets: int | None = 100_000,
    supported: bool = True,
    within_ns: int = 0,
    more: dict[str, Any] | None = None,
) -> Run:
    """A run that is known by one percentile, and says nothing of what it is."""
    row = Percentile(p, int(latency), None, None, round((packets or 0) * (1 - p)), supported)
    parameters = {"traffic": {"rate": rate}, **(more or {}).get("parameters", {})}
    record = made(
        **{
            "traits": traits_of(parameters.get("dut", {}).get("platform", label)),
            **(more or {}),
            "parameters": parameters,
        }
    )
    evaluation = OnePercentile(row, lost, packets)
    evaluation.within = Within(within_ns)
    return Run(
        slug=f"{label}-{repeat}",
        repeat=repeat,
        home=Path("made-up"),
        variables={"dut.platform": label},
        record=record,
        read=lambda: evaluation,
    )


def write_run(
    experiment: Path,
    number: int,
    variables: Mapping[str, Any],
    *,
    scale: float = 1.0,
    repeat: int = 1,
    rate: int = 10_000,
    packets: int = 20_000,
    lost: Sequence[int] = (),
    changes: dict[str, Any] | None = None,
) -> Path:
    """A finished run with stamps that were evaluated; `scale` stretches its tail."""
    slug = f"{number:03}-{'-'.join(map(str, variables.values())) or 'run'}-r{repeat}".replace(
        " ", ""
    )
    random = np.random.default_rng(number)
    ingress = 7 * SECOND + np.arange(packets) * (SECOND // rate)
    egress = ingress + 4_000 + (scale * 2_000 * random.pareto(3, packets)).astype(np.int64)
    egress[[*lost]] = NEVER
    platform = variables.get("dut.platform", "bare-metal")
    idle = dict.fromkeys(("user", "nice", "irq", "iowait"), 0)
    record: dict[str, Any] = {
        "parameters": {
            "dut": {"platform": platform, "forwarder": "tc-mirred", "cpus": [1], "options": {}},
            "traffic": {"rate": rate, "size": 64, "duration": packets * SECOND // rate, "cpu": 0},
        },
        "generator": None,
        "taps": {"ingress": {"seen": packets}, "egress": {"seen": packets - len(lost)}},
        "steal_ns": {"0": 0, "1": 0},
        "elapsed_ns": 2 * SECOND,
        "cpu_ns": {
            "0": {**idle, "system": SECOND, "softirq": 0, "idle": SECOND},
            "1": {**idle, "system": 0, "softirq": SECOND // 2, "idle": 3 * SECOND // 2},
        },
        "forwarder_memory": 3_000_000,
        "environment": {
            "hostname": "here",
            "kernel": {"release": "6.18.5", "preemption": "none"},
            "cpu": {"model": "Intel Xeon D-1518", "hypervisor": False},
            "topology": {
                "packages": ["0-3"],
                "caches": [
                    {"level": "1", "type": "Data", "size": "32K", "cpus": "0"},
                    {"level": "3", "type": "Unified", "size": "8M", "cpus": "0-1"},
                    {"level": "3", "type": "Unified", "size": "8M", "cpus": "2-3"},
                ],
            },
        },
        **(changes or {}),
    }
    return made_run(
        experiment / "runs" / slug,
        number,
        Packets(ingress, egress),
        variables,
        name=experiment.name,
        repeat=repeat,
        rate=rate,
        changes=record,
    )
