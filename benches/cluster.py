"""How evaluation grows with the workers of a Dask cluster, all on this machine.

Each worker is one thread, pinned to a core of its own, so that a second worker is a second core;
the scheduler and the client run beside them. Ways run in turn, in several rounds, from the page
cache; medians are printed with the fastest and the slowest. Each million pairs take 100 MB of disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

from captures import RECORD
from dask_cluster import dask_cluster
from stamps import RECORD as STAMP

from benches import long, timing, traffic
from benches.timing import MIB, MILLION
from tailtap.analysis.evaluation import Captures, Evaluation, Settings, evaluate_many
from tailtap.analysis.evaluation.cluster import Cluster
from tailtap.analysis.evaluation.executors import Executor, Threads
from tailtap.analysis.evaluation.many import evaluate_piece, plan
from tailtap.analysis.evaluation.sources import source_of

CHUNK_BYTES = 128 * MIB
#: Pieces last 8 s of stamps and 2 s of pcap.
SETTINGS = Settings(key="moonsniff", window_ns=traffic.SECOND_NS // 100)
#: Into so many runs the packets are divided where whole runs are spread.
RUNS = 40
#: This part of the packets in pcap files takes about as many bytes.
PCAP_SHARE = 4
SINGLE = "1 worker"

Start = Callable[[], AbstractContextManager[Executor]]


def make(folder: Path, pairs: int) -> dict[str, list[Captures]]:
    """One large pair of stamp files, one of pcap files with fewer packets, and many runs."""

    def stamps(name: str, count: int) -> Captures:
        (folder / name).mkdir()
        pair = long.make(folder / name, "stamps", count)
        return Captures(pair.ingress, pair.egress, SETTINGS)

    pcap = traffic.plain(folder, pairs // PCAP_SHARE)
    return {
        "a pair of stamp files": [stamps("whole", pairs)],
        "a pair of pcap files": [Captures(pcap.ingress, pcap.egress, SETTINGS)],
        f"{RUNS} runs of stamp files": [stamps(f"run-{i}", pairs // RUNS) for i in range(RUNS)],
    }


def evaluate(captures: list[Captures], executor: Executor) -> float:
    """Seconds that the evaluation of all `captures` takes."""
    start = perf_counter()
    for _, found in evaluate_many(captures, executor, chunk_bytes=CHUNK_BYTES):
        assert isinstance(found, Evaluation), found
    return perf_counter() - start


def packets(captures: list[Captures]) -> int:
    """Packets before the device, from the sizes of the files."""
    sizes = {".pcap": RECORD.itemsize, ".stamps": STAMP.itemsize}
    files = [source_of(pair.ingress).files[0] for pair in captures]
    return sum(file.stat().st_size // sizes[file.suffix] for file in files)


@contextmanager
def pinned(core: int) -> Iterator[Executor]:
    """One thread on one core, as a worker is, but without a cluster."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        with Threads(1) as threads:
            yield threads
    finally:
        os.sched_setaffinity(0, everywhere)


def partial_bytes(pair: Captures, chunk_bytes: int) -> float:
    """The size of the partial evaluation of a piece, the median over the pieces of `pair`."""
    pieces = plan(pair.ingress, pair.egress, pair.settings, chunk_bytes)
    return statistics.median(len(evaluate_piece(piece)) for piece in pieces)


def main() -> None:
    """Prints the table, as Markdown."""
    parser = argparse.ArgumentParser(prog="benches.cluster", description=__doc__)
    parser.add_argument("--pairs", type=float, default=64, help="millions (default: 64)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in turn (default: 5)")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    seconds: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tt-bench-")))
        work = make(folder, int(options.pairs * MILLION))
        ways: dict[str, Start] = {"no cluster, 1 core": partial(pinned, cores[0])}
        for count in range(1, len(cores) + 1):
            cluster = stack.enter_context(dask_cluster(workers=0))
            for core in cores[:count]:
                stack.enter_context(cluster.worker(["taskset", "-c", str(core), sys.executable]))
            ways[f"{count} worker{'s'[: count > 1]}"] = partial(Cluster, cluster.address)
        for _ in range(options.rounds):
            for name, captures in work.items():
                for way, start in ways.items():
                    with start() as executor:
                        seconds.setdefault((name, way), []).append(evaluate(captures, executor))
        sent = {name: packets(captures) for name, captures in work.items()}
        [pair] = work["a pair of stamp files"]
        whole = source_of(pair.ingress).files[0].stat().st_size
        sizes = {size: partial_bytes(pair, size) for size in (CHUNK_BYTES, whole)}
    print(f"{timing.machine()}; median (fastest to slowest) of {options.rounds} rounds in turn\n")
    print("| work | where | seconds | million pairs/s | x 1 worker |")
    print("|---|---|---:|---:|---:|")
    for (name, way), times in seconds.items():
        median = statistics.median(times)
        gain = statistics.median(seconds[name, SINGLE]) / median
        print(
            f"| {name} | {way} | {median:.2f} ({min(times):.2f} to {max(times):.2f}) "
            f"| {sent[name] / median / MILLION:.1f} | {gain:.2f} |"
        )
    print()
    for chunk, size in sizes.items():
        print(f"a partial evaluation of {chunk // MIB} MiB of stamps takes {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
