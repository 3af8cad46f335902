"""Tails of whole runs: repeats, the published method, and tails that nobody should model."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from experiment_folders import write_run
from made_records import rewrite
from published import SHARED, content
from scipy import stats
from tails import load_tail, write_tail

from tailtap.analysis.runs.tail import SECOND_NS
from tailtap.analysis.tail import Options, TailModel, analyse, model_runs
from tailtap.analysis.tail.analysis import record
from tailtap.analysis.tail.assessment import level_text, level_words
from tailtap.analysis.tail.forecast import forecast
from tailtap.analysis.tail.gpd import Floats
from tailtap.analysis.tail.peaks import Threshold
from tailtap.base.errors import InputError
from tailtap.records.record import printed
from tailtap.records.tail import LevelRecord
from tailtap.show.report.diagnostics import tail_figure, write_diagnostics
from tests.simulation.latencies import few


def latencies(seed: int, n: int = 100_000) -> np.typing.NDArray[np.int64]:
    return (3_000 + np.random.default_rng(seed).gamma(2, 300, n)).astype(np.int64)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three repeats of one configuration, and one run of another, overloaded."""
    folder = tmp_path_factory.mktemp("experiment")
    for number in (1, 2, 3):
        run = write_run(
            folder, number, {"dut.platform": "bare-metal"}, repeat=number, packets=1_000
        )
        write_tail(run / "evaluation", latencies(number))
    run = write_run(folder, 4, {"dut.platform": "wire"}, packets=1_000)
    write_tail(run / "evaluation", latencies(4), lost=10_000)
    return folder


def test_a_run_without_a_tail_among_others(experiment: Path, tmp_path: Path) -> None:
    old = write_run(tmp_path, 1, {}, packets=1_000)
    meta = json.loads((old / "evaluation/evaluation.json").read_text())
    del meta["exceedances"]
    (old / "evaluation/evaluation.json").write_text(json.dumps(meta))
    good = experiment / "runs/002-bare-metal-10000-2"
    found, runs = model_runs([old, good], out=tmp_path / "out")
    assert [run.folder for run in runs] == [tmp_path / "out" / good.name]
    assert [warning.code for warning in found.warnings] == ["no-tail"]
    with pytest.raises(InputError, match="exceedances: this key is missing"):
        model_runs([old])
    with pytest.raises(InputError, match="no runs in it"):
        model_runs([tmp_path / "out"])


def test_figures_are_the_same_bytes_for_the_same_data(experiment: Path, tmp_path: Path) -> None:
    _, [found] = model_runs([experiment / "runs/001-bare-metal-10000-1"], out=tmp_path)
    figure = tail_figure(found.model)
    first, second = (
        {path.name: path.read_bytes() for path in write_diagnostics(figure, found.folder)}
        for _ in range(2)
    )
    assert first == second and set(first) == {"tail.png", "tail.svg", "tail.pdf"}
    # Also of a run that has no fit at all.
    write_tail(tmp_path / "five", np.array([1, 2, 3, 4, 5]))
    _, [nothing] = model_runs([tmp_path / "five"])
    assert len(write_diagnostics(tail_figure(nothing.model), nothing.folder)) == 3


@pytest.mark.parametrize("holds", [True, False])
def test_no_return_levels_are_drawn_where_none_are_given(tmp_path: Path, holds: bool) -> None:
    latency = latencies(1, 400_000)
    if not holds:  # the rest of the run exceeds what was predicted from its first part
        later = np.arange(latency.size) > 200_000
        latency[later & (latency > 6_000)] *= 3
    write_tail(tmp_path, latency)
    _, [found] = model_runs([tmp_path])
    assert found.model.chosen is not None
    assert found.model.chosen.refused is not holds
    panel = tail_figure(found.model).panels[5]
    assert sum(mark.form == "line" for mark in panel.marks) == int(holds)
    assert panel.title == ("Return levels" if holds else "Levels seen: no model holds")


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
    latency = 3_000 + np.random.default_rng(1).gamma(2, 300, 300_000)
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


def test_events_of_half_a_second_say_nothing_sure_of_ten_runs() -> None:
    tail = few(1_000_000, np.arange(60) * 1000, np.full(60, 1_001), 100_000)
    found = forecast(tail, (1_000,), 100 * SECOND_NS)
    assert found is not None and found.levels[0].uneven
    assert not found.levels[0].expected_events.supported


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
    assert "100 % of the packets exceed it" in model.assessments[0].flags[0].message
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
