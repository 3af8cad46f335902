"""The GPD's estimates and intervals, against scipy, R's evd and known truth."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from tailtap.analysis.tail.gpd import DROP_95, Excesses, Floats, exponential, growth


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
    estimate = fit.sigma * float(growth(log_m, fit.xi))
    for bound in profile.level_interval(estimate, log_m):
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


def test_intervals_cover() -> None:
    """A quick look; `make bench-model` takes 1000 samples each."""
    random = np.random.default_rng(20260301)
    samples, n = 100, 500
    for xi in (-0.3, 0.0, 0.5):
        of_xi = of_level = 0
        for _ in range(samples):
            count = int(random.binomial(100_000, n / 100_000))
            excesses = Excesses(stats.genpareto.rvs(xi, size=count, random_state=random))
            fit = excesses.fit()
            profile = excesses.profile(fit)
            low, high = profile.xi()
            of_xi += low <= xi <= high
            log_m = float(np.log(4 * count))
            bottom, top = profile.level_interval(fit.sigma * float(growth(log_m, fit.xi)), log_m)
            truth = float(growth(np.log(4 * n), xi))
            of_level += bottom <= truth and (top is None or truth <= top)
        # The binomial distribution allows 87 to 100 at 1 in 1000.
        assert of_xi >= 87 and of_level >= 87, (xi, of_xi, of_level)


def test_few_excesses_leave_the_level_open_above() -> None:
    """Wide, never wrong: with a heavy tail and few excesses the upper end is far or missing."""
    values = sample(1.2, 30, seed=4)
    excesses = Excesses(values)
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
