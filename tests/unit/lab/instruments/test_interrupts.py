"""The sampler of interrupts: when it samples, what it says of itself, what it leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from observing import NoLinks
from pydantic import TypeAdapter, ValidationError

from tailtap.base.errors import MachineError
from tailtap.lab.instruments import Scope
from tailtap.lab.instruments.interrupts import (
    Interrupts,
    Sampler,
    housekeeping,
    sample_interrupts,
    sampling_ns,
)
from tailtap.records.interrupts import FILE, read_samples
from tailtap.records.record import as_json

MS = 1_000_000
CPUS = sorted(os.sched_getaffinity(0))


def scope(folder: Path | None, sampling: int | None = 5 * MS) -> Scope:
    return Scope((CPUS[-1],), (), NoLinks(), folder=folder, sampling_ns=sampling)


def test_a_run_has_samples_of_this_machine_by_the_clock_of_the_taps(tmp_path: Path) -> None:
    before = time.monotonic_ns()
    observation = sample_interrupts(scope(tmp_path))
    assert observation is not None
    time.sleep(0.2)
    reading = observation.stop()
    after = time.monotonic_ns()
    assert list(reading.files) == [FILE]
    facts = as_json(reading.facts)["interrupts"]
    samples = read_samples(tmp_path / FILE)
    assert len(samples.times_ns) == facts["samples"] >= 2
    assert before <= samples.times_ns[0] and samples.times_ns[-1] <= after
    assert samples.took_ns is not None
    assert sum(samples.took_ns) == facts["took_ns"]["sum"] < after - before
    assert facts["took_ns"]["median"] <= facts["took_ns"]["max"]
    assert any(name.startswith("NET_RX_softirq_CPU") for name in samples.counters)
    timers = [values for name, values in samples.counters.items() if name.startswith("LOC_")]
    for values in timers:
        numbers = [value for value in values if value is not None]
        assert numbers == sorted(numbers)
    # Every slot was taken or missed, but for the last sample, which ends it.
    slots = (samples.times_ns[-1] - samples.times_ns[0]) // (5 * MS)
    assert abs(facts["samples"] + facts["missed"] - 1 - slots) <= 2


def test_a_sampler_that_comes_late_says_so(tmp_path: Path) -> None:
    """Nobody can sample once a microsecond."""
    observation = Sampler(scope(tmp_path), 1_000, tmp_path)
    time.sleep(0.05)
    reading = observation.stop()
    assert [warning["code"] for warning in reading.warnings] == ["interrupts-late"]
    facts = as_json(reading.facts)["interrupts"]
    assert facts["late"] + facts["missed"] > 0
    assert f"{facts['late'] + facts['missed']} of " in reading.warnings[0]["message"]


def test_a_kernel_that_shows_nothing_ends_the_run(tmp_path: Path) -> None:
    observation = Sampler(scope(tmp_path), MS, tmp_path, proc=tmp_path / "none")
    with pytest.raises(MachineError, match="set interrupts: none"):
        observation.stop()
    observation.close()


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_it_works_on_a_cpu_that_is_not_measured(tmp_path: Path) -> None:
    first, *others = CPUS
    assert housekeeping(Scope((first,), (), NoLinks())) in others
    assert housekeeping(Scope(tuple(others), (first,), NoLinks())) == first
    assert housekeeping(Scope(tuple(CPUS), (first,), NoLinks())) in CPUS


def test_the_key_of_an_experiment() -> None:
    key = TypeAdapter(Interrupts)

    def period(value: object) -> int | None:
        return sampling_ns(key.validate_python(value))

    assert period("none") is None
    assert period("counters") == 100 * MS
    assert period({"counters": {"period": "10 ms"}}) == 10 * MS
    with pytest.raises(ValidationError, match="a sample takes too long"):
        period({"counters": {"period": "10 us"}})
