"""The published method against what its own script says of a real run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from published import SHARED, content
from tails import load_tail, write_tail

from tailtap.analysis.tail import Options, analyse
from tailtap.analysis.tail.peaks import Threshold

LATENCIES = SHARED / "tail/snort-fwd-hw.latency-only.csv.zst"
EXPECTED = SHARED / "tail/snort-fwd-hw.evt.json"
needs_tail = pytest.mark.skipif(not EXPECTED.exists(), reason=f"no reference tail in {SHARED}")


@pytest.fixture(scope="module")
def latency() -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = np.loadtxt(
        io.BytesIO(content(LATENCIES)), dtype=np.int64, skiprows=1
    )
    return values


@needs_tail
def test_the_published_script_says_the_same(latency: npt.NDArray[np.int64], tmp_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text())
    threshold = Threshold(expected["threshold_percentile"])
    tail = load_tail(write_tail(tmp_path, latency), "snort")
    model = analyse(tail, Options(thresholds=(threshold,)))
    found = model.papers[0]
    assert found.exceedances == 30
    for ours, theirs in (
        (found.latency_ns, "threshold"),
        (found.xi, "tail_estimate"),
        (found.sigma_ns, "scale_estimate"),
        (found.level_ns, "return_levels"),
        (found.limit_ns, "return_level_convergence"),
    ):
        assert ours == pytest.approx(expected[theirs], rel=5e-7), theirs
    assert found.packets_above == expected["num_exceedances"] == 0
    assert found.bursts_above == 0 and found.bounded
    assert model.papers_chosen == found


@needs_tail
def test_the_run_has_the_ticks_of_its_timestamper(
    latency: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    model = analyse(load_tail(write_tail(tmp_path, latency), "snort"))
    assert model.tick == 12.5
    assert "coarse-clock" in [warning.code for warning in model.warnings]
    # Our threshold is the 99.95th percentile too: below it, no Pareto distribution fits.
    assert model.chosen is not None and model.chosen.threshold.percentile == 99.95
    assert model.chosen.check is not None and model.chosen.check.bursts_above == 0
    refused = {a.threshold.percentile for a in model.assessments if a.refused}
    assert refused == {99.5, 99.9, 99.99, 99.999}


def test_bursts_above_the_level_are_counted(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    latency = 3_000 + random.gamma(2, 300, 300_000)
    # In the rest of the run: five stalls far above anything before, each a queue of packets.
    for start in range(100_000, 300_000, 40_000):
        latency[start : start + 20] = np.linspace(90_000, 60_000, 20)
    model = analyse(load_tail(write_tail(tmp_path, latency.astype(np.int64)), "stalls"))
    for found in model.papers:
        if found.percentile in (99.5, 99.9, 99.95):
            assert (found.packets_above, found.bursts_above) == (100, 5)
    assert model.papers_chosen is not None
    assert model.papers_chosen.jensen_shannon == min(
        found.jensen_shannon for found in model.papers if found.jensen_shannon is not None
    )


def test_what_cannot_be_fitted_is_none(tmp_path: Path) -> None:
    tail = load_tail(write_tail(tmp_path, np.array([600, 700, 800, 900, 5_000])), "five")
    for found in analyse(tail).papers:
        assert (found.xi, found.level_ns, found.limit_ns, found.bounded) == (None, None, None, None)
