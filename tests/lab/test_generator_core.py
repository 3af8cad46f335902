"""The generator's CPU is held up on purpose while it hands packets over, and explained."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from explaining import DUT, OTHER, Columns, explained
from injectors import Injector
from long_interrupts import long_interrupts
from traces import TIMER, VECTOR, Trace, tracing

LONG_NS = 100_000
WHERE = f"local timer, on the generator's CPU {OTHER}"
PACKETS = 300_000


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed  # how often an interrupt meets the moment in which a packet is handed over
def test_an_interrupt_of_the_generator_s_cpu_is_named(tmp_path: Path) -> None:
    """Its period is no multiple of the packets', so that it comes at every place between two."""

    @contextlib.contextmanager
    def held(run: subprocess.Popen[str]) -> Iterator[Injector]:
        with long_interrupts(OTHER, period_ns=7_313_370):
            yield Injector(run)

    found = explained(tmp_path, "tc-mirred", [held], "150 us", rate="100 kpkt/s")
    trace = Trace.read(found.run)
    assert trace.said["senders"] == [OTHER]
    timers = trace.of(VECTOR, id=TIMER, cpu=OTHER)
    long = timers[timers["dur"] >= LONG_NS]
    assert long.size > 100
    # Of usual packets there are no records of this CPU.
    assert np.count_nonzero(trace.records["cpu"] == OTHER) < PACKETS / 20
    parts = pq.read_table(found.run / "causes-parts.parquet").to_pylist()
    theirs = {part["packet"]: part["ns"] for part in parts
              if (part["cause"], part["detail"]) == ("timer", WHERE)}  # fmt: skip
    mine = [place for place in range(found.late["cpu"].size) if held_up(found.late, place, long)]
    assert len(mine) >= 3
    shares = [theirs.get(place, 0) / found.late["excess_ns"][place] for place in mine]
    # A task that has the device's core is blamed where the interrupt came between queueing what the
    # core shall do and telling it.
    assert np.mean(np.array(shares) > 0.5) >= 0.6, shares
    assert any(row["detail"] == WHERE for row in found.causes["causes"])


def held_up(late: Columns, place: int, long: npt.NDArray[Any]) -> bool:
    """Whether one of the interrupts began when a packet had come, and it left right behind that."""
    came, left = int(late["ingress_ns"][place]), int(late["egress_ns"][place])
    starts = long["start"].astype(np.int64)
    ends = starts + long["dur"]
    return bool(
        np.any((starts >= came) & (starts < came + 20_000) & (ends < left) & (ends > left - 60_000))
    )


@pytest.mark.apart
def test_of_a_sender_only_what_holds_it_is_recorded(tmp_path: Path) -> None:
    busy = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    options = ("--senders", str(OTHER), "--served", "softirq")
    with tracing(tmp_path, str(DUT), *options), long_interrupts(OTHER, period_ns=10_000_000):
        subprocess.run(["taskset", "--cpu-list", str(OTHER), "python3", "-c", busy], check=True)
    trace = Trace.read(tmp_path)
    timers = trace.of(VECTOR, id=TIMER, cpu=OTHER)
    assert np.count_nonzero(timers["dur"] >= LONG_NS) > 20
    of_sender = trace.records[trace.records["cpu"] == OTHER]
    assert set(of_sender["kind"].tolist()) <= {1, 2, 6, 21}
    assert (of_sender["dur"][of_sender["kind"] != 21] >= 5_000).all()
    assert (of_sender["flags"] == 0).all()
