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
import subprocess
import tempfile
from pathlib import Path

from program import TAILTAP

from benches.runs import compared, experiment, head
from benches.timing import machine
from tailtap.evaluation import Evaluation

ROUNDS = 15
MODES = ("none", "thin", "full")
DUT = {"platform": "bare-metal", "forwarder": "tc-mirred", "cpus": [1]}
TRAFFIC = {"rate": "50 kpkt/s", "duration": "2 s", "warm_up": "500 ms", "cpu": 0}
SHARES = {"median": 0.5, "p99": 0.99, "p99.9": 0.999}


def latencies() -> None:
    """Print the latency in each mode, and what it is more than without a trace."""
    print(head("us"))
    for row in compared("trace", MODES, ROUNDS, {"dut": DUT, "traffic": TRAFFIC}):
        print(row)


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
    latencies()
    for mode in MODES[1:]:
        with tempfile.TemporaryDirectory() as folder:
            programs(Path(folder), mode)


if __name__ == "__main__":
    main()
