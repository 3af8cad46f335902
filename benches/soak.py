"""A flight recorder for hours: what it takes in memory and on the disk, as time goes on.

`make soak SOAK_SECONDS=86400 SOAK_RATE=100000`: packets pass a device that holds one a minute, in
namespaces of their own. Each minute a row is printed, and at the end how much each column grew
since the first quarter. The device polls on CPU 0, and all else has CPU 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from holding import HOLD_MS, SETUP, recording
from labtools import TAILTAP, Machine, own_machine, wait_for

from tailtap.measure.observe.look import SHARED, name_of
from tailtap.measure.observe.segments import bytes_in
from tailtap.records.live import RecordingRecord
from tailtap.records.record import read

HOLD_SECONDS = 60
IDS = 2**32
"""Behind the last one they begin again."""
STEP_SECONDS = 60.0
COLUMNS = (
    "seconds",
    "observe MB",
    "tap MB",
    "trace MB",
    "segments MB",
    "disk MB",
    "packets",
    "lost",
    "kept",
)


@contextlib.contextmanager
def passing(machine: Machine, folder: Path, rate: int, seconds: int) -> Iterator[None]:
    """So many packets a second, and the device that they pass."""
    sender = folder / "bursts"
    source = Path(__file__).parents[1] / "tests/support/bursts.c"
    subprocess.run(["cc", "-O2", "-o", str(sender), str(source)], check=True)
    assert machine.run("sh", "-ec", SETUP).returncode == 0
    step = HOLD_SECONDS * rate
    held = ",".join(map(str, range(step, min(rate * seconds, IDS), step)))
    words = ["--hold", held, "--hold-for", f"{HOLD_MS} ms"] if held else []
    device = [*TAILTAP, "forward", "in", "out", *words, "--cpu", "0", "--quiet"]
    sending = ["taskset", "--cpu-list", "1", str(sender), "eth0", "02:74:74:00:00:01"]
    with contextlib.ExitStack() as stack:
        for space, command in (
            ("device", device),
            ("sender", [*sending, str(rate), str(seconds)]),
        ):
            running = subprocess.Popen(
                machine.command("ip", "netns", "exec", space, *command), stdout=subprocess.DEVNULL
            )
            stack.callback(running.wait)
            stack.callback(running.kill)
        wait_for(lambda: machine.received("sink", "eth0") > rate, "packets")
        yield


def descendants(pid: int) -> Iterator[int]:
    """The processes that one started, and those that these did."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def resident_mb(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def row(pid: int, out: Path, seconds: float) -> list[float]:
    """What is taken now."""
    found = dict.fromkeys(("observe", "tap", "trace"), resident_mb(pid))
    for child in descendants(pid):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        for name in ("tap", "trace"):
            if name.encode() in words:
                found[name] = resident_mb(child)
    memory = sum(bytes_in(path) for path in SHARED.glob(name_of("*", pid)))
    numbers = read(out / "recording.json", RecordingRecord).numbers
    packets, lost = (
        sum(getattr(flow, name) for flow in numbers.flows) for name in ("ingress", "lost")
    )
    kept = numbers.incidents.kept if numbers.incidents else 0
    return [seconds, *found.values(), memory / 1e6, bytes_in(out) / 1e6, packets, lost, kept]


def main(seconds: int, rate: int) -> None:
    """Print the rows of so many seconds, at so many packets a second."""
    rows: list[list[float]] = []
    with tempfile.TemporaryDirectory() as place, own_machine() as machine:
        folder = Path(place)
        out = folder / "out"
        words = ("--incidents", "20", "--rate", "1/min")
        with (
            passing(machine, folder, rate, seconds + 600),
            recording(machine, out, *words) as running,
        ):
            wait_for((out / "recording.json").is_file, "numbers", 300)
            print("  ".join(f"{name:>11}" for name in COLUMNS))
            began = time.monotonic()
            while (past := time.monotonic() - began) < seconds and running.poll() is None:
                rows.append(row(running.pid, out, past))
                print("  ".join(f"{value:11,.1f}" for value in rows[-1]), flush=True)
                time.sleep(min(STEP_SECONDS, seconds / 10))
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=600)
            print(f"it ended with status {running.returncode}")
        told = read(out / "recording.json", RecordingRecord)
    early = rows[len(rows) // 4]
    grew = [
        f"{name} {now - then:+,.1f}"
        for name, then, now in zip(COLUMNS[1:6], early[1:6], rows[-1][1:6], strict=True)
    ]
    print(
        f"since second {early[0]:,.0f}: {', '.join(grew)}; segments at most "
        f"{told.peak_bytes / 1e6:,.1f} MB; notes: {told.numbers.notes}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
