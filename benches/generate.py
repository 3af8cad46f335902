"""The generator beside DPDK's testpmd (how fast) and trafgen (how evenly). Needs root.

Throughput: each program sends 64 B packets as fast as it can, on CPU 1, in turn: into a veth pair,
and into a dummy device, which throws all away, where the kernel has such. What the kernel counted
at the other end, or at the dummy device, is read at the start and the end of two seconds. All have
the same priority; as a shared machine takes time from them all the same, the CPU time for each
packet is shown beside it: the program's own, and the kernel's. On a veth pair the kernel allocates
each packet and hands it to the other end; for a dummy device it allocates and frees it. A card that
takes frames from memory by itself (AF_XDP's zero copy) has neither for each packet, so what is left
there is the program's own, to be compared with the `NEEDED` rate. Only tailtap writes ids.

Two threads send through two queues on CPUs 0 and 1, and are shown beside one as a ratio. Each CPU
also receives what it sent, so that of a machine with two CPUs nothing is left for anybody else.

Pacing: each program sends 100 kpkt/s on CPU 1; the tap at the other end of the pair stamps. Beside
it stands how often that CPU was interrupted, by its timer alone some hundred times a second: an
interrupt that takes longer than a gap makes one gap too long and several too short, whoever sends.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from namespaces import TAILTAP, Lab, Namespace
from stamps import read_stamps

ROUNDS = 3
SECONDS = 2.0
RATE = 100_000
NEEDED = 6_240_000
"""Packets a second of control-groups-added-latency."""
PACKETS = 300_000
CPU = 1

TRAFGEN = """\
{
    eth(da=02:74:74:00:00:02, sa=02:74:74:00:00:01)
    ipv4(saddr=10.0.0.1, daddr=10.1.0.1)
    udp(sport=1024, dport=53)
    c32(0), 0x55, fill(0, 13)
}
"""
"""A packet of 64 B with the type byte that the tap looks for; its id is always 0."""


def own(back_end: str, cpus: str = str(CPU)) -> list[str]:
    """Our generator, asked for more than any machine can send, with a thread on each CPU."""
    command = [TAILTAP, "generate", "gen", "--rate", "100 Mpkt/s", "--duration", "30 s", "--quiet"]
    return [*command, "--cpu", cpus, "--generator", back_end]


def testpmd(driver: str) -> list[str]:
    """DPDK's test program, transmit only; its sending thread is on the second of its CPUs."""
    return [
        *("dpdk-testpmd", "--no-huge", "-m", "128", "--no-pci", "-l", f"0,{CPU}"),
        *("--vdev", f"net_{driver}0,iface=gen", "--file-prefix", f"tt{os.getpid()}", "--"),
        *("--forward-mode=txonly", "--total-num-mbufs=16384", "--no-mlockall"),
        *("--stats-period", "60"),
    ]


HURRY = 'echo -20 > /proc/self/autogroup; exec nice --adjustment=-20 "$@"'
"""Our generator raises its priority; the others get the same."""


def passed(namespace: Namespace, port: str, way: str) -> int:
    """Packets that a port has received (`rx`) or sent (`tx`)."""
    shown = namespace.run("ip", "-s", "-j", "link", "show", "dev", port).stdout
    return int(json.loads(shown)[0]["stats64"][way]["packets"])


def spent_by(pid: int) -> tuple[float, float]:
    """Seconds of CPU time of all threads of a process: its own, the kernel's."""
    every = [(0.0, 0.0)]
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        fields = stat.read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        every.append((int(fields[11]) / ticks, int(fields[12]) / ticks))
    own, kernel = (sum(column) for column in zip(*every, strict=True))
    return own, kernel


class NoDummy(Exception):
    """The kernel was built without dummy devices."""


def into_pair(namespace: Namespace, command: list[str]) -> list[float]:
    """The throughput into a veth pair, by what its other end receives."""
    namespace.veth("gen", "in")
    for port, way in (("in", "rx"), ("gen", "tx")):
        namespace.run("ethtool", "-L", port, way, "2")
    return throughput(namespace, command, "in", "rx")


def into_nothing(namespace: Namespace, command: list[str]) -> list[float]:
    """The throughput into a dummy device."""
    if namespace.run("ip", "link", "add", "gen", "up", "type", "dummy", check=False).returncode:
        print("this kernel has none")
        raise NoDummy
    return throughput(namespace, command, "gen", "tx")


def throughput(namespace: Namespace, command: list[str], port: str, way: str) -> list[float]:
    """Packets a second, and nanoseconds of CPU time for each: the program's own, the kernel's."""
    with tempfile.TemporaryDirectory() as folder:
        # `ip netns exec` becomes the command, so the process id is the command's.
        process = subprocess.Popen(
            namespace.inside("sh", "-c", HURRY, "hurry", *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"RUNTIME_DIRECTORY": folder},  # where DPDK leaves files
        )
        try:
            wait_for(lambda: passed(namespace, port, way) > 10_000, command[0])
            counts, busy, times = [], [], []
            for pause in (SECONDS, 0.0):
                counts.append(passed(namespace, port, way))
                busy.append(spent_by(process.pid))
                times.append(time.monotonic())
                time.sleep(pause)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
    packets = counts[1] - counts[0]
    spent = [(after - before) / packets * 1e9 for before, after in zip(*busy, strict=True)]
    return [packets / (times[1] - times[0]), *spent]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Returns when the condition holds; ends the program when it does not within 20 s."""
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"{what} sends nothing: are the packages of `make bench` installed?")
        time.sleep(0.05)


def interrupts() -> int:
    """How often the CPU that sends was interrupted since it runs."""
    lines = Path("/proc/interrupts").read_text().splitlines()
    column = lines[0].split().index(f"CPU{CPU}") + 1
    rows = (line.split() for line in lines[1:])
    return sum(int(row[column]) for row in rows if len(row) > column and row[column].isdecimal())


def pacing(namespace: Namespace, command: list[str]) -> list[float]:
    """Percentiles of |gap - nominal| at the tap in ns, the rate from first to last stamp, and
    interrupts a second.
    """
    namespace.veth("gen", "in")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.stamps"
        tap = namespace.start("tap", "in:drop", "--write", str(path), "--records", "1000000")
        before, began = interrupts(), time.monotonic()
        namespace.run("sh", "-c", HURRY, "hurry", *command)
        interrupted = (interrupts() - before) / (time.monotonic() - began)
        tap.stop()
        times = read_stamps(path)[1]["time"].astype(np.int64)
    off = np.abs(np.diff(times) - 1_000_000_000 // RATE)
    rate = (len(times) - 1) / (times[-1] - times[0]) * 1e9
    shares = np.quantile(off, [0.5, 0.9, 0.99, 0.999], method="inverted_cdf").tolist()
    return [*shares, rate, interrupted]


def in_turn(
    setups: dict[str, list[str]], measure: Callable[[Namespace, list[str]], list[float]]
) -> dict[str, list[float]]:
    """The median of each value over the rounds, each setup in a namespace of its own."""
    found: dict[str, list[list[float]]] = {name: [] for name in setups}
    for _ in range(ROUNDS):
        for name, command in setups.items():
            lab = Lab()
            try:
                found[name].append(measure(lab.namespace(), command))
            finally:
                for namespace in lab.namespaces:
                    namespace.remove()
    return {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in found.items()
    }


def main() -> None:
    """Prints both tables."""
    fast = {}
    for driver in ("af_packet", "af_xdp"):
        fast[f"tailtap generate, {driver}"] = own(driver)
        fast[f"testpmd txonly, net_{driver}"] = testpmd(driver)
    print(f"as fast as it goes, median of {ROUNDS} rounds in turn\n")
    for where, measure in (("veth pair", into_pair), ("dummy device", into_nothing)):
        print(f"{where:32}{'kpkt/s':>8}{'own ns/packet':>16}{'kernel ns/packet':>18}")
        one, two = "tailtap generate, af_xdp", "tailtap generate, 2 threads"
        more = {two: own("af_xdp", f"0,{CPU}")} if measure is into_pair else {}
        with contextlib.suppress(NoDummy):
            found = in_turn({**fast, **more}, measure)
            for name, (rate, own_ns, kernel_ns) in found.items():
                print(f"{name:32}{rate / 1000:8.0f}{own_ns:16.0f}{kernel_ns:18.0f}")
            if more:
                print(f"{'1 thread : 2 threads':32}1 : {found[two][0] / found[one][0]:.2f}")
    print(
        f"at {NEEDED / 1e6:g} Mpkt/s, the papers' highest rate, a packet has {1e9 / NEEDED:.0f} ns"
    )

    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(TRAFGEN)
        config.flush()
        sending = [TAILTAP, "generate", "gen", "--rate", f"{RATE} pkt/s", "--count", str(PACKETS)]
        even = {
            f"tailtap generate, {back_end}": [*sending, "--cpu", str(CPU), "--generator", back_end]
            for back_end in ("af_packet", "af_xdp")
        }
        trafgen = ["taskset", "--cpu-list", str(CPU), "trafgen", "--no-sock-mem", "--notouch-irq"]
        trafgen += ["--dev", "gen", "--conf", config.name, "--num", str(PACKETS), "--cpus", "1"]
        even["trafgen"] = [*trafgen, "--rate", f"{RATE}pps"]
        print(f"\n{RATE // 1000} kpkt/s: |gap - nominal| at the tap in us, median of {ROUNDS}\n")
        print(f"{'':32}{'p50':>9}{'p90':>9}{'p99':>9}{'p99.9':>9}{'kpkt/s':>9}{'interrupts/s':>14}")
        for name, (*values, rate, interrupted) in in_turn(even, pacing).items():
            cells = "".join(f"{value / 1000:9.3f}" for value in values)
            print(f"{name:32}{cells}{rate / 1000:9.1f}{interrupted:14.0f}")


if __name__ == "__main__":
    main()
