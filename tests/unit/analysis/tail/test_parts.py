"""The parts of the tail model, each against scipy, R's evd or known truth."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, optimize, spatial, stats
from tails import START, tail_tables

from tailtap.analysis.evaluation.values import Blocks
from tailtap.analysis.tail import blocks, diagnostics
from tailtap.analysis.tail import blocks as gev
from tailtap.analysis.tail.gpd import (
    BINS,
    DROP_95,
    Excesses,
    Fit,
    Floats,
    anderson_darling,
    exponential,
    goodness,
    growth,
    jensen_shannon,
    second_population,
)
from tailtap.analysis.tail.peaks import (
    Part,
    decluster,
    extremal_index,
    parse_threshold,
    percentile,
    spread,
    tick_of,
    with_run_length,
)
from tailtap.base.errors import InputError


def test_bursts_of_next_to_nothing() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert decluster(empty).count == 0
    assert decluster(np.array([7])).count == 1
    assert decluster(np.array([7, 8, 9])).count == 1
    assert with_run_length(empty, 3).count == 0


@pytest.mark.parametrize("p", [50, 99, 99.5, 99.95, 99.999])
@pytest.mark.parametrize("n", [11, 1000, 60_000])
def test_percentiles_are_numpys(p: float, n: int) -> None:
    values = np.random.default_rng(n).gamma(2, 1000, n)
    assert percentile(Part(0, n, np.arange(n), values), p) == np.percentile(values, p)
    floor = np.sort(values)[-max(n // 10, 3)]
    stored = Part(0, n, np.flatnonzero(values >= floor), values[values >= floor])
    if p >= 99:
        assert percentile(stored, p) == np.percentile(values, p)
    else:
        assert percentile(stored, p) is None


def test_thresholds_as_text() -> None:
    assert parse_threshold("99.95").percentile == 99.95
    assert parse_threshold("p99.9 %").percentile == 99.9
    assert parse_threshold("30 us").time_ns == 30_000
    for text in ("100", "49", "high", "", "-1 us"):
        with pytest.raises(InputError, match=r"threshold|time"):
            parse_threshold(text)


@pytest.mark.parametrize("tick", [1.0, 6.4, 12.5, 1000.0])
def test_the_tick_of_clocks_is_found_and_ties_are_undone(tick: float) -> None:
    random = np.random.default_rng(6)
    true = 20_000 + random.gamma(3, 2 * tick + 1000, 5000)
    sent = random.integers(0, 10**6, 5000) * tick
    # Both stamps tick, and are rounded down to whole nanoseconds.
    latency = np.floor(np.rint((sent + true) / tick) * tick) - np.floor(sent)
    assert tick_of(latency.astype(np.int64)) == tick
    values = spread(latency.astype(np.int64), tick)
    assert np.abs(values - latency).max() <= tick / 2 + 1
    assert np.unique(values).size == values.size
    # Spread values follow the true distribution as closely as a sample does.
    assert stats.ks_2samp(values, true, method="asymp").pvalue > 0.1
    # The order in time says nothing about the shift.
    assert abs(np.corrcoef(np.arange(5000), values - latency)[0, 1]) < 0.05


def test_anderson_darling_is_the_integral() -> None:
    values = np.sort(stats.genpareto.rvs(0.2, size=40, random_state=np.random.default_rng(7)))
    fit = Excesses(values).fit()
    u = stats.genpareto.cdf(values, fit.xi, scale=fit.sigma)
    total = 0.0
    for i, (a, b) in enumerate(zip([0.0, *u], [*u, 1.0], strict=True)):
        share = i / u.size
        total += integrate.quad(lambda x, s=share: (s - x) ** 2 / (x * (1 - x)), a, b)[0]
    assert anderson_darling(values, fit) == pytest.approx(u.size * total, rel=1e-6)
    assert np.isinf(anderson_darling(values, Fit(-0.9, 1.0, 40, 5.0, True)))


@pytest.mark.parametrize("xi", [-0.35, 0.0, 0.75])
@pytest.mark.parametrize("n", [40, 400])
def test_goodness_of_fit_holds_its_level(xi: float, n: int) -> None:
    random = np.random.default_rng(8)
    found = []
    for _ in range(300):
        excesses = Excesses(stats.genpareto.rvs(xi, size=n, random_state=random))
        found.append(goodness(excesses.values, excesses.fit()).p)
    # 5 % of 300 is 15; the binomial distribution allows 4 to 29 at 1 in 1000.
    assert 4 <= sum(p < 0.05 for p in found) <= 29
    assert 0.4 < np.median(found) < 0.6


def test_goodness_of_fit_has_power() -> None:
    random = np.random.default_rng(9)
    bumpy = np.sort(np.concatenate([random.exponential(1, 300), random.normal(6, 0.5, 100)]))
    for sample in (bumpy, np.sort(stats.beta.rvs(2, 2, size=400, random_state=random))):
        excesses = Excesses(sample)
        assert goodness(excesses.values, excesses.fit()).p < 0.05


def test_second_population() -> None:
    random = np.random.default_rng(10)
    quiet = np.concatenate([random.exponential(500, 400), random.normal(45_000, 800, 30)])
    found = second_population(np.sort(quiet))
    assert found is not None and found.above == pytest.approx(30, abs=2)
    assert found.low < 6_000 and 41_000 < found.high < 45_000
    for xi in (-0.4, 0.0, 0.6):
        alarms = sum(
            second_population(np.sort(stats.genpareto.rvs(xi, size=300, random_state=random)))
            is not None
            for _ in range(100)
        )
        assert alarms <= 3, xi


def test_divergence_is_scipys() -> None:
    values = np.sort(stats.genpareto.rvs(0.1, size=500, random_state=np.random.default_rng(11)))
    fit = Excesses(values).fit()
    u = stats.genpareto.cdf(values, fit.xi, scale=fit.sigma)
    counts = np.histogram(u, BINS, (0, 1))[0] / 500
    expected = spatial.distance.jensenshannon(counts, np.full(BINS, 1 / BINS), 2) ** 2
    assert jensen_shannon(values, fit) == pytest.approx(expected, rel=1e-9)
    assert 0.8 < jensen_shannon(values, Fit(0.1, fit.sigma / 1e6, 500, fit.largest, True)) <= 1


def test_block_series() -> None:
    random = np.random.default_rng(13)
    n = 50_000
    latency = random.integers(1_000, 9_000, n)
    ingress = START + np.arange(n) * 100_000
    _, _, table, width = tail_tables(latency, ingress)
    stored = Blocks(width, *(table.column(i).to_numpy() for i in range(4)))
    fitted = 20_000
    found = blocks.series(stored, fitted, 50)
    egress = ingress + latency
    number = (egress // width - egress[0] // width) * width // found.width_ns
    whole = number < number[fitted] - 1
    for i in np.unique(number[whole]):
        mine = latency[number == i]
        assert (found.packets[i], found.maximum[i]) == (mine.size, mine.max())
        assert found.mean[i] == pytest.approx(mine.mean())
    assert 25 <= found.packets.size <= 50
    assert blocks.series(stored, 0, 50).packets.size == 0


@pytest.mark.parametrize("xi", [-0.3, 0.0, 0.3])
def test_block_maxima_are_fitted_as_scipy_does(xi: float) -> None:
    maxima = stats.genextreme.rvs(-xi, 5000, 300, size=120, random_state=np.random.default_rng(14))
    found = gev.fit(maxima)
    assert found is not None

    def likelihood(xi: float, mu: float, sigma: float) -> float:
        return float(stats.genextreme.logpdf(maxima, -xi, mu, sigma).sum())

    c, mu, sigma = stats.genextreme.fit(maxima, -xi, loc=5000, scale=300)
    assert likelihood(found.xi, found.mu, found.sigma) >= likelihood(-c, mu, sigma) - 1e-4
    interval = gev.level_interval(maxima, found, 500)
    truth = 5000 + 300 * float(growth(np.log(500), xi))
    assert interval is not None and interval[0] < truth < interval[1]
    assert interval[0] < found.level(500) < interval[1]
    assert gev.fit(np.full(100, 3.0)) is None and gev.fit(maxima[:10]) is None


def test_diagnostic_plots_say_what_they_should() -> None:
    """Over a true GPD: xi and scale stay level, the mean excess is a straight line."""
    n, xi, sigma = 150_000, 0.2, 1000.0
    held = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        latency = 5_000 + stats.genpareto.rvs(xi, scale=sigma, size=n, random_state=random)
        top = latency > np.quantile(latency, 0.97)
        part = Part(0, n, np.flatnonzero(top), latency[top])
        stability = diagnostics.stability(part)
        assert stability.u.size > 15
        assert np.all(np.diff(stability.bursts) < 0) and np.median(stability.index) > 0.9
        scale = sigma - xi * 5_000
        excess = diagnostics.mean_excess(part)
        line = (sigma + xi * (excess.u - 5_000)) / (1 - xi)
        held.append(
            [
                np.mean((stability.xi_low <= xi) & (xi <= stability.xi_high)),
                np.mean((stability.scale_low <= scale) & (scale <= stability.scale_high)),
                np.mean((excess.low <= line) & (line <= excess.high)),
            ]
        )
    # Neighbouring thresholds share their data: now and then several miss at once.
    assert np.all(np.mean(held, axis=0) > 0.85)


def sample(xi: float, n: int, seed: int = 1, scale: float = 1000.0) -> Floats:
    found: Floats = stats.genpareto.rvs(
        xi, scale=scale, size=n, random_state=np.random.default_rng(seed)
    )
    return found


def likelihood(values: Floats, xi: float, sigma: float) -> float:
    return float(stats.genpareto.logpdf(values, xi, scale=sigma).sum())


@pytest.mark.parametrize("xi", [-0.45, -0.2, 0.0, 0.3, 1.5])
@pytest.mark.parametrize("n", [30, 3000])
def test_nothing_near_the_estimate_is_more_likely(xi: float, n: int) -> None:
    values = sample(xi, n)
    fit = Excesses(values).fit()
    assert fit.interior and fit.n == n and fit.largest == values.max()
    best = likelihood(values, fit.xi, fit.sigma)
    for dx, ds in ((1e-4, 1), (-1e-4, 1), (0, 1.0001), (0, 0.9999), (1e-4, 0.9999)):
        assert likelihood(values, fit.xi + dx, fit.sigma * ds) < best

    # Not only near: from the truth, a general search finds nothing better.
    def cost(p: Floats) -> float:
        return -likelihood(values, float(p[0]), float(p[1]))

    found = optimize.minimize(cost, np.array([xi, 1000.0]), method="Nelder-Mead")
    assert best >= -found.fun - 1e-6


def test_estimates_scale_with_the_unit() -> None:
    values = sample(0.1, 500)
    fit = Excesses(values).fit()
    for unit in (1e-9, 1e12):
        other = Excesses(values * unit).fit()
        assert other.xi == pytest.approx(fit.xi, rel=1e-9)
        assert other.sigma == pytest.approx(fit.sigma * unit, rel=1e-9)


def test_an_exponential_tail_is_no_special_case() -> None:
    # Exponential quantiles, skewed a little to move the estimate through xi = 0.
    p = (np.arange(400) + 0.5) / 400
    xis = []
    for bend in np.linspace(-0.01, 0.01, 41):
        excesses = Excesses(growth(-np.log(p), float(bend)))
        fit = excesses.fit()
        low, high = excesses.profile(fit).xi()
        assert low < fit.xi < high
        xis.append(fit.xi)
    steps = np.diff(xis)
    assert xis[0] < 0 < xis[-1] and steps.min() > 0 and steps.max() < 1.01 * steps.min()


def test_excesses_that_no_tail_can_have() -> None:
    for values in ([], [1.0], [2.0, 2.0, 2.0], [0.0, 1.0], [-1.0, 2.0]):
        with pytest.raises(ValueError, match="two different"):
            Excesses(np.array(values))
    # A density that rises has no estimate above xi = -1.
    fit = Excesses(np.sqrt(np.arange(1, 200))).fit()
    assert not fit.interior and not fit.regular
    with pytest.raises(ValueError, match="no likelihood intervals"):
        Excesses(np.sqrt(np.arange(1, 200))).profile(fit)


@pytest.mark.parametrize("xi", [-0.3, 0.0, 0.4])
def test_profile_intervals_are_where_the_likelihood_drops(xi: float) -> None:
    """Against a brute force that maximises scipy's likelihood over the other parameters."""
    values = sample(xi, 300, seed=3)
    excesses = Excesses(values)
    fit = excesses.fit()
    profile = excesses.profile(fit)
    top = likelihood(values, fit.xi, fit.sigma)
    for end in profile.xi():
        best = optimize.minimize_scalar(
            lambda s, end=end: -likelihood(values, end, float(np.exp(s))),
            bracket=(np.log(fit.sigma), np.log(fit.sigma) + 0.05),
        )
        assert top + best.fun == pytest.approx(DROP_95, abs=0.01)
    # A level: rate and both parameters are free, but for the level itself.
    n, log_m = len(values), float(np.log(4 * len(values)))
    for bound in profile.level_interval(fit.sigma * float(growth(log_m, fit.xi)), log_m):
        assert bound is not None

        def cost(p: Floats, end: float = bound) -> float:
            sigma = float(np.exp(p[1]))
            rate = float(exponential(np.array([end]), float(p[0]), sigma)[0])
            if not np.isfinite(rate):
                return 1e9
            surplus = rate - log_m
            number = surplus - float(np.exp(surplus)) + 1
            return -likelihood(values, float(p[0]), sigma) - n * number

        start = [[fit.xi, np.log(fit.sigma)], [fit.xi + 0.05, np.log(fit.sigma)],
                 [fit.xi, np.log(fit.sigma) + 0.05]]  # fmt: skip
        found = optimize.minimize(
            cost,
            np.array(start[0]),
            method="Nelder-Mead",
            options={"initial_simplex": start, "xatol": 1e-7, "fatol": 1e-9},
        )
        assert top + found.fun == pytest.approx(DROP_95, abs=0.01)


def test_few_excesses_leave_the_level_open_above() -> None:
    """Wide, never wrong: with a heavy tail and few excesses the upper end is far or missing."""
    excesses = Excesses(sample(1.2, 30, seed=4))
    fit = excesses.fit()
    log_m = float(np.log(30e6))
    estimate = fit.sigma * float(growth(log_m, fit.xi))
    low, high = excesses.profile(fit).level_interval(estimate, log_m)
    assert 0 < low < estimate and (high is None or high > 10 * estimate)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed (r-cran-evd)")
def test_estimates_are_those_of_evd(tmp_path: Path) -> None:
    samples = [sample(xi, 400, seed) for seed, xi in enumerate((-0.3, 0.0, 0.2, 0.5))]
    np.savetxt(tmp_path / "x", samples, fmt="%.17g")
    script = (
        f"suppressMessages(library(evd)); x <- as.matrix(read.table('{tmp_path / 'x'}'));"
        "for (i in seq_len(nrow(x))) cat(fpot(x[i, ], 0, std.err = FALSE, control = "
        "list(reltol = 1e-14, maxit = 9999))$estimate[c('shape', 'scale')], '\\n')"
    )
    run = subprocess.run(["Rscript", "-e", script], check=True, capture_output=True, text=True)
    for values, line in zip(samples, run.stdout.splitlines(), strict=True):
        theirs = [float(cell) for cell in line.split()]
        ours = Excesses(values).fit()
        assert ours.xi == pytest.approx(theirs[0], abs=2e-3)
        assert ours.sigma == pytest.approx(theirs[1], rel=2e-3)
        assert likelihood(values, ours.xi, ours.sigma) >= likelihood(values, *theirs) - 1e-9


def test_the_extremal_index_is_that_of_ferro_and_segers() -> None:
    """Gaps of 1, 1, 1 and 97: 2 (96)^2 / (4 * 96 * 95)."""
    assert extremal_index(np.array([0, 1, 2, 3, 100])) == pytest.approx(96 / 190)
