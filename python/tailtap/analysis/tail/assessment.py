"""One threshold, assessed: clusters over it, a GPD of their maxima, and whether to believe it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tailtap.analysis.tail import peaks
from tailtap.analysis.tail.gpd import (
    IRREGULAR,
    Excesses,
    Fit,
    Floats,
    Profile,
    goodness,
    growth,
    jensen_shannon,
    second_population,
)
from tailtap.analysis.tail.peaks import Bursts, Part, Threshold, decluster, with_run_length
from tailtap.base.units import exact_time, format_rate, format_share, format_time
from tailtap.records.record import Notice
from tailtap.records.tail import GoodnessRecord, LevelCheck, LevelRecord

#: With fewer clusters nothing is fitted; below `ENOUGH` the intervals' coverage is said.
FEWEST, ENOUGH = 30, 500
#: A fit that a true GPD would be worse than with this probability is refused.
LEVEL = 0.05
#: A clock's tick may be at most this share of sigma.
COARSE = 0.5
#: Fewer different latencies than this above a threshold are no continuous tail.
FEW_VALUES = 10
#: Lost packets may be at most this share of the exceedances: nobody knows how late they were.
LOSS = 0.1
#: A level of more than this many ns above its threshold (a year) is no latency.
LARGEST = 3.2e16
_TIED = "too many packets share a latency, as stamps are too coarse or latencies constant"
#: This many clusters beyond the upper end of a level that one is expected above: Poisson, 1.9 %.
SURPRISING = 4

#: The lowest coverage of 95 % intervals in simulations with as many clusters, over xi from -0.3 to
#: 0.5, of xi and of a return level (`benches/coverage.py`, docs/explanation/model.md).
COVERAGE = ((30, 0.935), (50, 0.928), (100, 0.929), (200, 0.930))

#: Reasons for which a threshold gives no number.
REFUSALS = frozenset(
    ("below-stored", "no-tail", "too-few", "coarse-stamps", "loss", "no-maximum", "mixture",
     "misfit", "unstable", "not-stationary", "prediction-failed")
)  # fmt: skip


@dataclass(frozen=True)
class Assessment:
    """Everything about one threshold; latencies in ns, None where there is no fit."""

    threshold: Threshold
    #: Packets that were fitted, and the threshold as a latency.
    fitted: int
    latency: float | None = None
    exceedances: int = 0
    bursts: Bursts | None = None
    #: Ascending excesses of the clusters' maxima, their fit and its likelihood.
    excesses: Floats | None = None
    fit: Fit | None = None
    profile: Profile | None = None
    xi_interval: tuple[float, float] | None = None
    goodness: GoodnessRecord | None = None
    divergence: float | None = None
    check: LevelCheck | None = None
    """Of the rest of the run, in which one cluster is expected above the level."""
    flags: tuple[Notice, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether a diagnostic failed: then nothing is predicted from this threshold."""
        return any(flag.code in REFUSALS for flag in self.flags)

    @property
    def limit(self) -> float | None:
        """The largest possible latency by the model; None when it has none, or without a fit."""
        if self.fit is None or self.latency is None or self.fit.limit is None:
            return None
        return self.latency + self.fit.limit

    def with_flag(self, code: str, message: str) -> Assessment:
        """The same with another flag."""
        return replace(self, flags=(*self.flags, Notice(code, message)))

    def level(self, packets: float) -> LevelRecord | None:
        """What one cluster exceeds in so many packets, on average.

        None without a fit, where the level would lie below the threshold, or beyond a year.
        """
        if self.fit is None or self.bursts is None or self.latency is None:
            return None
        expected = packets * self.bursts.count / self.fitted
        if expected <= 1:
            return None
        log_m = float(np.log(expected))
        with np.errstate(over="ignore"):
            excess = self.fit.sigma * float(growth(log_m, self.fit.xi))
        if not excess < LARGEST:
            return None
        low = high = None
        if self.profile is not None:
            left, right = self.profile.level_interval(excess, log_m)
            low = float(self.latency + left)
            high = None if right is None else float(self.latency + right)
        return LevelRecord(
            packets=float(packets), value=float(self.latency + excess), low=low, high=high
        )


def coverage(bursts: int) -> float:
    """The lowest coverage of 95 % intervals from `bursts` clusters, or the next fewer simulated."""
    return [share for n, share in COVERAGE if n <= bursts or n == COVERAGE[0][0]][-1]


def assess(
    fitted: Part, threshold: Threshold, *, tick: float, loss: float, tied: bool = False
) -> Assessment:
    """Fit the clusters of a run's `fitted` part above a threshold, and look for reasons to doubt.

    `tick` is that of the clocks (ns), `loss` the share of packets that did not arrive; `tied` says
    that so many packets share a latency that they could not be stored.
    """
    found = Assessment(threshold, fitted.packets)
    latency = peaks.latency(fitted, threshold)
    over = None if latency is None else fitted.over(latency)
    if latency is None or over is None:
        if tied:
            return found.with_flag("coarse-stamps", _TIED)
        return found.with_flag(
            "below-stored",
            "it lies below the largest latencies, which alone are stored: most of these come after "
            "the fitted part, or the threshold is too low",
        )
    count = int(over.sum())
    found = replace(found, latency=latency, exceedances=count)
    if count > peaks.MOST * fitted.packets:
        return found.with_flag(
            "no-tail",
            f"{format_share(count / fitted.packets)} of the packets exceed it: that is no tail",
        )
    if loss * fitted.packets > LOSS * count:
        return found.with_flag(
            "loss",
            f"{format_share(loss)} of the packets were lost, more than a tenth of the share over "
            "the threshold, and their latency is unknown: measure where less is lost",
        )
    bursts = decluster(fitted.position[over])
    found = replace(found, bursts=bursts)
    values = int(np.unique(np.rint(fitted.latency[over] / tick)).size)
    if bursts.count >= FEWEST and values < FEW_VALUES:
        return found.with_flag(
            "coarse-stamps",
            f"exceedances take fewer than {FEW_VALUES} different values: {_TIED}",
        )
    if bursts.count < FEWEST:
        return found.with_flag(
            "too-few",
            f"fewer clusters exceed it than the {FEWEST} that a model needs: measure longer",
        )
    excesses = Excesses(bursts.maxima(fitted.latency[over]) - latency)
    return _diagnose(replace(found, excesses=excesses.values), excesses, tick)


def _diagnose(found: Assessment, excesses: Excesses, tick: float) -> Assessment:
    fit = excesses.fit()
    found = replace(found, fit=fit, divergence=jensen_shannon(excesses.values, fit))
    if not fit.interior:
        return found.with_flag("no-maximum", "the likelihood has no maximum above xi = -1")
    found = replace(found, goodness=goodness(excesses.values, fit))
    if tick > COARSE * fit.sigma:
        found = found.with_flag(
            "coarse-stamps",
            f"clocks tick every {tick:g} ns, the tail's scale is {fit.sigma:.3g} ns: too coarse",
        )
    if fit.regular:
        profile = excesses.profile(fit)
        found = replace(found, profile=profile, xi_interval=profile.xi())
    else:
        found = found.with_flag(
            "irregular", f"xi = {fit.xi:.2f} is at most {IRREGULAR}: likelihood gives no intervals"
        )
    if fit.xi >= 1:
        found = found.with_flag(
            "no-mean", f"xi = {fit.xi:.2f} is at least 1: such a tail has no mean"
        )
    mixture = second_population(excesses.values)
    if mixture is not None:
        base = found.latency or 0.0
        low, high = (format_time(base + x) for x in (mixture.low, mixture.high))
        found = found.with_flag(
            "mixture",
            f"two populations: few clusters between {low} and {high}, {mixture.above} beyond; "
            "a threshold above the first may do",
        )
    assert found.goodness is not None
    if found.goodness.p < LEVEL:
        found = found.with_flag(
            "misfit",
            f"no generalised Pareto distribution: Anderson-Darling {found.goodness.statistic:.2f}, "
            f"p = {found.goodness.p:.3f}",
        )
    if excesses.n < ENOUGH:
        found = found.with_flag(
            "few-bursts",
            f"{excesses.n} clusters are few: 95 % intervals held in as few as "
            f"{format_share(coverage(excesses.n))} of simulations (docs/explanation/model.md)",
        )
    return found


def check(found: Assessment, rest: Part) -> Assessment:
    """Hold what the model says of a time as long as the `rest` of the run against that rest."""
    level = found.level(rest.packets)
    if level is None or found.bursts is None:
        return found

    run_length = found.bursts.run_length

    def count(limit: float) -> tuple[int, int]:
        above = rest.position[rest.latency > limit]
        return int(above.size), with_run_length(above, run_length).count

    packets, bursts = count(level.value)
    # Without intervals the limit is all that can be held against the rest.
    end = found.limit if level.low is None else level.high
    beyond = None if end is None else count(end)[1]
    held = LevelCheck(
        level=level,
        packets_above=packets,
        bursts_above=bursts,
        bursts_above_interval=beyond,
    )
    result = replace(found, check=held)
    if level.low is None and beyond:
        return result.with_flag(
            "prediction-failed",
            f"{beyond} clusters in the rest of the run exceed the model's limit",
        )
    if level.low is not None and beyond is not None and beyond >= SURPRISING:
        return result.with_flag(
            "prediction-failed",
            f"{beyond} clusters in the rest of the run exceed the upper end of the level's "
            "interval, and one is expected above the level",
        )
    return result


_UNITS = (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0))


def level_words(horizon_ns: int, rate: float, level: LevelRecord | None) -> str:
    """``once in 24 h at 10 kpkt/s: 34.0 us (31.9 to 40.2)``, or that there is no number."""
    return f"once in {exact_time(horizon_ns)} at {format_rate(rate)}: " + (
        "no number" if level is None else level_text(level)
    )


def level_text(level: LevelRecord) -> str:
    """A level and its 95 % interval in one unit: ``34.0 us (31.9 to 40.2)``."""
    unit, factor = next(
        ((unit, factor) for unit, factor in _UNITS if level.value >= factor), _UNITS[-1]
    )
    # Three digits, and a tenth of the interval is still seen.
    width = (level.high or level.value) - (level.low or level.value)
    digits = max(2 - _magnitude(level.value / factor), 1 - _magnitude(width / factor))
    places = min(max(digits, 0), 3 if factor > 1 else 0)

    def number(ns: float) -> str:
        return f"{ns / factor:,.{places}f}"

    if level.low is None:
        interval = "no interval"
    elif level.high is None:
        interval = f"{number(level.low)} or more"
    else:
        interval = f"{number(level.low)} to {number(level.high)}"
    return f"{number(level.value)} {unit} ({interval})"


def _magnitude(value: float) -> int:
    return math.floor(math.log10(value)) if value > 0 else 0
