"""How far the tail model's intervals can be trusted, compared with scipy's and R's fits.

Fits samples with known parameters and counts how often the 95 % intervals of xi and of a return
level (four times the sample's length) contain the true value. Compares the estimates with those of
scipy and of R's package evd, where R is installed. Writes docs/explanation/model-coverage.md.
Usage: python -m benches.coverage [REPETITIONS]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from scipy import stats

from tailtap.analysis.tail.assessment import assess
from tailtap.analysis.tail.forecast import EFFECTIVE, expected
from tailtap.analysis.tail.gpd import Excesses, Floats, growth
from tailtap.analysis.tail.peaks import Part, Threshold

PAGE = Path(__file__).parents[1] / "docs/explanation/model-coverage.md"
SIZES = (30, 50, 100, 200, 500, 1000)
XIS = (-0.3, -0.1, 0.0, 0.1, 0.3, 0.5)
HORIZON = 4
INDICES = (1.0, 0.5, 0.2)
#: How many packets an event has, as functions of a generator of random numbers and a count.
EVENT_SIZES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "one packet": lambda random, count: np.ones(count),
    "five packets": lambda random, count: np.full(count, 5.0),
    "geometric, mean 10": lambda random, count: random.geometric(0.1, count).astype(float),
    "Pareto, index 2.5": lambda random, count: np.ceil(3 * random.pareto(2.5, count) + 1),
    "Pareto, index 1.5": lambda random, count: np.ceil(3 * random.pareto(1.5, count) + 1),
}
EVENTS = (60, 120, 500)
RATIOS = (0.2, 1.0, 100.0)
#: Packets per cluster: the number of clusters is random, as it is in a run.
PACKETS = 200
R = """
suppressMessages(library(evd)); x <- as.matrix(read.table(commandArgs(TRUE)[1]))
for (i in seq_len(nrow(x))) { f <- try(fpot(x[i, ], 0, std.err = FALSE), silent = TRUE)
  cat(if (inherits(f, "try-error")) "NA NA" else f$estimate[c("shape", "scale")], "\\n") }
"""


def covered(case: tuple[int, float], repetitions: int) -> tuple[int, int, int]:
    """Samples with intervals, and those whose intervals hold xi and the level."""
    size, xi = case
    random = np.random.default_rng([size, round(1000 * xi) + 1000])
    level = float(growth(np.log(HORIZON * size), xi))
    intervals = of_xi = of_level = 0
    for _ in range(repetitions):
        count = int(random.binomial(size * PACKETS, 1 / PACKETS))
        excesses = Excesses(stats.genpareto.rvs(xi, size=count, random_state=random))
        fit = excesses.fit()
        if not fit.regular:
            continue
        intervals += 1
        profile = excesses.profile(fit)
        low, high = profile.xi()
        of_xi += low <= xi <= high
        log_m = float(np.log(HORIZON * count))
        estimate = fit.sigma * float(growth(log_m, fit.xi))
        bottom, top = profile.level_interval(estimate, log_m)
        of_level += bottom <= level and (top is None or level <= top)
    return intervals, of_xi, of_level


Way = Callable[[Floats], Floats]


def by_tailtap(samples: Floats) -> Floats:
    """Our estimates (xi, sigma) of each row."""
    fits = [Excesses(row).fit() for row in samples]
    return np.array([(fit.xi, fit.sigma) for fit in fits])


def by_scipy(samples: Floats) -> Floats:
    """Scipy's estimates of each row."""
    fits = [stats.genpareto.fit(row, floc=0) for row in samples]
    return np.array([(fit[0], fit[2]) for fit in fits])


def by_evd(samples: Floats) -> Floats:
    """R's evd's estimates of each row, NaN where it failed."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        np.savetxt(file, samples, fmt="%.17g")
        file.flush()
        command = ["Rscript", "-e", R, file.name]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
    return np.array([[float(cell) for cell in line.split()] for line in run.stdout.splitlines()])


def coverage_table(repetitions: int) -> list[str]:
    """The table of coverage, in Markdown."""
    cases = list(product(SIZES, XIS))
    with ProcessPoolExecutor() as pool:
        found = dict(
            zip(cases, pool.map(partial(covered, repetitions=repetitions), cases), strict=True)
        )
    lines = [
        "| clusters | " + " | ".join(f"xi = {xi:g}" for xi in XIS) + " | lowest |",
        "|---:|" + "---:|" * (len(XIS) + 1),
    ]
    for size in SIZES:
        cells, lowest = [], 1.0
        for xi in XIS:
            intervals, of_xi, of_level = found[size, xi]
            shares = of_xi / intervals, of_level / intervals
            lowest = min(lowest, *shares)
            missing = repetitions - intervals
            note = f" ({missing / repetitions:.1%} none)" if missing else ""
            cells.append(f"{shares[0]:.1%}, {shares[1]:.1%}{note}")
        lines.append(f"| {size:,} | " + " | ".join(cells) + f" | {lowest:.1%} |")
    return lines


def armax(count: int, index: float, random: np.random.Generator) -> Floats:
    """A stationary series with this extremal index; its marginal distribution is Gumbel's."""
    fresh = index / random.exponential(size=count)
    fresh[0] /= index
    # max over the past of fresh (1 - index)^age, by a running maximum of shifted logarithms.
    fading = -np.log1p(-index) * np.arange(count) if index < 1 else np.zeros(count)
    logs = np.log(fresh)
    return logs if index == 1 else np.maximum.accumulate(logs + fading) - fading


def dependent(case: tuple[int, float], repetitions: int) -> tuple[int, float, float]:
    """Intervals that hold the level of an ARMAX series; mean index and mean number of clusters."""
    packets, index = case
    random = np.random.default_rng([packets, round(1000 * index)])
    # m packets have m index (1 - F(x)) clusters over x, and F is Gumbel's.
    truth = -np.log(-np.log1p(-1 / (HORIZON * packets * index)))
    held, indices, bursts = 0, [], []
    for _ in range(repetitions):
        part = Part(0, packets, np.arange(packets), 1000 * armax(packets, index, random))
        found = assess(part, Threshold(99.5), tick=1e-6, loss=0)
        level = found.level(HORIZON * packets)
        assert level is not None and level.low is not None and found.bursts is not None
        held += level.low <= 1000 * truth and (level.high is None or 1000 * truth <= level.high)
        indices.append(found.bursts.extremal_index)
        bursts.append(found.bursts.count)
    return held, float(np.mean(indices)), float(np.mean(bursts))


def dependent_table(repetitions: int) -> list[str]:
    """The table of dependent series, in Markdown."""
    cases = [(round(size / index), index) for size in (40_000, 100_000) for index in INDICES]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(partial(dependent, repetitions=repetitions), cases))
    lines = ["| packets | index | estimated | clusters | coverage |", "|---:|---:|---:|---:|---:|"]
    for (packets, index), (held, estimated, bursts) in zip(cases, results, strict=True):
        lines.append(
            f"| {packets:,} | {index:g} | {estimated:.2f} | {bursts:.0f} | "
            f"{held / repetitions:.1%} |"
        )
    return lines


def forecast_table(repetitions: int) -> list[str]:
    """The table of forecasts without a model, in Markdown."""
    lines = [
        "| sizes | events | " + " | ".join(f"{ratio:g} times" for ratio in RATIOS) + " |",
        "|---|---:|" + "---:|" * len(RATIOS),
    ]
    for name, events in product(EVENT_SIZES, EVENTS):
        held = [forecast_held(name, events, ratio, repetitions) for ratio in RATIOS]
        lines.append(f"| {name} | {events:,} | " + " | ".join(held) + " |")
    return lines


def forecast_held(name: str, events: int, ratio: float, repetitions: int) -> str:
    """The share of supported intervals that hold the packets of a horizon `ratio` times the run."""
    random = np.random.default_rng([len(name), events, round(10 * ratio)])
    sizes = EVENT_SIZES[name]
    held = supported = 0
    for _ in range(repetitions):
        found = expected(sizes(random, max(1, random.poisson(events))), ratio, EFFECTIVE, False)
        if found.supported:
            supported += 1
            to_come = sizes(random, random.poisson(events * ratio)).sum()
            held += found.low <= to_come <= found.high
    if supported < repetitions / 4:
        return "–"
    return f"{held / supported:.1%}"


def errors(fits: Floats, xi: float) -> tuple[float, float]:
    """Median errors of estimates (xi, sigma) where sigma is 1: of xi, and of a level, relative.

    The level is that which is exceeded once in `HORIZON` times 1000 excesses.
    """
    log_m = float(np.log(HORIZON * 1000))
    truth = float(growth(log_m, xi))
    levels = np.array([sigma * float(growth(log_m, found)) for found, sigma in fits])
    of_xi = np.nanmedian(np.abs(fits[:, 0] - xi))
    return float(of_xi), float(np.nanmedian(np.abs(levels / truth - 1)))


def accuracy_table(repetitions: int) -> list[str]:
    """The table of errors beside other programs, in Markdown."""
    ways: dict[str, Way] = {"tailtap": by_tailtap, "scipy": by_scipy}
    if shutil.which("Rscript"):
        ways["evd"] = by_evd
    lines = ["| clusters | xi | " + " | ".join(ways) + " |", "|---:|---:|" + "---:|" * len(ways)]
    for size, xi in product((50, 500, 5000), (-0.3, 0.0, 0.5)):
        random = np.random.default_rng([size, round(1000 * xi) + 1000])
        samples = stats.genpareto.rvs(xi, size=(repetitions, size), random_state=random)
        cells = []
        for way in ways.values():
            fits = way(samples)
            failed = int(np.isnan(fits[:, 0]).sum())
            of_xi, of_level = errors(fits, xi)
            cells.append(f"{of_xi:.4f}, {of_level:.2%}" + (f" ({failed} failed)" if failed else ""))
        lines.append(f"| {size:,} | {xi:g} | " + " | ".join(cells) + " |")
    return lines


def page(repetitions: int, tables: Sequence[Sequence[str]]) -> str:
    """The page, of the tables of coverage, dependent series, forecasts and accuracy."""
    coverage, dependence, forecasts, accuracy = tables
    lines = [
        "# How far the tail model's intervals can be trusted",
        "",
        "For statisticians. Written by `make bench-model`.",
        "",
        "## Coverage of the 95 % intervals",
        "",
        f"Of {repetitions:,} samples from a generalised Pareto distribution, the coverage of xi,",
        f"and of the level that is exceeded once in {HORIZON} times the sample's length. *None*:",
        "samples with an estimate of xi <= -0.5 have no intervals and are left out.",
        "",
        *coverage,
        "",
        "## Dependent packets",
        "",
        f"{repetitions // 2:,} ARMAX series for each row: a packet's latency is the larger of its",
        "own and a fading part of the one before it, so that exceedances occur in clusters of",
        "1 / index packets on average. Coverage of the level that one cluster exceeds in",
        f"{HORIZON} times the sample's length, with declustering, over the 99.5th percentile.",
        "",
        *dependence,
        "",
        "## Forecasts without a model",
        "",
        "Late packets come in events, which are a Poisson process. Coverage of the 95 % interval",
        "for the number of packets to come in a horizon of 0.2, 1 and 100 times the run, where the",
        f"run supports one, of {repetitions:,} runs for each cell; a dash where fewer than a",
        "quarter do. If sizes have no variance (the last rows), one event decides too much alone.",
        "",
        *forecasts,
        "",
        "## Median errors, compared with scipy and R's evd",
        "",
        f"Of {repetitions // 5:,} samples for each row, the error of xi, and the relative error of",
        f"the level that is exceeded once in {HORIZON * 1000:,} excesses. All three use maximum",
        "likelihood: where they differ, a search stopped early or failed.",
        "",
        *accuracy,
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Writes the page."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    tables = (
        coverage_table(repetitions),
        dependent_table(repetitions // 2),
        forecast_table(repetitions),
        accuracy_table(repetitions // 5),
    )
    text = page(repetitions, tables)
    PAGE.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
