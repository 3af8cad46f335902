"""What takes an idle core: gaps are those that an injector made, by its own clock and name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from injectors import build, hog
from labtools import own_machine
from msgspec.json import decode

from tailtap.records.machine import NoiseRecord

CPU = 1
PERIOD_NS = 50_000_000
BUSY_NS = 3_000_000
pytestmark = pytest.mark.skipif(
    CPU not in os.sched_getaffinity(0), reason="one CPU more than that of the test is needed"
)


@pytest.mark.alone
@pytest.mark.timed
def test_what_an_injector_takes_is_found_and_named(tmp_path: Path) -> None:
    injector = build(tmp_path)
    with (
        own_machine() as machine,
        hog(injector, cpu=CPU, busy_ns=BUSY_NS, period_ns=PERIOD_NS) as injected,
    ):
        found = machine.tailtap(
            "host", "noise", "--cpus", str(CPU), "--for", "1500 ms", "--above", "100 us", "--json",
            "--out", str(tmp_path / "results"),
        )  # fmt: skip
    assert found.returncode == 0, found.stderr
    noise = decode(found.stdout, type=NoiseRecord)
    stored = json.loads((tmp_path / "results/noise.json").read_text())
    assert stored == json.loads(found.stdout)
    [cpu] = noise.cpus
    assert cpu.gaps >= 20
    assert cpu.least_ns < 5_000
    truth = {(one.start_ns, one.end_ns) for one in injected.injections}
    for gap in noise.worst[:5]:
        held = [
            (start, end)
            for start, end in truth
            if gap.start_ns <= start and end <= gap.start_ns + gap.ns
        ]
        assert held, gap
        of_hog = sum(part.ns for part in gap.parts if part.cause == "task")
        assert of_hog >= 0.9 * sum(end - start for start, end in held)
    first = noise.causes[0]
    assert first.cause == "task"
    assert first.ns >= 20 * BUSY_NS * 0.9
