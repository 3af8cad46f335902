"""A flight recorder for hours: what it takes in memory and on the disk, as time goes on.

`make soak SOAK_SECONDS=86400`: packets pass a device that holds one now and then, in namespaces of
their own. Each minute a row is printed, and how much each column grew since the first quarter.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from holding import holding, recording
from labtools import own_machine, wait_for

from tailtap.measure.observe.memory import SHARED, name_of
from tailtap.measure.observe.segments import bytes_in
from tailtap.records.live import RecordingRecord
from tailtap.records.record import read

RATE = 5_000
EVERY = 60 * RATE
"""A packet a minute is held."""
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


def descendants(pid: int) -> Iterator[int]:
    """The processes that one started, and those that these did."""
    for task in Path(f"/proc/{pid}/task").iterdir():
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


def main(seconds: int) -> None:
    """Print the rows of so many seconds."""
    rows: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder, own_machine() as machine:
        out = Path(folder) / "out"
        words = ("--incidents", "20", "--rate", "1/min")
        with (
            holding(machine, seconds=seconds + 600, rate=RATE, every=EVERY),
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
    main(int(sys.argv[1]))
