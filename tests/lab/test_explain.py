"""`tailtap explain` against what was done on purpose: the injectors' own logs are the truth."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from injectors import Injection, Injector, build, hog, timers
from namespaces import TAILTAP

pytestmark = [
    pytest.mark.alone,
    pytest.mark.timed,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs a CPU beside the device's"),
]

DUT, OTHER = 1, 0
EXPERIMENT = """
name: explained
dut: {{platform: bare-metal, forwarder: {forwarder}, cpus: [1]}}
traffic: {{rate: 20 kpkt/s, size: 64 B, duration: 3 s, warm_up: 200 ms, cpu: 0, slip_limit: 50 ms}}
trace: thin
"""
"""A forwarder, while its core is disturbed."""
Injecting = Callable[[], AbstractContextManager[Injector]]
NEAR_NS = 3_000_000
"""Packets that came so much around an injection belong neither to it nor to the others."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that disturbs a CPU."""
    return build(tmp_path_factory.mktemp("injector"))


def explained(
    folder: Path, forwarder: str, injecting: Injecting, late: str
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]], Sequence[Injection]]:
    """The causes of a run that was disturbed, its late packets, and what the injector did."""
    (folder / "experiment.yaml").write_text(EXPERIMENT.format(forwarder=forwarder))
    command = [TAILTAP, "run", "experiment.yaml", "--out", "out", "--quiet"]
    with injecting() as injector:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [run] = (folder / "out/runs").iterdir()
    told = subprocess.run([TAILTAP, "explain", str(run), "--late", late, "--json", "--quiet"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert told.returncode == 0, told.stderr
    table = pq.read_table(run / "causes-late.parquet")
    columns = {name: table.column(name).to_numpy(zero_copy_only=False)
               for name in table.column_names}  # fmt: skip
    return json.loads(told.stdout), columns, injector.injections


def held(late: dict[str, Any], injections: Sequence[Injection]) -> tuple[Any, Any]:
    """Which late packets came during an injection, and which came near none.

    What is blamed on steal is neither: the hypervisor takes a part of an injection as well.
    """
    mine = np.zeros(late["ingress_ns"].size, bool)
    near = late["blamed"] == "steal"
    for injection in injections:
        start, end = injection.start_ns, injection.end_ns
        # Most of what it waited is time of the injection.
        waited = np.minimum(late["egress_ns"], end) - np.maximum(late["ingress_ns"], start)
        mine |= 2 * waited >= late["excess_ns"]
        until = queued_until(late, start, end + NEAR_NS)
        near |= (late["egress_ns"] > start - NEAR_NS) & (late["ingress_ns"] < until)
    return mine & (late["blamed"] != "steal"), ~near


def queued_until(late: dict[str, Any], start: int, end: int) -> int:
    """When the queue was gone that late packets made from `start` to `end`."""
    for ingress, egress in zip(late["ingress_ns"], late["egress_ns"], strict=True):
        if start < egress and ingress < end:
            end = max(end, int(egress))
    return end


def test_a_hog_makes_packets_late_that_a_task_serves(program: Path, tmp_path: Path) -> None:
    causes, late, injections = explained(
        tmp_path, "fault", lambda: hog(program, cpu=DUT, busy_ns=2_000_000), "300 us"
    )
    mine, others = held(late, injections)
    blamed = (late["blamed"] == "task") & (late["detail"] == "injector")
    assert mine.sum() > 200
    assert blamed[mine].mean() >= 0.95
    assert blamed[others].sum() <= 0.01 * others.sum()
    row = next(row for row in causes["causes"] if row["detail"] == "injector")
    assert row["claim"] == "cause"
    assert row["p_value"] <= 0.001
    assert "isolated-cpus" in row["knobs"]


def test_a_hog_on_another_core_is_never_blamed(program: Path, tmp_path: Path) -> None:
    causes, late, injections = explained(
        tmp_path, "fault", lambda: hog(program, cpu=OTHER, busy_ns=2_000_000), "p99.9"
    )
    assert injections
    assert "injector" not in late["detail"]
    assert all(row["detail"] != "injector" for row in causes["causes"])


def test_timers_make_packets_late_that_the_softirq_serves(program: Path, tmp_path: Path) -> None:
    """A softirq preempts a hog, but not an interrupt: timers that expire at once take long.

    They come at irregular times. What comes every 100 ms and lasts 1 ms finds one in a hundred
    shifts of itself again, which the shifts cannot tell from a coincidence.
    """
    causes, late, _ = explained(
        tmp_path,
        "tc-mirred",
        lambda: timers(program, cpu=DUT, count=8000, gap_ns=0, spread_ns=40_000_000),
        "300 us",
    )
    assert causes["served"]["by"] == "softirq"
    timer = [row for row in causes["causes"] if row["cause"] == "timer"]
    assert timer and timer[0]["claim"] == "cause"
    assert (late["excess_ns"] > 0).all()
