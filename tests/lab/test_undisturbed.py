"""What is a pause from outside, and what is not: the injectors' logs are the truth."""

from __future__ import annotations

from pathlib import Path

import injectors
import pytest
from explaining import DUT, OTHER, explained

from tailtap.analysis.runs.reader import read_runs
from tailtap.analysis.undisturbed import undisturbed_of

BUSY_NS, PERIOD_NS, SPREAD_NS = 5_000_000, 150_000_000, 60_000_000


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_what_this_kernel_did_stays(tmp_path: Path) -> None:
    """Hogs of ours, on the device's core and on the generator's."""
    program = injectors.build(tmp_path)
    injecting = [
        lambda _, cpu=cpu: injectors.hog(
            program, cpu=cpu, busy_ns=BUSY_NS, period_ns=PERIOD_NS, spread_ns=SPREAD_NS
        )
        for cpu in (DUT, OTHER)
    ]
    told = explained(tmp_path, "tc-mirred", injecting, "1 ms")
    [run] = read_runs(told.run).runs
    found = undisturbed_of(run)
    assert found is not None
    for injections in told.injections:
        assert len(injections) > 5
        # What a hypervisor took at that time is left out all the same.
        assert injectors.part_of(injections, found.out) < 0.3
