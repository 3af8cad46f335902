"""Stamps against an independent recorder: a packet is stamped when it is handed over.

The recorder (tests/support/recorder) sees when the tap hands each packet to the DuT, and when the
DuT hands it back. Between these and the stamps there is nothing but a few instructions, and
whatever interrupts them, which the recorder writes down by name.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forwarders import require
from handovers import FRAME, FRAMES, SENT, SKB, TUN, Port, Recording, recording
from labtools import (
    IS_VIRTUAL,
    Machine,
    frames_of,
    own_machine,
    ran,
    record,
    stamps,
    wait_for,
    write_experiment,
)
from namespaces import Namespace
from numpy.typing import NDArray
from stamps import read_stamps

from tailtap.lab.forwarders import FORWARDERS

# A guest cannot see the host's interrupts on its CPU, so that the worst packets have no name, and
# what the host runs beside it takes its cache. A stamp that waits for a softirq is later than this.
MOST_P999_NS = 5_000 if IS_VIRTUAL else 2_000
MOST_EMULATED_NS = 10_000
"""The same, where QEMU emulates the CPU (TCG) and leaves no cache to anybody else."""
MOST_NS = 10_000
MOST_INTERRUPTED = 0.02 if IS_VIRTUAL else 0.01
"""The share of packets between whose times something else had the CPU."""
MOST_APART_NS = 1_000_000
"""Packets that the recorder saw earlier than this before the first stamp are of the warm-up."""
MOST_UNSEEN = 0.03
"""The share of packets for which the kernel may run no tracepoints: on a virtual machine like CI's
it is up to 1.4 %, in stretches of some milliseconds, for a reason that is not known.
"""

STRETCHES = 10
"""The traffic is judged in so many stretches of equal time, and by the median of them.

Other work, or the hypervisor, may keep packets between their two times in a few of them. A stamp of
another moment is wrong in all.
"""

FEWEST_ABOVE = 8
"""A percentile of a stretch has so many packets above it: at 4 kpkt/s p99.9 would be the last one,
which the hypervisor delays in more than half of the stretches when the host is busy."""

CASES = {
    "wire": ("platform: wire", "99937 pkt/s", SKB),
    "xdp": ("forwarder: xdp", "19937 pkt/s", FRAME),
    "dpdk-l2fwd by af_packet": ("forwarder: dpdk-l2fwd", "19937 pkt/s", SKB),
    "dpdk-l2fwd by af_xdp": ("forwarder: {dpdk-l2fwd: {driver: af_xdp}}", "19937 pkt/s", SKB),
    "container": ("platform: container", "99937 pkt/s", SKB),
    "vm": ("platform: vm", "3997 pkt/s", TUN),
}
"""What of `dut` is said, the rate, and how packets come back from the DuT."""
FEW = ("xdp", "container")
"""The kernel hands packets back by both; the others are slow tests."""


@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in FEW else pytest.mark.slow) for case in CASES]
)
def test_stamps_are_of_the_moment_at_which_packets_are_handed_over(
    case: str, recorder: Path, tmp_path: Path
) -> None:
    dut, rate, way = CASES[case]
    if case.split(maxsplit=1)[0] in FORWARDERS:
        require(case.split(maxsplit=1)[0])
    text = f"""\
name: stamps
dut: {{cpus: [1], {dut}}}
traffic: {{rate: {rate}, duration: 2 s, warm_up: 2 s, cpu: 0}}
"""
    path = write_experiment(tmp_path, text)
    run, found = _record(path, tmp_path / "out", recorder, way)
    codes = [row["code"] for row in record(run)["warnings"]]
    assert "egress-deferred" not in codes
    assert found.lost == 0
    most = MOST_EMULATED_NS if "emulated" in codes else MOST_P999_NS
    apart = []
    for place, side in enumerate(("ingress", "egress")):
        counts, stamps = read_stamps(run / f"{side}.stamps")
        assert counts[0] == counts[1] == len(stamps) and counts[2] == 0
        dropped = record(run)["taps"][side]["dropped"]
        apart.append(_compare(f"{case}, {side}", stamps, found, place, dropped, most))
    assert not any(apart), "\n".join(apart)


def _record(path: Path, out: Path, recorder: Path, way: int) -> tuple[Path, Recording]:
    """The folder of the experiment's only run, and what the recorder saw of it."""
    with own_machine() as machine:
        running = machine.start("run", str(path), "--out", str(out), "--quiet")
        try:
            tap, back = _ports(machine, running, way)
            with recording(recorder, machine, [tap, back]) as recorded:
                said = running.communicate(timeout=120)
        finally:
            running.kill()
            running.communicate()
    [run] = (out / "runs").iterdir()
    assert record(run)["status"] == "done", said
    [found] = recorded
    return run, found


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
@pytest.mark.parametrize("bypass", ["", "bypass"])
def test_stamps_agree_with_the_clock_of_a_forwarder(
    bypass: str, recorder: Path, tmp_path: Path
) -> None:
    """It is busy now and then, and its softirqs wait: no stamp may wait with them."""
    times = tmp_path / "times"
    command = f"{recorder}/forwarder {{ingress}} {{egress}} {times} {bypass}"
    text = f"""\
name: stamps
dut:
  cpus: [1]
  forwarder: {{external: {{command: "{command}"}}}}
traffic: {{rate: 19937 pkt/s, duration: 3 s, warm_up: 100 ms, cpu: 0}}
"""
    made = ran(tmp_path, text)
    run = made.run
    assert record(run)["status"] == "done", made.done.stderr
    told = np.fromfile(times, TIMES)
    for side in ("ingress", "egress"):
        _, stamps = read_stamps(run / f"{side}.stamps")
        ids, ours, theirs = np.intersect1d(stamps["id"], told["id"], return_indices=True)
        assert len(ids) == len(told) > 30_000
        stamped, own = stamps["time"][ours].astype(np.int64), told[theirs]
        if side == "ingress":
            assert np.all(stamped < own["received"])
        else:
            assert np.all((own["begin"] < stamped) & (stamped < own["end"]))


TIMES = np.dtype(
    [("received", "<i8"), ("begin", "<i8"), ("end", "<i8"), ("id", "<u4"), ("-", "<u4")]
)
"""What the forwarder writes down of each packet, in ns of the taps' clock."""


def _ports(machine: Machine, running: subprocess.Popen[str], way: int) -> tuple[Port, Port]:
    """Where packets are handed to the DuT, and where it hands them back."""

    def namespace(role: str) -> str | None:
        return next((name for name in machine.namespaces() if name.endswith(role)), None)

    def is_wired() -> bool:
        assert running.poll() is None, running.communicate()
        tap = namespace("-tap")
        # The probe has come through: all ports are what they will be.
        return tap is not None and machine.received(tap, "tt-b0") > 0

    wait_for(is_wired, "the lab's links")
    tap = namespace("-tap")
    assert tap is not None
    if way != FRAME:
        return Port(SENT, tap, "tt-a1"), Port(way, tap, "tt-b0")
    dut = namespace("-dut")
    assert dut is not None
    return Port(SENT, tap, "tt-a1"), Port(FRAME, dut, "tt-out")


def _compare(
    what: str, stamps: NDArray[Any], found: Recording, place: int, dropped: int, most: int
) -> str:
    """What is said of stamps that are too far from the recorded times; nothing where none is.

    Fails where packets are not in both.
    """
    seen = found.packets(place)
    if (seen["kind"] == FRAMES).any():
        assert not dropped  # frames have no ids here: only their order tells which is which
        seen = seen[-len(stamps) :]
        assert len(seen) == len(stamps), f"{what}: the recorder came too late"
    else:
        seen = seen[seen["time"] >= stamps["time"].min().astype(np.int64) - MOST_APART_NS]
        seen = seen[::-1]  # of equal ids the last one is not of the warm-up
        ids, ours, theirs = np.intersect1d(stamps["id"], seen["id"], return_indices=True)
        assert len(np.setdiff1d(seen["id"][: theirs.max()], ids)) <= dropped, f"{what}: not stamped"
        assert len(ids) > (1 - MOST_UNSEEN) * len(stamps), f"{what}: not recorded"
        stamps, seen = stamps[ours], seen[theirs]
    stamped = stamps["time"].astype(np.int64)
    first, last = np.minimum(seen["time"], stamped), np.maximum(seen["time"], stamped)
    apart = last - first
    names: dict[int, list[str]] = {}
    for at in np.flatnonzero(apart > MOST_P999_NS).tolist():
        between = found.between(int(seen["cpu"][at]), int(first[at]), int(last[at]))
        if between:
            names[at] = between
    is_quiet = np.ones(len(apart), bool)
    is_quiet[list(names)] = False
    quiet = apart[is_quiet]
    p50, p99, p999 = np.percentile(quiet, [50, 99, 99.9], method="inverted_cdf")
    stretches = np.array(
        [_stretch(apart[chosen], is_quiet[chosen]) for chosen in _by_time(stamped)]
    )
    said = (
        f"{what}: {len(stamps)} packets, apart by p50 {p50}, p99 {p99}, p99.9 {p999}, most "
        f"{quiet.max()} ns; {len(names)} more with "
        f"{', '.join(sorted({name for row in names.values() for name in row})) or 'anything'} in "
        f"between, most {apart.max()} ns; by stretch of time percentile, share interrupted and "
        f"number above {MOST_NS} ns: {stretches.tolist()}"
    )
    print(said)
    far, interrupted, unnamed = np.median(stretches, axis=0)
    near = far < most and interrupted < MOST_INTERRUPTED
    return "" if near and (unnamed == 0 or IS_VIRTUAL) else said


def _by_time(stamped: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """The places of the packets in each of `STRETCHES` stretches of equal time."""
    edges = np.linspace(stamped.min(), stamped.max() + 1, STRETCHES + 1)
    number = np.searchsorted(edges, stamped, side="right") - 1
    return [np.flatnonzero(number == stretch) for stretch in range(STRETCHES)]


def _stretch(apart: NDArray[np.int64], is_quiet: NDArray[np.bool_]) -> tuple[float, float, int]:
    """Of one stretch: a percentile in ns without interrupted packets, their share, those above
    `MOST_NS`. The percentile is p99.9, or the one that `FEWEST_ABOVE` packets are above.
    """
    quiet = np.sort(apart[is_quiet])
    above = max(FEWEST_ABOVE, len(quiet) // 1000)
    far = float(quiet[-1 - above]) if len(quiet) > above else np.inf
    return far, 1 - float(is_quiet.mean()), int(np.count_nonzero(quiet > MOST_NS))


PREQUEUE = Path("/proc/sys/net/core/netdev_tstamp_prequeue")
PACKETS = 2000
STEP_NS = 1000
"""What the sniffer's file resolves."""
MOST_NS_RECEIPT = 5000
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
        assert low >= -STEP_NS and high < MOST_NS_RECEIPT + STEP_NS
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
