"""Time and memory over the length of the captures, up to 200 million pairs.

Stamp files, and compressed pcap files read as a stream. Each pair of captures is made, evaluated by
`tailtap evaluate --out` in a process of its own, checked, and removed again. 200 million pairs take
7 GB of disk, and of page cache if there is as much.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import captures
import numpy as np
import stamps
import zstandard

from benches import timing, traffic
from benches.timing import MIB, MILLION, Way
from benches.traffic import Integers, Pair
from benches.ways import by_tailtap

BLOCK = MILLION
#: The traffic rests this long after each block, so that blocks leave one after the other.
REST_NS = 1_000_000

#: Takes the stamps and ids of a block.
Sink = Callable[[Integers, Integers], object]


@contextmanager
def stamp_file(path: Path, packets: int) -> Iterator[Sink]:
    """Writes a stamp file."""
    with path.open("wb") as file:
        file.write(captures.stamps([], counts=(packets, packets, 0, 0)))

        def write(times: Integers, ids: Integers) -> None:
            records = np.zeros(len(times), stamps.RECORD)
            records["time"], records["id"], records["len"] = times, ids, captures.FRAME_LEN
            records.tofile(file)

        yield write


@contextmanager
def compressed_pcap(path: Path, _packets: int) -> Iterator[Sink]:
    """Writes a nanosecond pcap, compressed with zstd."""
    compressor = zstandard.ZstdCompressor(level=1)
    with path.open("wb") as file, compressor.stream_writer(file) as stream:
        stream.write(captures.pcap([]))
        yield lambda times, ids: stream.write(captures.records(times, ids).view(np.uint8).data)


FORMATS: dict[str, Callable[[Path, int], AbstractContextManager[Sink]]] = {
    "stamps": stamp_file,
    "pcap.zst": compressed_pcap,
}


def make(folder: Path, kind: str, pairs: int) -> Pair:
    """Captures of the benchmark's plain traffic, of any length, made in blocks."""
    rng = np.random.default_rng(1)
    ingress, egress = (folder / f"{side}.{kind}" for side in ("ingress", "egress"))
    counts = np.zeros(0, np.int64)
    with ExitStack() as stack:
        before = stack.enter_context(FORMATS[kind](ingress, pairs))
        after = stack.enter_context(FORMATS[kind](egress, pairs))
        threads = stack.enter_context(ThreadPoolExecutor(2))
        for first in range(0, pairs, BLOCK):
            times, latency = traffic.draw(rng, min(BLOCK, pairs - first))
            times += traffic.START_NS + first * traffic.GAP_NS + first // BLOCK * REST_NS
            ids = np.arange(first, first + len(times))
            order = np.argsort(times + latency, kind="stable")
            writing = (
                threads.submit(before, times, ids),
                threads.submit(after, (times + latency)[order], ids[order]),
            )
            found = np.bincount(latency, minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
            for side in writing:
                side.result()
    return Pair(ingress, egress, pairs, 2 * pairs, traffic.percentiles(counts))


def measure(kind: str, pairs: int, rounds: int) -> Way:
    """tailtap on captures of one format and length."""
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        pair = make(Path(folder), kind, pairs)
        os.sync()
        way = Way(f"tailtap, {kind}", pair, by_tailtap.program("moonsniff"), rounds)
        timing.in_turn([way])
    return way


def main() -> None:
    """Prints the table: how time and memory grow with the length."""
    parser = argparse.ArgumentParser(prog="benches.long", description=__doc__)
    parser.add_argument(
        "--pairs", default="10,50,100,200", help="millions (default: 10,50,100,200)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    options = parser.parse_args()
    lengths = [int(float(length) * MILLION) for length in options.pairs.split(",")]
    print(f"{timing.machine()}; median of {options.rounds} rounds\n")
    print(f"{'':12}{'M pairs':>8}{'seconds':>9}{'ns a pair':>11}{'peak MiB':>10}")
    for kind in FORMATS:
        for pairs in lengths:
            way = measure(kind, pairs, options.rounds)
            print(
                f"{kind:12}{pairs / MILLION:8g}{way.median:9.2f}{way.median / pairs * 1e9:11.1f}"
                f"{way.peak / MIB:10,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
