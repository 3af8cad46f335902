"""`interrupts: counters`: what a run finds of timers that somebody lets expire. Needs root."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import injectors
import pytest
from labtools import own_machine, record, was_made, write_experiment

from tailtap.records.interrupts import read_samples

MS = 1_000_000
EXPERIMENT = """\
name: sampled
dut: {cpus: [1]}
traffic: {rate: 5 kpkt/s, duration: 6 s, warm_up: 100 ms, cpu: 0}
interrupts: {counters: {period: 40 ms}}
"""
TIMERS = "LOC_Local_timer_interrupts_CPU1"


def sampled(
    folder: Path, injector: contextlib.AbstractContextManager[Any]
) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The folder of a run with an injector, and what is found by its own clock and without it."""
    path, out = write_experiment(folder, EXPERIMENT), folder / "out"
    with own_machine() as machine:
        with injector:
            done = machine.tailtap("run", str(path), "--out", str(out))
        assert was_made(done), done.stderr
        [run] = (out / "runs").iterdir()
        found = []
        for words in ([], ["--samples", str(run / "interrupts.csv"), "--out", str(folder / "x")]):
            said = machine.tailtap("interrupts", str(run), "--json", *words)
            assert said.returncode == 0, said.stderr
            found += json.loads(said.stdout)["runs"]
    return run, found[0], found[1]


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield injectors.build(tmp_path_factory.mktemp("injector"))


@pytest.mark.alone
@pytest.mark.timed
def test_timers_on_the_core_of_the_dut_are_found(injector: Path, tmp_path: Path) -> None:
    # 20 ms in which the core does little else: more than the host of a virtual machine takes.
    bursts = injectors.timers(
        injector, cpu=1, count=4000, gap_ns=5_000, period_ns=250 * MS, spread_ns=150 * MS
    )
    run, own, foreign = sampled(tmp_path, bursts)
    facts, samples = record(run)["interrupts"], read_samples(run / "interrupts.csv")
    assert len(samples.times_ns) == facts["samples"] and facts["period_ns"] == 40 * MS
    assert facts["cpu"] != 1
    assert (own["offset"]["source"], own["offset"]["ns"]) == ("clock", 0)
    assert own["answer"] == "associated"
    rows = {row["name"]: row for row in own["counters"]}
    assert rows[TIMERS]["associated"]
    assert rows[TIMERS]["late_per_s"] > 2 * rows[TIMERS]["elsewhere_per_s"]
    assert own["sampler"] is not None
    # The same samples, as if their clock were somebody else's.
    assert foreign["offset"]["source"] == "suggested"
    if foreign["offset"]["ns"] is not None:
        assert foreign["offset"]["low_ns"] <= 0 <= foreign["offset"]["high_ns"]
    else:
        assert foreign["answer"] == "cannot-tell"


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timed
def test_timers_of_another_core_are_not_blamed(injector: Path, tmp_path: Path) -> None:
    """They are two thirds of what its counter counts, and delay no packet.

    Nothing is claimed of the DuT's own core, which nobody injects into: a core that leaves its
    idle loop for a task starts its tick, so that its timer is rightly found beside the packets
    that the task delayed.
    """
    decoy = injectors.timers(injector, cpu=0, count=100, period_ns=250 * MS, spread_ns=150 * MS)
    _, own, _ = sampled(tmp_path, decoy)
    [timers] = [row for row in own["counters"] if row["name"] == TIMERS.replace("CPU1", "CPU0")]
    assert timers["increments"] > 2000
    assert not timers["associated"]
