"""How long somebody waits for `tailtap observe`, beside tcpdump: until its first word, and until
the first packet that it stamps. Needs root, and a machine that does nothing else.

A bridge between two namespaces passes 5 kpkt/s. The first word is to come within 1 s of the call,
and the first stamp within 3 s. Before it the way of the packets, their key and who serves them are
found, and the tracer is loaded twice.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from built_devices import DEVICE, Built, bridge
from labtools import TAILTAP, own_machine

from benches.timing import machine
from tailtap.records.stamps import read_marks

ROUNDS = 1
PCAP_HEADER = 24


def observed(built: Built, folder: Path) -> tuple[float, float]:
    """Seconds from the call to the first word, and to the first stamp."""
    words = ("observe", *built.words, "--for", "500 ms", "--out", str(folder))
    began = time.monotonic_ns()
    running = subprocess.Popen(
        built.machine.command(*TAILTAP, *words, "--budget", "100 %"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert running.stderr is not None
    running.stderr.readline()
    word = time.monotonic_ns()
    running.communicate()
    marks = read_marks(folder / "runs/001-observed/ingress.marks")
    return (word - began) / 1e9, (int(marks["time_ns"][0]) - began) / 1e9


def captured(built: Built, folder: Path) -> tuple[float, float]:
    """The same of tcpdump, whose first packet is in its file."""
    path = folder.with_suffix(".pcap")
    words = ("ip", "netns", "exec", DEVICE, "tcpdump", "-U", "-Z", "root", "-i", "in", "-w")
    began = time.monotonic_ns()
    running = subprocess.Popen(
        built.machine.command(*words, str(path)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert running.stderr is not None
    running.stderr.readline()
    word = time.monotonic_ns()
    while not path.exists() or path.stat().st_size <= PCAP_HEADER:
        assert running.poll() is None, running.communicate()
        time.sleep(0.001)
    packet = time.monotonic_ns()
    running.terminate()
    running.communicate()
    return (word - began) / 1e9, (packet - began) / 1e9


def main() -> None:
    """Prints the table."""
    print(f"{machine()}: seconds from the call, median and largest of {ROUNDS} rounds in turn\n")
    print(f"{'':18}{'first word':>14}{'first packet':>16}")
    ways = {"tailtap observe": observed}
    if shutil.which("tcpdump"):
        ways["tcpdump -w"] = captured
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as place, own_machine() as ours:
        built = bridge(ours)
        with built.sending():
            for number in range(ROUNDS):
                for name, way in ways.items():
                    found[name].append(way(built, Path(place) / f"{name[:3]}{number}"))
    for name, rounds in found.items():
        word, packet = (
            f"{statistics.median(times):6.2f} {max(times):6.2f}"
            for times in zip(*rounds, strict=True)
        )
        print(f"{name:18}{word:>14}{packet:>16}")


if __name__ == "__main__":
    main()
