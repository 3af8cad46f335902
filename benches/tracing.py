"""What tracing costs: the latency that it adds behind tc-mirred, and the time of each program.
Needs root.

Latency: one experiment measures runs without, with a thin and with a full trace in turn. A row says
the median over the rounds, and how much more than without a trace that is: the median of the ratios
within each round, and a 95 % confidence interval of that median from the binomial distribution of
ranks. A thin trace should add at most 2 % to the median latency and 10 % to the 99.9th percentile.

Programs: the kernel times them during a run, each by itself. That leaves out how they are called.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from program import TAILTAP
from scipy.stats import binom

from benches.timing import machine
from tailtap.evaluation import Evaluation

ROUNDS = 15
MODES = ("none", "thin", "full")
DUT = {"platform": "bare-metal", "forwarder": "tc-mirred", "cpus": [1]}
TRAFFIC = {"rate": "50 kpkt/s", "duration": "2 s", "warm_up": "500 ms", "cpu": 0}
SHARES = {"median": 0.5, "p99": 0.99, "p99.9": 0.999}


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The median of `ratios`, and the bounds of a 95 % confidence interval of it.

    The smallest ranks that hold it, by the sign test: Conover, Practical Nonparametric Statistics,
    3.2.
    """
    ordered = sorted(ratios)
    rank = int(binom.ppf(0.025, len(ordered), 0.5))
    low, high = max(0, rank - 1), min(len(ordered) - 1, len(ordered) - rank)
    return statistics.median(ordered), ordered[low], ordered[high]


def experiment(folder: Path, content: dict[str, Any]) -> list[Path]:
    """The run folders of an experiment, in the order of its runs."""
    file, out = folder / "tracing.yaml", folder / "out"
    file.write_text(yaml.safe_dump({"name": "tracing", **content}), encoding="utf-8")
    command = [str(TAILTAP), "run", str(file), "--out", str(out), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sorted((out / "runs").iterdir())


def latencies(folder: Path) -> None:
    """Print the latency in each mode, and what it is more than without a trace."""
    content = {"dut": DUT, "traffic": TRAFFIC, "vary": {"trace": list(MODES)}, "repeat": ROUNDS}
    runs = [Evaluation.load(run / "evaluation") for run in experiment(folder, content)]
    print(f"| us | {' | '.join(f'{name} | more' for name in SHARES)} |")
    print(f"|---|{'---|---|' * len(SHARES)}")
    for place, mode in enumerate(MODES):
        columns = []
        for share in SHARES.values():
            values = [run.percentile(share).value for run in runs[place :: len(MODES)]]
            without = [run.percentile(share).value for run in runs[:: len(MODES)]]
            columns.append(f"{statistics.median(values) / 1000:.1f}")
            ratios = [value / one for value, one in zip(values, without, strict=True)]
            middle, low, high = (100 * (ratio - 1) for ratio in interval(ratios))
            columns.append(f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})" if place else "")
        print(f"| {mode} | {' | '.join(columns)} |")


def programs(folder: Path, mode: str) -> None:
    """Print what each program took while packets passed."""
    command = [
        str(TAILTAP),
        "trace",
        "--cpus",
        "1",
        "--out",
        str(folder),
        "--mode",
        mode,
        "--cost",
        "--json",
    ]
    command += ["--served", "softirq", "--flush", "0 s"]
    tracer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert tracer.stdout is not None
    tracer.stdout.readline()
    [run] = experiment(folder, {"dut": DUT, "traffic": TRAFFIC})
    tracer.send_signal(signal.SIGINT)
    trace = json.loads(tracer.communicate()[0])["trace"]
    packets = Evaluation.load(run / "evaluation").counts["ingress"]
    rows = sorted(trace["hooks"].items(), key=lambda row: -row[1][1])
    spent, count = sum(row[1][1] for row in rows), sum(row[1][0] for row in rows)
    print(
        f"\n{mode}: {trace['records']} records for {packets} packets; {count} runs, "
        f"{spent / max(1, count):.0f} ns each"
    )
    for name, (times, ns, _) in rows:
        if times > packets / 10:
            print(f"  {name:28} {times:9}  {ns / times:5.0f} ns")


def main() -> None:
    """Prints both."""
    print(f"{machine()}: {ROUNDS} rounds of {TRAFFIC['duration']} at {TRAFFIC['rate']}\n")
    with tempfile.TemporaryDirectory() as folder:
        latencies(Path(folder))
    for mode in MODES[1:]:
        with tempfile.TemporaryDirectory() as folder:
            programs(Path(folder), mode)


if __name__ == "__main__":
    main()
