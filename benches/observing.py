"""What observing a forwarder costs its core, beside tcpdump and bpftrace. Needs root.

A generator on CPU 1 sends 64 B packets to a device that routes them on CPU 0, where receive packet
steering puts its work. Each program observes both of its interfaces in turn, writes on CPU 1, and
is then compared with the rounds beside it in which nobody observes.

The cost is what CPU 0 loses: a process of the lowest class (SCHED_IDLE) does nothing but count
there, and counts less by what packets take, in softirqs or elsewhere. So it needs no accounting of
interrupts in the kernel, and holds for every program alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from namespaces import TAILTAP, Lab, Namespace

from benches.taps import capturing

ROUNDS = 5
SECONDS = 2
RATES = (10_000, 100_000, 500_000)
SENDING_CPU, SERVING_CPU = 1, 0
COUNTING = """
import os, time
os.sched_setaffinity(0, {%d})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
count, end = 0, time.monotonic() + %f
while time.monotonic() < end:
    for _ in range(500):
        pass
    count += 1
print(count)
"""
BPFTRACE = "kfunc:__netif_receive_skb_core { @[cpu] = count(); }"


def programs(folder: Path) -> dict[str, list[list[str]]]:
    """Every way to observe, as the processes that it takes; without those that are not here."""
    cpu = ["taskset", "--cpu-list", str(SENDING_CPU)]
    tap = [*cpu, TAILTAP, "tap", "in", "out@egress", "--json", "--write"]
    marks = [*tap, f"{folder}/{{link}}.marks", "--hash", "packet-nat"]
    found = {
        "nobody": [],
        "tailtap tap, pcap": [[*tap, f"{folder}/{{link}}.pcap"]],
        "tailtap tap, marks": [marks],
        "the same, 1/64": [[*marks, "--sample", "1/64"]],
        "the same, filtered out": [[*marks, "--filter", "tcp port 80"]],
        "tcpdump": [
            [*cpu, "tcpdump", "-n", "-i", port, "-s128", "-Z", "root", "-w", f"{folder}/{port}"]
            for port in ("in", "out")
        ],
        "dumpcap": [
            [*cpu, "dumpcap", "-q", "-P", "-i", port, "-s", "128", "-w", f"{folder}/{port}"]
            for port in ("in", "out")
        ],
        "bpftrace, counting": [[*cpu, "bpftrace", "-e", BPFTRACE]],
    }
    return {
        name: commands
        for name, commands in found.items()
        if all(shutil.which(command[3]) for command in commands)
    }


def device(namespace: Namespace) -> str:
    """gen → in → routed on the serving core → out → far; the hardware address of `in`."""
    namespace.veth("gen", "in")
    namespace.veth("far", "out")
    for words in (
        "ip addr add 10.0.0.254/8 dev in",
        "ip addr add 192.168.9.1/24 dev out",
        "ip neigh add 192.168.9.2 lladdr 02:74:74:00:00:09 dev out",
        "ip route add 10.1.0.0/16 via 192.168.9.2",
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0",
        "sysctl -qw net.ipv4.conf.in.rp_filter=0",
    ):
        namespace.run(*words.split())
    mask = f"{1 << SERVING_CPU:x}"
    # Namespaces share /sys; only a mount of its own shows the interfaces of this one.
    steer = f"mount -t sysfs s /sys && echo {mask} > /sys/class/net/in/queues/rx-0/rps_cpus"
    namespace.run("unshare", "-m", "sh", "-c", steer)
    shown = json.loads(namespace.run("ip", "-j", "link", "show", "in").stdout)
    return str(shown[0]["address"])


@contextlib.contextmanager
def observed(namespace: Namespace, commands: list[list[str]], folder: Path) -> Iterator[None]:
    """Both interfaces, by these processes."""
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            stack.enter_context(capturing(namespace, command, folder / f"log{number}"))
        yield


def counted(name: str, rate: int) -> tuple[float, float]:
    """How far the process came that only counts, a second, and the packets that passed a second."""
    lab = Lab()
    with tempfile.TemporaryDirectory() as folder:
        try:
            namespace = lab.namespace()
            mac = device(namespace)
            with observed(namespace, programs(Path(folder))[name], Path(folder)):
                script = COUNTING % (SERVING_CPU, SECONDS)
                before = namespace.received("far")
                words = ("generate", "gen", "--rate", f"{rate} pkt/s", "--dst-mac", mac)
                sending = subprocess.Popen(
                    namespace.inside(
                        *(TAILTAP, *words, "--duration", f"{SECONDS + 1} s"),
                        *("--cpu", str(SENDING_CPU), "--quiet"),
                    ),
                    stdout=subprocess.DEVNULL,
                )
                time.sleep(0.7)
                there = namespace.received("far")
                counting = subprocess.run(
                    [sys.executable, "-c", script], check=True, capture_output=True, text=True
                )
                passed = namespace.received("far") - there
                sending.wait()
                if namespace.received("far") == before:
                    raise SystemExit("the device forwards nothing")
            return int(counting.stdout) / SECONDS, passed / SECONDS
        finally:
            for one in lab.namespaces:
                one.remove()


def main() -> None:
    """Prints the table."""
    names = list(programs(Path()))
    idle = int(
        subprocess.run(
            [sys.executable, "-c", COUNTING % (SERVING_CPU, SECONDS)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    print(f"ns of the serving core for a packet, median of {ROUNDS} rounds in turn\n")
    print(f"{'':26}" + "".join(f"{rate // 1000:>7} kpkt/s" for rate in RATES))
    costs: dict[str, list[str]] = {name: [] for name in names}
    for rate in RATES:
        rounds: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(ROUNDS):
            for name in names:
                count, passed = counted(name, rate)
                lost = 1 - count / (idle / SECONDS)
                rounds[name].append(1e9 * lost / max(passed, 1))
        base = rounds["nobody"]
        for name in names:
            added = [mine - other for mine, other in zip(rounds[name], base, strict=True)]
            value = statistics.median(base if name == "nobody" else added)
            costs[name].append(f"{value:>+11.0f} ns" if name != "nobody" else f"{value:>11.0f} ns")
    for name, values in costs.items():
        print(f"{name:26}" + "".join(values))


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    main()
