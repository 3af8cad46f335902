"""What observing a forwarder costs its core, beside tcpdump and bpftrace. Needs root.

A sender that sleeps between bursts, on CPU 1, sends 64 B packets to a device that routes them on
CPU 0, where receive packet steering puts its work. Each program observes both of its interfaces in
turn, and writes what it has of each packet on CPU 1.

A sample costs a hash of each packet. A tap with a budget takes none while it stamps all packets:
its row stands beside that of a sample that hardly any packet is in, which is the cost of hashes.

The cost is the time for which CPU 0 was in the softirq that receives packets, for each packet that
passed, by a trace that is the same in all rounds; it is compared with the rounds in which nobody
observes. The softirq cannot be preempted, so that other work on the machine delays it little.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from namespaces import TAILTAP, Lab, Namespace
from traces import SOFTIRQ, Trace

from benches.taps import capturing, packets_in
from tailtap.records.stamps import read_marks

ROUNDS = 3
SECONDS = 1.0
RATES = (10_000, 100_000, 500_000)
SENDING_CPU, SERVING_CPU = 1, 0
NET_RX = 3
SNAP = 128
NOBODY = "nobody"
TRACEPOINTS = """
tracepoint:net:netif_receive_skb /str(args->name) == "in"/ { %s }
tracepoint:net:net_dev_queue /str(args->name) == "out"/ { %s }
BEGIN { printf("listening on both\\n"); }
"""
"""What bpftrace does at each interface; the word of tcpdump says that it is ready."""
STAMPED = 'printf("%lld %llx %d\\n", nsecs, args->skbaddr, args->len);'
HERE = 'mount -t tracefs t /sys/kernel/tracing; mount -t debugfs d /sys/kernel/debug; exec "$@"'
"""bpftrace finds tracepoints in a file system that need not be mounted."""
LINE = re.compile(r"^\d+ [0-9a-f]+ \d+$", re.MULTILINE)
"""One of bpftrace's for a packet."""
SENDER = Path(__file__).parents[1] / "tests/support/bursts.c"


def programs(folder: Path) -> dict[str, list[list[str]]]:
    """Every way to observe, as the processes that it takes; without those that are not here."""
    cpu = ["taskset", "--cpu-list", str(SENDING_CPU)]
    tap = [*cpu, TAILTAP, "tap", "in@arrival", "out@egress", "--json", "--write"]
    marks = [*tap, f"{folder}/{{link}}.marks", "--hash", "packet-nat"]
    own_mounts = [*cpu, "unshare", "--mount", "sh", "-c", HERE, "sh"]
    bpftrace = [*own_mounts, "bpftrace", "-e"]
    counting = TRACEPOINTS % ("@in = count();", "@out = count();")
    found = {
        NOBODY: [],
        "tailtap tap, marks": [marks],
        "the same, all by a budget": [[*marks, "--budget", "100 %"]],
        "the same, 1/16": [[*marks, "--sample", "1/16"]],
        "the same, 1/65536": [[*marks, "--sample", "1/65536"]],
        "tailtap tap, pcap": [[*tap, f"{folder}/{{link}}.pcap", "--snap-length", f"{SNAP} B"]],
        "tcpdump -w": [
            [*cpu, "tcpdump", "-n", "-i", port, "-s", str(SNAP), "-B", str(64 << 10), "-Z", "root",
             "-w", f"{folder}/{port}.pcap"]
            for port in ("in", "out")
        ],
        "bpftrace, a line each": [[*bpftrace, TRACEPOINTS % (STAMPED, STAMPED)]],
        "bpftrace, counting": [[*bpftrace, counting]],
    }  # fmt: skip
    missing = [other for other in ("tcpdump", "bpftrace") if not shutil.which(other)]
    return {
        name: words for name, words in found.items() if name.split()[0].strip(",") not in missing
    }


def kept_in(folder: Path) -> int | None:
    """Records of packets in what a program wrote; None where it wrote none."""
    found = [len(read_marks(path)) for path in folder.glob("*.marks")]
    found += [packets_in(path) for path in folder.glob("*.pcap")]
    found += [len(LINE.findall(path.read_text())) for path in folder.glob("log*")]
    return sum(found) or None


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
    namespace.run("sh", "-c", f"echo {mask} > /sys/class/net/in/queues/rx-0/rps_cpus")
    shown = json.loads(namespace.run("ip", "-j", "link", "show", "in").stdout)
    return str(shown[0]["address"])


@contextlib.contextmanager
def observed(namespace: Namespace, commands: Sequence[list[str]], folder: Path) -> Iterator[None]:
    """Both interfaces, by these processes."""
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            stack.enter_context(capturing(namespace, command, folder / f"log{number}"))
        yield


@contextlib.contextmanager
def traced(namespace: Namespace, folder: Path) -> Iterator[None]:
    """What the serving core did is in `folder` afterwards."""
    words = ("trace", "--cpus", str(SERVING_CPU), "--out", str(folder), "--floor", "0 s")
    running = namespace.start(*words, "--cpu", str(SENDING_CPU))
    yield
    running.stop()


@dataclass
class Row:
    """What was measured of one program at one rate, round by round."""

    cost: list[float] = field(default_factory=list)
    """Nanoseconds of the serving core for a packet."""
    passed: list[float] = field(default_factory=list)
    """Packets a second."""
    kept: list[float] = field(default_factory=list)
    """The share of what both interfaces saw that was written."""


def measure(name: str, rate: int, sender: Path, row: Row) -> None:
    """One round of a program."""
    lab = Lab()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        try:
            namespace = lab.namespace()
            mac = device(namespace)
            (folder / "trace").mkdir()
            with observed(namespace, programs(folder)[name], folder):
                before = namespace.received("far")
                with traced(namespace, folder / "trace"):
                    words = ["taskset", "--cpu-list", str(SENDING_CPU), str(sender), "gen", mac]
                    namespace.run(*words, str(rate), str(SECONDS))
                    time.sleep(0.2)
                passed = namespace.received("far") - before
                if not passed:
                    raise SystemExit("the device forwards nothing")
            softirqs = Trace.read(folder / "trace").of(SOFTIRQ, id=NET_RX, cpu=SERVING_CPU)
            spent = softirqs["dur"].astype(float).sum() - softirqs["steal"].astype(float).sum()
            row.cost.append(spent / passed)
            row.passed.append(passed / SECONDS)
            if (kept := kept_in(folder)) is not None:
                row.kept.append(kept / (2 * passed))
        finally:
            for one in lab.namespaces:
                one.remove()


def line(name: str, row: Row, base: Row, ours: float) -> str:
    """A row of the table; `ours` is what marks add."""
    cost = statistics.median(row.cost)
    if name == NOBODY:
        return f"{name:27}{cost:8.0f} ns"
    added = statistics.median(mine - other for mine, other in zip(row.cost, base.cost, strict=True))
    ratio = f"{added / ours:9.1f}" if ours > 0 else f"{'':9}"
    kept = f"{100 * statistics.median(row.kept):9.1f} %" if row.kept else ""
    return f"{name:27}{cost:8.0f} ns{added:+9.0f} ns{ratio}{kept}"


def main() -> None:
    """Prints the table."""
    names = list(programs(Path()))
    print(
        f"ns of the serving core for a packet at two taps, median of {ROUNDS} rounds in turn; what "
        f"is added to\n`{NOBODY}` in the same round, as a multiple of that of marks, and the "
        "share of packets written\n"
    )
    with tempfile.TemporaryDirectory() as place:
        sender = Path(place) / "bursts"
        subprocess.run(["cc", "-O2", "-o", str(sender), str(SENDER)], check=True)
        for rate in RATES:
            rows = {name: Row() for name in names}
            for _ in range(ROUNDS):
                for name in names:
                    measure(name, rate, sender, rows[name])
            base, marks = rows[NOBODY], rows["tailtap tap, marks"]
            ours = statistics.median(
                mine - other for mine, other in zip(marks.cost, base.cost, strict=True)
            )
            reached = statistics.median(base.passed)
            print(f"{rate // 1000} kpkt/s asked, {reached / 1000:.0f} passed")
            for name, row in rows.items():
                print(line(name, row, base, ours))
            print(flush=True)


if __name__ == "__main__":
    main()
