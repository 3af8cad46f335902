"""How fast requests and their answers are found: DNS by UDP, as a busy name server has it.

One capture of queries and responses, which come in another order, is evaluated in several rounds,
from the page cache. The function reads, parses and matches on one thread. It must find all answers
and the longest wait.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailtap.analysis.evaluation import evaluate_transactions

MILLION = 1_000_000
PCAP_NANOSECONDS = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
START_NS = 1_700_000_000_000_000_000
APART_NS = 400
"""From one query to the next: two and a half million queries each second."""
LEAST_NS, MOST_NS = 50_000, 1_050_000
"""Waits are evenly spread between these."""


def _frame(source: bytes, destination: bytes, ports: tuple[int, int], flags: int) -> bytes:
    """A message about a name of two labels; id and first label are written over it."""
    question = b"\x08" + bytes(8) + b"\x07example\x00" + struct.pack(">HH", 1, 1)
    answer = b"\xc0\x0c" + struct.pack(">HHIH4s", 1, 1, 60, 4, bytes(4)) if flags & 0x8000 else b""
    message = struct.pack(">HHHHHH", 0, flags, 1, bool(answer), 0, 0) + question + answer
    udp = struct.pack(">HHHH", *ports, 8 + len(message), 0) + message
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, source, destination)
    return b"\x02" * 12 + b"\x08\x00" + ip + udp


def write_capture(path: Path, queries: int) -> int:
    """Write a capture of so many queries and their responses; the longest wait in nanoseconds."""
    random = np.random.default_rng(1)
    client, server = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x35"
    asked = START_NS + APART_NS * np.arange(queries, dtype=np.int64)
    waits = random.integers(LEAST_NS, MOST_NS, queries)
    frames = [
        _frame(client, server, (40_000, 53), 0x0100),
        _frame(server, client, (53, 40_000), 0x8180),
    ]
    length = max(map(len, frames))
    kind = np.dtype([("head", "<u4", 4), ("frame", "u1", length)])
    rows = np.zeros((2, queries), kind)
    numbers = np.arange(queries, dtype=np.int64)
    for side, times in enumerate((asked, asked + waits)):
        rows["head"][side, :, 0], rows["head"][side, :, 1] = np.divmod(times, 1_000_000_000)
        rows["head"][side, :, 2] = rows["head"][side, :, 3] = length
        rows["frame"][side, :, : len(frames[side])] = np.frombuffer(frames[side], np.uint8)
        # The client's port, the id, and the first label tell queries apart.
        port = 36 if side else 34
        rows["frame"][side, :, port : port + 2] = _bytes(40_000 + numbers % 20_000, ">u2")
        rows["frame"][side, :, 42:44] = _bytes(numbers >> 4, ">u2")
        rows["frame"][side, :, 55:63] = _hex(numbers)
    whole = rows.reshape(-1)
    order = np.argsort(np.concatenate((asked, asked + waits)), kind="stable")
    with path.open("wb") as file:
        file.write(PCAP_NANOSECONDS)
        for part in np.array_split(order, max(1, len(order) // MILLION)):
            file.write(whole[part].tobytes())
    return int(waits.max())


def _bytes(values: NDArray[np.int64], form: str) -> NDArray[np.uint8]:
    packed = np.ascontiguousarray(values.astype(form))
    return packed.view(np.uint8).reshape(len(values), -1)


def _hex(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    digits = (values[:, None] >> np.arange(28, -4, -4)) & 15
    return np.frombuffer(b"0123456789abcdef", np.uint8).take(digits)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="benches.transactions", description=__doc__)
    parser.add_argument("--queries", type=float, default=2, help="millions (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    options = parser.parse_args()
    queries = int(options.queries * MILLION)
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        capture = Path(folder) / "dns.pcap"
        longest = write_capture(capture, queries)
        taken = []
        for _ in range(options.rounds):
            begin = time.thread_time()
            found = evaluate_transactions(capture)["dns"]
            taken.append(time.thread_time() - begin)
            if (found.counts.matched, found.max) != (queries, longest):
                raise SystemExit(f"{found.counts.matched} of {queries} queries were found")
        seconds = statistics.median(taken)
        print(f"{'':42}{'seconds':>9}{'Mpkt/s':>9}")
        print(f"{'requests and answers of DNS':42}{seconds:9.3f}{2 * queries / seconds / 1e6:9.2f}")


if __name__ == "__main__":
    main()
