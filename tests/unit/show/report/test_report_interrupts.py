"""Interrupts where packets were late, in the report: the table of a sampled run, and its strips."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from told import write_told

from tailtap.analysis.runs.reader import finished_runs
from tailtap.records.interrupts import FILE
from tailtap.show.report import write_report
from tailtap.show.report.readings import HIGH, STRIP, strip
from tailtap.show.sections.machine import SHOWN

PERIOD_NS = 5_000_000
DECOYS = 12
ROW = re.compile(r'<tr(?: class="(present)")?><th scope="row">([^<]*_CPU1)</th>')


def sample(run: Path, *, windows: int | None = None) -> None:
    """Samples whose timer rises where packets are late, and whose others do not."""
    [found] = finished_runs(run)
    assert found.evaluation is not None and found.evaluation.stored is not None
    stored = found.evaluation.stored
    side = stored.inputs.ingress
    bounds = np.arange(side.first_ns, side.last_ns, PERIOD_NS)[:windows]
    worst = stored.worst_packets.ingress_ns[:300]
    late = np.histogram(worst, bounds)[0]
    random = np.random.default_rng(3)
    counters = {"LOC_timer_CPU1": 50 * late}
    for number in range(DECOYS):
        counters[f"{number}_decoy_CPU1"] = random.poisson(3, bounds.size - 1)
    counts = {name: np.append(0, np.cumsum(rises)) for name, rises in counters.items()}
    heads = ["timestamp_us", "monotonic_ns", "took_ns", *counts]
    rows = [
        [(time - bounds[0]) // 1000, time, 1000, *(row[at] for row in counts.values())]
        for at, time in enumerate(bounds.tolist())
    ]
    lines = [";".join(map(str, row)) for row in [heads, *rows]]
    (run / FILE).write_text("".join(f"{line}\r\n" for line in lines))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_told(tmp_path / "told")


def page(run: Path) -> str:
    return write_report(run.parent.parent, figures=False).page.read_text()


def test_a_counter_that_rises_with_late_packets_is_told_from_the_others(run: Path) -> None:
    sample(run)
    text = page(run)
    rows = {name: bool(present) for present, name in ROW.findall(text)}
    assert next(iter(rows)) == "LOC_timer_CPU1" and not rows.pop("LOC_timer_CPU1")
    assert len(rows) == SHOWN - 1 and all(rows.values())
    assert f"{DECOYS + 1 - SHOWN} more rose" in text
    assert f"1 of {DECOYS + 1} counters are associated" in text
    assert text.count('<svg class="strip') == SHOWN + 1


def test_too_few_samples_are_no_finding(run: Path) -> None:
    sample(run, windows=20)
    text = page(run)
    assert "Nothing can be told: 19 windows of 5" in text
    assert all(present for present, _ in ROW.findall(text))


def test_samples_that_cannot_be_read_are_said_to_be(run: Path) -> None:
    (run / FILE).write_text("nothing")
    assert f"{run / FILE}" in page(run)


def test_a_run_without_samples_has_no_table(run: Path) -> None:
    assert "Interrupts where packets were late" not in page(run)


@pytest.mark.parametrize("number", [1, 7, STRIP, STRIP + 1, 5000])
def test_strips_show_the_highest_of_each_column(number: int) -> None:
    random = np.random.default_rng(number)
    values, highest = random.integers(1, 1000, number), int(random.integers(number))
    values[highest] = 5000
    path = strip(values)
    steps = re.findall(r"V([\d.]+)H([\d.]+)", path)
    assert path.startswith(f"M0 {HIGH}") and path.endswith(f"V{HIGH}Z")
    assert len(steps) == min(number, STRIP)
    assert float(steps[-1][1]) == STRIP
    top = min(range(len(steps)), key=lambda at: float(steps[at][0]))
    assert float(steps[top][0]) == 1
    right = float(steps[top][1])
    left = float(steps[top - 1][1]) if top else 0
    assert left - 0.1 <= highest * STRIP / number < right


def test_nothing_that_rose_has_no_strip() -> None:
    assert strip(np.zeros(5, np.int64)) == ""
    assert strip(np.zeros(0, np.int64)) == ""
