"""What tracing costs: the latency that it adds behind tc-mirred, and how late the generator gets,
beside bpftrace and perf that record the same events; and the time of each program. Needs root.

Latency: in each round a measurement without a trace and one with a thin trace take turns, at each
rate. A row has the medians over the rounds, and the median of what a thin trace adds within each
round with a 95 % confidence interval from the binomial distribution of ranks. A thin trace should
add at most 0.2 us and 5 % to the median, 10 % to the 99.9th percentile, and 2 us to the 99th
percentile of the generator's slip. A full one, bpftrace and perf have fewer rounds.

Programs: the kernel times them during a run, each by itself. That leaves out how they are called.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from program import TAILTAP

from benches.one_lab import SENDER, SERVER, Measured, OneLab, Watch
from benches.runs import interval
from benches.timing import machine

ROUNDS, OTHERS = 20, 5
"""Rounds with a thin trace, and with anything else."""
SECONDS = {10_000: 1.0, 50_000: 0.6, 100_000: 0.6}
"""How long packets are sent, by their rate in packets a second."""
EVENTS = (
    *("csd:csd_queue_cpu", "csd:csd_function_entry", "csd:csd_function_exit"),
    *("irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit"),
    *(f"irq_vectors:{name}_{end}" for name in ("local_timer", "reschedule")
      for end in ("entry", "exit")),
    *("net:netif_receive_skb", "power:cpu_idle", "sched:sched_switch", "tlb:tlb_flush"),
    *("workqueue:workqueue_execute_start", "workqueue:workqueue_execute_end", "nmi:nmi_handler"),
)  # fmt: skip
"""What a thin trace follows, but for interrupts that perf may not sample."""
READY_SECONDS = 20.0


@contextlib.contextmanager
def nobody(lab: OneLab) -> Iterator[None]:
    """Nobody watches."""
    yield


def tracer(*options: str) -> Watch:
    """`tailtap trace` as `tailtap run` starts it."""

    @contextlib.contextmanager
    def watch(lab: OneLab) -> Iterator[list[dict[str, Any]]]:
        out = lab.folder / "trace"
        shutil.rmtree(out, ignore_errors=True)  # a trace writes over no other one
        command = [str(TAILTAP), "trace", "--cpus", str(SERVER), "--out", str(out)]
        command += [
            "--senders",
            str(SENDER),
            "--json",
            "--flush",
            "0 s",
            "--served",
            "softirq",
            "--steered",
            *options,
        ]
        command += ["--networks", ",".join(map(str, lab.networks()))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said: list[dict[str, Any]] = []
        assert process.stdout is not None
        process.stdout.readline()
        yield said
        process.send_signal(signal.SIGINT)
        said.append(json.loads(process.communicate()[0])["trace"])

    return watch


@contextlib.contextmanager
def bpftrace(lab: OneLab) -> Iterator[None]:
    """A line of text for each event on the device's CPU."""
    probes = ", ".join(f"tracepoint:{event}" for event in EVENTS)
    program = f'{probes} /cpu == {SERVER}/ {{ printf("%lu %s\\n", nsecs, probe); }}'
    written = lab.folder / "bpftrace.txt"
    command = ["bpftrace", "-o", str(written), "-e", f'BEGIN {{ printf("begun\\n"); }} {program}']
    with _running(command):
        until = time.monotonic() + READY_SECONDS
        while not (written.exists() and written.stat().st_size) and time.monotonic() < until:
            time.sleep(0.05)
        yield
    assert written.stat().st_size > 100, "bpftrace recorded nothing"
    written.unlink()


@contextlib.contextmanager
def perf(lab: OneLab) -> Iterator[None]:
    """A record for each event on the device's CPU."""
    written = lab.folder / "perf.data"
    command = ["perf", "record", "-q", "-e", ",".join(EVENTS), "-C", str(SERVER)]
    with _running([*command, "-o", str(written)]):
        time.sleep(0.5)
        yield
    assert written.stat().st_size > 10_000, "perf recorded nothing"
    written.unlink()


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def watchers() -> Mapping[str, Watch]:
    """Who watches, by name; nobody first."""
    found = {"none": nobody, "thin": tracer("--mode", "thin"), "full": tracer("--mode", "full")}
    found |= {one.__name__: one for one in (bpftrace, perf) if shutil.which(one.__name__)}
    return found


def more(ours: Sequence[float], others: Sequence[float], *, ratio: bool) -> str:
    """What ours are more than the others, pair by pair."""
    both = list(zip(ours, others, strict=True))
    values = [100 * (a / b - 1) if ratio else (a - b) / 1000 for a, b in both]
    middle, low, high = interval(values)
    return f"{middle:+.2f} ({low:+.2f} to {high:+.2f}) {'%' if ratio else 'us'}"


def compare(lab: OneLab, rate: int) -> Iterator[str]:
    """Rows of the table at one rate."""
    found: dict[str, list[Measured]] = {name: [] for name in watchers()}
    for turn in range(ROUNDS):
        for name, watch in watchers().items():
            if turn < OTHERS or name in ("none", "thin"):
                found[name].append(lab.measure(rate, SECONDS[rate], watch))
    for name, ones in found.items():
        base = found["none"][: len(ones)]
        rows = [(one.median, one.p999, one.slip_p99) for one in ones]
        middle = [statistics.median(column) / 1000 for column in zip(*rows, strict=True)]
        columns = [f"{value:.1f}" for value in middle]
        if name != "none":
            medians = [one.median for one in ones], [one.median for one in base]
            tails = [one.p999 for one in ones], [one.p999 for one in base]
            slips = [one.slip_p99 for one in ones], [one.slip_p99 for one in base]
            columns[0] += f" | {more(*medians, ratio=False)}, {more(*medians, ratio=True)}"
            columns[1] += f" | {more(*tails, ratio=True)}"
            columns[2] += f" | {more(*slips, ratio=False)}"
        else:
            columns = [f"{value} | " for value in columns]
        yield f"| {rate // 1000} | {name} | {len(ones)} | {' | '.join(columns)} |"


def programs(lab: OneLab, mode: str) -> None:
    """Print what each program took while packets passed."""
    rate, said = 50_000, []

    @contextlib.contextmanager
    def watch(lab: OneLab) -> Iterator[None]:
        with tracer("--mode", mode, "--cost")(lab) as found:
            yield
        said.extend(found)

    lab.measure(rate, SECONDS[rate], watch)
    [trace], packets = said, rate * SECONDS[rate]
    rows = sorted(trace["hooks"].items(), key=lambda row: -row[1][1])
    spent, count = sum(row[1][1] for row in rows), sum(row[1][0] for row in rows)
    print(
        f"\n{mode}: {trace['records']} records for {packets:.0f} packets; {count} runs, "
        f"{spent / max(1, count):.0f} ns each"
    )
    for name, (times, ns, _) in rows:
        if times > packets / 10:
            print(f"  {name:28} {times:9}  {ns / times:5.0f} ns")


def main() -> None:
    """Prints both."""
    print(f"{machine()}: {ROUNDS} rounds\n")
    print("| kpkt/s | trace | rounds | median us | more | p99.9 us | more | slip's p99 us | more |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, OneLab.standing(Path(folder)) as lab:
        for rate in SECONDS:
            for row in compare(lab, rate):
                print(row, flush=True)
        for mode in ("thin", "full"):
            programs(lab, mode)


if __name__ == "__main__":
    main()
