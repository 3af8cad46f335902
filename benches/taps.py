"""The tap beside tcpdump and dumpcap: loss, cost, and the latency that they add. Needs root.

Loss: a generator on CPU 1 sends 64 B packets into a veth pair, and at its other end, on CPU 0, each
program captures in turn, with 64 MiB of room in the kernel and 128 B of each packet (16 B for
stamps). What arrived is the kernel's count. CPU time is the program's own, until its file is whole.

Latency: packets pass two taps with a link between them, on which the program captures too; what it
adds is the difference to the same without it. All of the way is on the generator's CPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from namespaces import TAILTAP, Lab, Namespace

from tailtap.analysis import evaluation

ROUNDS = 3
SECONDS = 2
RATES = (100_000, 500_000, 1_000_000)
"""What the generator is asked for; the table says what it reached."""
SENDING_CPU, CAPTURING_CPU = 1, 0
SNAP = 128
READY_SECONDS = 120.0


def programs(interface: str, path: Path) -> dict[str, list[str]]:
    """Every way to capture on `interface` into `path`."""
    cpu = ["taskset", "--cpu-list", str(CAPTURING_CPU)]
    own = [*cpu, TAILTAP, "tap", interface, "--write", str(path), "--json"]
    return {
        "tailtap tap, stamps": [*own, "--format", "stamps"],
        "tailtap tap, pcap": [*own, "--format", "pcap", "--snap-length", f"{SNAP} B"],
        "tcpdump": [
            *(*cpu, "tcpdump", "-n", "-i", interface, "-s", str(SNAP), "-B", str(64 << 10)),
            *("--time-stamp-precision=nano", "-Z", "root", "-w", str(path)),
        ],
        "dumpcap": [
            *(*cpu, "dumpcap", "-q", "-P", "-i", interface, "-s", str(SNAP), "-B", "64"),
            *("-w", str(path)),
        ],
    }


@dataclass
class Capture:
    """A program that captures: its process, and how it ended."""

    process: subprocess.Popen[bytes]
    log: Path
    began: float
    """CPU seconds when it was ready."""
    seconds: float = 0.0
    """CPU seconds from then on to its end."""

    def report(self) -> Any:
        """The last line of ours."""
        return json.loads(self.log.read_text().splitlines()[-1])["links"]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def capturing(namespace: Namespace, command: Sequence[str], log: Path) -> Iterator[Capture]:
    """Runs a program that captures while the body does."""
    with log.open("wb") as output:
        process = subprocess.Popen(namespace.inside(*command), stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not any(word in log.read_text() for word in ('"ready"', "listening on", "File: ")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command}: {log.read_text()}")
            time.sleep(0.02)
        time.sleep(0.3)  # the others listen a little after they say so
        capture = Capture(process, log, cpu_seconds(process.pid))
        yield capture
        process.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command}: {log.read_text()}")
        capture.seconds = usage.ru_utime + usage.ru_stime - capture.began
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def generate(namespace: Namespace, rate: int) -> Any:
    """What the generator reports."""
    sent = namespace.tailtap(
        *("generate", "gen", "--generator", "af_xdp", "--rate", f"{rate} pkt/s"),
        *("--duration", f"{SECONDS} s", "--cpu", str(SENDING_CPU), "--json"),
    )
    return json.loads(sent.stdout)


def arrived(namespace: Namespace, port: str) -> int:
    """Packets that an interface has received."""
    shown = namespace.run("ip", "-s", "-j", "link", "show", "dev", port).stdout
    return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])


def packets_in(path: Path) -> int:
    """Packets in a capture or stamp file."""
    if path.read_bytes()[1:7] == b"TTSTMP":
        return (path.stat().st_size - 64) // 16
    command = ["capinfos", "-T", "-r", "-m", "-M", "-c", str(path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(shown.rpartition(",")[2])


@dataclass
class Row:
    """What was measured of one program at one rate, round by round."""

    rate: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    captured: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    median: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)


def loss(namespace: Namespace, folder: Path, name: str, rate: int, row: Row) -> None:
    """One round of one program: what came, what it has, its CPU time."""
    namespace.veth("gen", "in")
    path = folder / "file"
    command = programs("in", path)[name]
    before = arrived(namespace, "in")
    with capturing(namespace, command, folder / "log") as capture:
        row.rate.append(generate(namespace, rate)["achieved_rate"])
        row.arrived.append(arrived(namespace, "in") - before)
    row.captured.append(packets_in(path))
    row.seconds.append(capture.seconds)


def cost(namespace: Namespace, folder: Path, name: str, rate: int, row: Row) -> None:
    """What the kernel says of our eBPF program, and of one that does nothing."""
    namespace.veth("gen", "in")
    command = [*programs("in", folder / "file")[name], "--cost"]
    with capturing(namespace, command, folder / "log") as capture:
        generate(namespace, rate)
    done = capture.report()["in"]
    row.cost.append(done["cost_ns"])
    row.floor.append(done["cost_floor_ns"])
    row.clock.append(done["cost_clock_ns"])


def latency(namespace: Namespace, folder: Path, name: str | None, rate: int, row: Row) -> None:
    """One round of the way through two taps, with the program in between or without any."""
    for pair in (("gen", "first"), ("out", "middle"), ("on", "second")):
        namespace.veth(*pair)
    namespace.run("tc", "qdisc", "add", "dev", "middle", "clsact")
    on = (
        "protocol",
        "all",
        "u32",
        "match",
        "u32",
        "0",
        "0",
        "action",
        "mirred",
        "egress",
        "redirect",
        "dev",
        "on",
    )
    namespace.run("tc", "filter", "add", "dev", "middle", "ingress", *on)
    with contextlib.ExitStack() as stack:
        if name is not None:
            command = programs("middle", folder / "file")[name]
            stack.enter_context(capturing(namespace, command, folder / "log"))
        write = ("--write", f"{folder}/{{link}}.stamps", "--flush", "0 s")
        tap = namespace.start("tap", "first:out", "second:drop", *write)
        generate(namespace, rate)
        tap.stop()
    found = evaluation.evaluate(folder / "first.stamps", folder / "second.stamps")
    row.median.append(found.percentile(0.5).value)
    row.late.append(found.percentile(0.99).value)


def in_namespace(measure: Any, *arguments: Any) -> None:
    """Runs a measurement in a namespace of its own."""
    lab = Lab()
    with tempfile.TemporaryDirectory() as folder:
        try:
            measure(lab.namespace(), Path(folder), *arguments)
        finally:
            for namespace in lab.namespaces:
                namespace.remove()


def main() -> None:
    """Prints the table."""
    names = list(programs("", Path()))
    print(
        f"{SECONDS} s at each rate, median of {ROUNDS} rounds in turn; `in kernel` is what "
        "kernel.bpf_stats_enabled\nsays of our program and, in brackets, of one that only reads "
        "the clock and one that does nothing;\np50 and p99 are added to the latency without a "
        "capture\n"
    )
    print(
        f"{'':22}{'kpkt/s':>8}{'arrived':>12}{'captured':>12}{'lost':>8}{'in kernel':>19}"
        f"{'CPU s':>8}{'p50':>10}{'p99':>10}"
    )
    for rate in RATES:
        rows = {name: Row() for name in names}
        without = Row()
        for _ in range(ROUNDS):
            in_namespace(latency, None, rate, without)
            for name in names:
                in_namespace(loss, name, rate, rows[name])
                in_namespace(latency, name, rate, rows[name])
                if name.startswith("tailtap"):
                    in_namespace(cost, name, rate, rows[name])
        base = statistics.median(without.median), statistics.median(without.late)
        print(f"{'no capture':89}{base[0] / 1000:7.2f} us{base[1] / 1000:7.2f} us")
        for name, row in rows.items():
            print(line(name, row, base))


def line(name: str, row: Row, base: tuple[float, float]) -> str:
    """A row of the table."""
    came, have = statistics.median(row.arrived), statistics.median(row.captured)
    lost = statistics.median(
        1 - there / all_ for there, all_ in zip(row.captured, row.arrived, strict=True)
    )
    kernel = ""
    if row.cost:
        ours, clock, floor = map(statistics.median, (row.cost, row.clock, row.floor))
        kernel = f"{ours:.0f} ({clock:.0f}, {floor:.0f}) ns"
    added = (statistics.median(row.median) - base[0], statistics.median(row.late) - base[1])
    return (
        f"{name:22}{statistics.median(row.rate) / 1000:8.0f}{came:12,.0f}{have:12,.0f}"
        f"{100 * lost:7.2f}%{kernel:>19}{statistics.median(row.seconds):8.2f}"
        f"{added[0] / 1000:+7.2f} us{added[1] / 1000:+7.2f} us"
    )


if __name__ == "__main__":
    main()
