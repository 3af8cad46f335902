"""How long packets wait to be received, against the kernel's own stamps of both moments."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from labtools import frames_of, stamps
from namespaces import Namespace
from numpy.typing import NDArray

PREQUEUE = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
PACKETS = 2000
STEP_NS = 1000
"""What the sniffer's file resolves."""
MOST_NS = 5000
"""The sniffer gets its copy before the tap, which may take as long."""
ID_BYTES = 4
CONNECTING = """\
import socket, time
for _ in range(200):
    with socket.socket() as asking:
        asking.setblocking(False)
        before = time.monotonic_ns()
        asking.connect_ex(("198.18.0.2", 80))
        print(asking.getsockname()[1], before, time.monotonic_ns())
    time.sleep(0.001)
"""
"""Asks for connections, and prints the port, and when each call began and ended."""


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


def by_port(capture: Path) -> dict[int, int]:
    """When the first packet from each TCP port was stamped, in ns."""
    found: dict[int, int] = {}
    for time_ns, _, frame in frames_of(capture):
        found.setdefault(int.from_bytes(frame[34:36], "big"), time_ns)
    return found


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
        print(
            f"{moment}: the tap's stamps are {low}, {middle}, {high} ns behind the kernel's, "
            f"and packets waited {medians[moment]} ns"
        )
        assert low >= -STEP_NS and high < MOST_NS + STEP_NS
    # Where the kernel stamps behind its queues, nobody sees them wait.
    assert medians["handed"] > 2 * medians["received"] > 0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.skipif(
    "bpf_cast_to_kern_ctx" not in Path("/proc/kallsyms").read_text(encoding="ascii"),
    reason="packets of TCP are stamped as they are handed over from Linux 6.2 on",
)
def test_packets_of_tcp_are_stamped_as_they_are_handed_over(
    namespace: Namespace, tmp_path: Path
) -> None:
    """They bring a time of their sender's, and the kernel stamps them no more.

    What asks for a connection sends the first packet itself: it is handed over before it returns.
    """
    namespace.veth("gen", "in")
    namespace.run("sh", "-c", "echo 2 > /sys/class/net/in/queues/rx-0/rps_cpus")
    namespace.run("ip", "address", "add", "198.18.0.1/24", "dev", "gen")
    neighbour = ("198.18.0.2", "lladdr", "02:74:74:00:00:02", "dev", "gen")
    namespace.run("ip", "neigh", "add", *neighbour, "nud", "permanent")
    tap = namespace.start(
        *("tap", "handed=in@arrival:drop", "received=in@receipt", "--clock", "monotonic"),
        *("--write", f"{tmp_path}/{{link}}.pcap", "--cpu", "0"),
    )
    asked = namespace.run("taskset", "--cpu-list", "0", sys.executable, "-c", CONNECTING).stdout
    links = tap.stop()["links"]
    assert links["handed"]["late"] == 0
    rows = (map(int, line.split()) for line in asked.splitlines())
    between = {port: (before, after) for port, before, after in rows}
    taken = {name: by_port(tmp_path / f"{name}.pcap") for name in ("handed", "received")}
    assert taken["handed"].keys() >= between.keys()
    for port, (before, after) in between.items():
        assert before <= taken["handed"][port] <= after
    waited = [taken["received"][port] - taken["handed"][port] for port in between]
    assert min(waited) > 0
