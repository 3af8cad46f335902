"""Samples of the DuT's interrupts and stamps of another machine: joined by what clocks show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from traced import SECOND, START, arrivals, hog, random_blocks, simulate, write_run
from two_machines import Apart, say_apart

from tailtap.analysis.interrupts.analysis import Options
from tailtap.analysis.interrupts.runs import interrupts_of
from tailtap.base.errors import InputError
from tailtap.records.interrupts import FILE

SECONDS, PERIOD_NS, TOOK_NS = 2.0, 5_000_000, 1000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Twenty bursts of late packets."""
    random = np.random.default_rng(11)
    blocks = random_blocks(hog, 20, (1_500_000, 1_600_000), SECONDS, random)
    return write_run(
        tmp_path / "001-apart", simulate(arrivals(5_000, SECONDS, random), blocks, random)
    )


def sampled(run: Path, clock: Apart, **more: bool) -> None:
    """Samples by the clock of the DuT: a counter rises where packets are late, another does not."""
    from tailtap.analysis.runs.reader import finished_runs

    [found] = finished_runs(run)
    worst = found.stored.worst_packets
    bounds = np.arange(START, START + int(SECONDS * SECOND), PERIOD_NS)
    late = np.histogram(worst.ingress_ns[worst.latency_ns > 1_000_000], bounds)[0]
    decoy = np.random.default_rng(3).poisson(3, bounds.size - 1)
    counts = [np.append(0, np.cumsum(rises)) for rises in (50 * late, decoy)]
    rows = ["timestamp_us;monotonic_ns;took_ns;LOC_timer_CPU1;7_decoy_CPU1"]
    for at, time in enumerate(bounds.tolist()):
        values = ";".join(str(column[at]) for column in counts)
        rows.append(f"{(time - START) // 1000};{clock.shows(time)};{TOOK_NS};{values}")
    (run / FILE).write_text("".join(f"{row}\r\n" for row in rows))
    say_apart(run, clock, START, START + int(SECONDS * SECOND), **more)


def told(run: Path, options: Options | None = None) -> dict[str, Any]:
    [found] = interrupts_of([run], options).runs
    content: dict[str, Any] = msgspec.to_builtins(found.finding.record)
    return content


def associated(finding: dict[str, Any]) -> list[str]:
    return [row["name"] for row in finding["counters"] if row["associated"]]


@pytest.mark.parametrize(
    "clock",
    [Apart(), Apart(3_000_000_000), Apart(-70_000_000, drift=1e-4, off=-1.0)],
    ids=str,
)
def test_samples_are_held_against_packets_by_the_clocks(run: Path, clock: Apart) -> None:
    sampled(run, clock)
    found = told(run)
    assert associated(found) == ["LOC_timer_CPU1"]
    offset = found["offset"]
    assert offset["source"] == "clocks"
    middle = START + int(SECONDS * SECOND) // 2
    assert offset["low_ns"] <= middle - clock.shows(middle) <= offset["high_ns"]
    assert offset["high_ns"] - offset["low_ns"] == pytest.approx(clock.width_ns, abs=2)
    assert found["sampler"] is None  # it took a tenth of what the clocks leave open


def test_before_they_were_held_against_the_wrong_packets(run: Path) -> None:
    """The counter by the DuT's clock taken for the stamps': what hosts of one kernel may do."""
    sampled(run, Apart(70_000_000), same_kernel=True)
    found = told(run)
    assert found["offset"]["source"] == "clock"
    assert associated(found) == []


def test_a_clock_that_is_known_worse_than_a_period_tells_nothing(run: Path) -> None:
    sampled(run, Apart(width_ns=12_000_000))
    found = told(run)
    assert found["answer"] == "cannot-tell"
    assert found["reason"].startswith(
        "the clock of the samples is known to 12 ms only, which is longer than the 5 ms between"
    )
    assert associated(found) == []


def test_a_clock_that_stepped_is_refused_unless_somebody_knows_the_offset(run: Path) -> None:
    sampled(run, Apart(70_000_000), stepped=True)
    with pytest.raises(InputError, match=r"interrupts.csv: the samples cannot be joined with "):
        told(run)
    found = told(run, Options(-70_000_000))
    assert associated(found) == ["LOC_timer_CPU1"]
