"""How late a single packet is behind each forwarder when the device is idle. Needs root.

Sends packets one by one, 5 ms apart. Each of three rounds measures every forwarder, and the floor:
links of the lab without a device. Prints a table in Markdown: the
smallest and the largest median and 99th percentile of the rounds, in us. Takes about seven minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from program import TAILTAP

from benches.timing import machine
from tailtap.analysis.evaluation import Evaluation
from tailtap.base.errors import MachineError
from tailtap.lab.forwarders import FORWARDERS
from tailtap.remote.local import LocalHost

ROUNDS = 3
TRAFFIC = {
    # A little off 200 pkt/s: their distance is a multiple neither of a drain time of 100 us nor of
    # the kernel's ticks, so that they meet both at any point.
    "rate": "197 pkt/s",
    "duration": "6 s",
    "warm_up": "500 ms",
    "cpu": 0,
}
AF_XDP = {"driver": "af_xdp"}
DRAIN = {"drain": "100 us"}
COMMAND = f"{TAILTAP} forward {{ingress}} {{egress}} --cpu {{cpu}}"
SETUPS: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    # what the table calls it, forwarder, options
    ("`wire`, the floor", "", {}),
    ("tc-mirred", "tc-mirred", {}),
    ("kernel-route", "kernel-route", {}),
    ("xdp", "xdp", {}),
    ("testpmd", "testpmd", {}),
    ("testpmd, `driver: af_xdp`", "testpmd", AF_XDP),
    ("dpdk-l2fwd", "dpdk-l2fwd", {}),
    ("dpdk-l2fwd, `driver: af_xdp`", "dpdk-l2fwd", AF_XDP),
    ("dpdk-l2fwd, `drain: 100 us`", "dpdk-l2fwd", DRAIN),
    ("dpdk-l2fwd, `drain: 100 us`, `driver: af_xdp`", "dpdk-l2fwd", {**DRAIN, **AF_XDP}),
    ("dpdk-l3fwd", "dpdk-l3fwd", {}),
    ("dpdk-l3fwd, `drain: 100 us`", "dpdk-l3fwd", DRAIN),
    ("suricata", "suricata", {}),
    ("suricata, `rules: many`", "suricata", {"rules": "many"}),
    ("suricata, `mode: dpdk`, two CPUs", "suricata", {"mode": "dpdk"}),
    ("external, `tailtap forward`", "external", {"command": COMMAND}),
    ("fault, without a fault", "fault", {}),
)


def cases(known: Sequence[int]) -> dict[str, dict[str, Any]]:
    """What the experiment sets for each setup that this machine can measure, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for name, forwarder, options in SETUPS:
        cpus = [1, 2] if options.get("mode") == "dpdk" else [1]
        if not set(cpus) <= set(known):
            print(f"{name}: left out, as it needs more CPUs than there are", flush=True)
            continue
        try:
            for need in FORWARDERS[forwarder].needs if forwarder else ():
                need.find(LocalHost())
        except MachineError as error:
            print(f"{name}: left out: {error}", flush=True)
            continue
        found[name] = {
            "dut.platform": "bare-metal" if forwarder else "wire",
            "dut.forwarder": {forwarder or "tc-mirred": dict(options)},
            "dut.cpus": cpus,
        }
    return found


def measure(chosen: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, list[Path]]:
    """The folders of the runs of each setup; which one is being made is told on standard error."""
    experiment = folder / "single.yaml"
    content = {"name": "single", "traffic": TRAFFIC, "repeat": ROUNDS, "cases": [*chosen.values()]}
    experiment.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    out = folder / "out"
    # A run that fails is a row that says so.
    subprocess.run(
        [TAILTAP, "run", experiment, "--out", out], check=False, stdout=subprocess.DEVNULL
    )
    runs = sorted((out / "runs").iterdir())
    return {name: runs[place :: len(chosen)] for place, name in enumerate(chosen)}


def row(name: str, runs: Sequence[Path]) -> tuple[str, str]:
    """A line of the table, and what makes one doubt it."""
    records = [json.loads((run / "run.json").read_text(encoding="utf-8")) for run in runs]
    failures = [record["error"] for record in records if record["status"] != "done"]
    if failures:
        return f"| {name} | failed | failed |", failures[0]
    evaluations = [Evaluation.load(run / "evaluation") for run in runs]
    columns = []
    for share in (0.5, 0.99):
        values = sorted(evaluation.percentile(share).value / 1000 for evaluation in evaluations)
        columns.append(f"{values[0]:.1f} to {values[-1]:.1f}")
    doubts = sorted({warning["code"] for record in records for warning in record["warnings"]})
    lost = sum(evaluation.counts.lost for evaluation in evaluations)
    doubts += [f"{lost} packets lost"] if lost else []
    return f"| {name} | {' | '.join(columns)} |", ", ".join(doubts)


def main() -> None:
    """Prints the table."""
    chosen = cases(sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder:
        runs = measure(chosen, Path(folder))
        print(f"{machine()}: {ROUNDS} rounds of {TRAFFIC['duration']} at {TRAFFIC['rate']}\n")
        print("| a single packet on an idle device, us | median | 99th percentile |\n|---|---|---|")
        rows = {name: row(name, folders) for name, folders in runs.items()}
        for line, _ in rows.values():
            print(line)
        for name, (_, doubts) in rows.items():
            if doubts:
                print(f"\n{name}: {doubts}")


if __name__ == "__main__":
    main()
