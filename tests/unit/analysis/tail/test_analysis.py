"""Whole runs with a tail that is known, or that nobody should model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from made_records import rewrite
from scipy import stats
from tails import load_tail, write_tail

from tailtap.analysis.tail import Options, TailModel, analyse
from tailtap.analysis.tail.analysis import record
from tailtap.analysis.tail.assessment import level_text, level_words
from tailtap.analysis.tail.gpd import Floats
from tailtap.analysis.tail.peaks import Threshold
from tailtap.base.errors import InputError
from tailtap.records.record import printed
from tailtap.records.tail import LevelRecord

Fit = Callable[..., TailModel]
RATE = 10_000


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    """The model of latencies (ns); checked to be valid JSON without NaN whatever they are."""

    def model(
        latency: npt.ArrayLike, *, lost: int = 0, rate: int = RATE, options: Options | None = None
    ) -> TailModel:
        values = np.rint(np.asarray(latency)).astype(np.int64)
        found = analyse(load_tail(write_tail(tmp_path, values, rate, lost), "run"), options)
        assert json.loads(printed(record(found)))["schema"] == "tailtap.tail/1"
        return found

    return model


def heavy(n: int, seed: int, xi: float = 0.1) -> Floats:
    """Latencies whose largest hundredth is Pareto above 8 us."""
    random = np.random.default_rng(seed)
    latency = 3_000 + random.beta(2, 5, n) * 5_000
    late = random.random(n) < 0.01
    latency[late] = 8_000 + stats.genpareto.rvs(
        xi, scale=2_000, size=int(late.sum()), random_state=random
    )
    return latency


def codes(model: TailModel) -> set[str]:
    return {warning.code for warning in model.warnings}


def reasons(model: TailModel) -> set[str]:
    return {flag.code for found in model.assessments for flag in found.flags}


def none_given(model: TailModel) -> bool:
    return all(entry.level is None for entry in model.levels)


def test_a_population_of_its_own_is_modelled_above_the_other(fit: Fit) -> None:
    random = np.random.default_rng(5)
    n = 1_000_000
    latency = 3_000 + random.gamma(2, 300, n)
    stalled = random.random(n) < 2e-3
    latency[stalled] += 40_000 + random.exponential(5_000, int(stalled.sum()))
    model = fit(latency)
    assert model.assessments[0].refused and "mixture" in reasons(model)
    assert model.chosen is not None and model.chosen.threshold.percentile == 99.9
    low, high = model.chosen.xi_interval or (1, 1)
    assert low < 0 < high


def test_all_packets_over_the_threshold(fit: Fit) -> None:
    model = fit(heavy(60_000, 9), options=Options(thresholds=(Threshold(time_ns=100),)))
    assert none_given(model) and reasons(model) == {"no-tail"}
    assert "100% of the packets exceed it" in model.assessments[0].flags[0].message
    # Of a million packets, those over so low a threshold are not stored.
    model = fit(heavy(1_000_000, 10), options=Options(thresholds=(Threshold(time_ns=100),)))
    assert none_given(model) and reasons(model) == {"below-stored"}


def test_horizons_without_a_number_say_why(fit: Fit) -> None:
    options = Options(thresholds=(Threshold(99.9), Threshold(99.5)), horizons=(10**6, 10**15))
    model = fit(heavy(400_000, 18), options=options)
    # The lowest threshold is taken, in whatever order they were given.
    assert model.chosen is not None and model.chosen.threshold.percentile == 99.5
    assert [entry.level is None for entry in model.levels] == [True, False]
    assert {"near", "far"} <= codes(model)
    meanless = fit(heavy(400_000, 18, xi=4.0), options=Options(horizons=(10**18,)))
    assert none_given(meanless) and "endless" in codes(meanless)


def test_options_that_make_no_sense() -> None:
    for says, options in (
        ("^--fit", {"fit": 0.0}),
        ("^--fit", {"fit": 1.1}),
        ("every --horizon", {"horizons": (0,)}),
        ("give at least one --threshold", {"thresholds": ()}),
    ):
        with pytest.raises(InputError, match=says):
            Options(**options)


def test_words() -> None:
    for text, value, low, high in (
        ("1.23 ms (1.20 to 1.30)", 1_234_567.0, 1_200_000.0, 1_300_000.0),
        ("34.019 us (34.011 to 34.024)", 34_019.3, 34_011.0, 34_024.0),
        ("95.0 us (41.0 or more)", 95_000.0, 41_000.0, None),
        ("950 ns (940 to 990)", 950.0, 940.0, 990.0),
    ):
        level = LevelRecord(packets=1.0, value=value, low=low, high=high)
        assert level_text(level) == text
        assert level_words(86_400 * 10**9, 10_000, level) == f"once in 24 h at 10 kpkt/s: {text}"
    assert level_words(90 * 10**9, 1_000_000, None) == "once in 90 s at 1 Mpkt/s: no number"


def test_blocks_of_other_packets_are_no_tail(tmp_path: Path) -> None:
    path = write_tail(tmp_path, heavy(1_000, 16).astype(np.int64)) / "evaluation.json"
    rewrite(path, counts={**json.loads(path.read_text())["counts"], "matched": 3})
    with pytest.raises(InputError, match=r"blocks\.parquet counts other packets"):
        load_tail(tmp_path, "run")
