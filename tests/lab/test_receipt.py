"""How long packets wait to be received, against the kernel's own stamps of both moments."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from labtools import stamps
from namespaces import Namespace
from numpy.typing import NDArray

PREQUEUE = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
PACKETS = 2000
STEP_NS = 1000
"""What the sniffer's file resolves."""
MOST_NS = 5000
"""The sniffer gets its copy before the tap, which may take as long."""
ID_BYTES = 4

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="sender and receiver need a CPU each"
)


@contextlib.contextmanager
def kernel_stamps(*, before_queues: bool) -> Iterator[None]:
    """The kernel stamps packets as they are handed over, or as they are received."""
    there = PREQUEUE.read_text()
    PREQUEUE.write_text("1" if before_queues else "0")
    try:
        yield
    finally:
        PREQUEUE.write_text(there)


def sniffed(capture: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and times in ns since 1970 of a capture's packets, as Wireshark reads them."""
    fields = ("-T", "fields", "-e", "frame.time_epoch", "-e", "udp.payload")
    read = subprocess.run(
        ["tshark", "-n", "-r", str(capture), *fields], check=True, capture_output=True, text=True
    )
    rows = [line.split("\t") for line in read.stdout.splitlines()]
    ids = [int.from_bytes(bytes.fromhex(payload)[:ID_BYTES], "little") for _, payload in rows]
    times = [int(text.replace(".", "")) for text, _ in rows]
    assert all(len(text.partition(".")[2]) == 9 for text, _ in rows)
    return np.array(ids, np.int64), np.array(times, np.int64)


def ahead_ns() -> int:
    """What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, by the quickest of many readings."""
    found = []
    for _ in range(1000):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        found.append((after - before, real - (before + after) // 2))
    return min(found)[1]


@pytest.mark.alone
@pytest.mark.timed
def test_packets_are_stamped_as_they_are_handed_over_and_as_they_are_received(
    namespace: Namespace, tmp_path: Path
) -> None:
    """The receiver is another CPU, which sleeps between packets and must be woken up for each."""
    namespace.veth("gen", "in")
    namespace.run("sh", "-c", "echo 2 > /sys/class/net/in/queues/rx-0/rps_cpus")
    medians = {}
    for moment in ("handed", "received"):
        folder, ahead = tmp_path / moment, ahead_ns()
        folder.mkdir()
        capture = folder / "kernel.pcap"
        with kernel_stamps(before_queues=moment == "handed"):
            tap = namespace.start(
                *("tap", "handed=in", "received=in@receipt"),
                *("--write", f"{folder}/{{link}}.stamps", "--cpu", "0"),
            )
            with namespace.sniffer("in", PACKETS // 2, capture):
                namespace.tailtap(
                    *("generate", "gen", "--rate", "2 kpkt/s"),
                    *("--count", str(PACKETS), "--cpu", "0"),
                )
            links = tap.stop()["links"]
        assert [links[name]["seen"] for name in ("handed", "received")] == [PACKETS] * 2
        taken = {name: stamps(folder / f"{name}.stamps") for name in ("handed", "received")}
        by_id = {name: np.sort(table, order="id") for name, table in taken.items()}
        assert np.array_equal(by_id["handed"]["id"], by_id["received"]["id"])
        waited = by_id["received"]["time_ns"] - by_id["handed"]["time_ns"]
        medians[moment] = float(np.median(waited))
        ids, times = sniffed(capture)
        _, ours, theirs = np.intersect1d(by_id[moment]["id"], ids, return_indices=True)
        assert len(ours) > PACKETS // 4
        apart = by_id[moment]["time_ns"][ours].astype(np.int64) + ahead - times[theirs]
        low, middle, high = np.percentile(apart, [1, 50, 95])
        print(f"{moment}: the tap's stamps are {low}, {middle}, {high} ns behind the kernel's, "
              f"and packets waited {medians[moment]} ns")  # fmt: skip
        assert low >= -STEP_NS and high < MOST_NS + STEP_NS
    # Where the kernel stamps behind its queues, nobody sees them wait.
    assert medians["handed"] > 2 * medians["received"] > 0
