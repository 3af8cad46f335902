"""The tail model of a run: all thresholds, the one to use, its check, and what to expect.

Beside it the model of "Packet processing in virtualized environments", section 6, as published. The
first part of a run is fitted, the rest checked. Each threshold is a percentile of the fitted part;
all its exceedances, as they are, are fitted by maximum likelihood; the threshold with the smallest
Jensen-Shannon divergence is taken. The return level is that which is exceeded once in as many
packets as are checked. It has no declustering and no intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tailtap.analysis.runs.groups import grouped
from tailtap.analysis.runs.tail import SECOND_NS, StoredTail
from tailtap.analysis.tail import blocks as series
from tailtap.analysis.tail import peaks
from tailtap.analysis.tail.assessment import REFUSALS, Assessment, assess, check, level_words
from tailtap.analysis.tail.blocks import CrossCheck
from tailtap.analysis.tail.forecast import forecast
from tailtap.analysis.tail.gpd import Excesses, growth, jensen_shannon
from tailtap.analysis.tail.peaks import (
    PERCENTILES,
    Part,
    Threshold,
    decluster,
    split,
    spread,
    tick_of,
    unevenness,
    with_run_length,
)
from tailtap.base.errors import InputError
from tailtap.base.units import exact_time, format_count, format_share, format_time
from tailtap.records.record import Notice, unfilled
from tailtap.records.tail import (
    BlockMaxima,
    ForecastRecord,
    HorizonLevel,
    LevelRecord,
    ModelledPackets,
    PapersModel,
    PapersThreshold,
    Shape,
    StationarityRow,
    TailRecord,
    ThresholdRecord,
)


def fit_papers(fitted: Part, rest: Part, threshold: Threshold) -> PapersThreshold:
    """The published method at one threshold.

    What cannot be had is None: everything from `xi` on without at least two different exceedances,
    `limit_ns` of an unbounded tail, levels where nothing is checked.
    """
    found = unfilled(
        PapersThreshold, threshold=threshold.text, percentile=threshold.percentile, exceedances=0
    )
    latency = peaks.latency(fitted, threshold)
    over = None if latency is None else fitted.over(latency)
    if latency is None or over is None:
        return found
    found.latency_ns, found.exceedances = latency, (count := int(over.sum()))
    try:
        excesses = Excesses(fitted.latency[over] - latency)
    except ValueError:
        return found
    gpd = excesses.fit()
    found.xi, found.sigma_ns, found.bounded = gpd.xi, gpd.sigma, gpd.xi < 0
    found.limit_ns = latency + gpd.limit if gpd.limit is not None else None
    found.jensen_shannon = jensen_shannon(excesses.values, gpd)
    # The level lies above the threshold where more than one exceedance is expected.
    if rest.packets * count > fitted.packets:
        log_m = float(np.log(rest.packets * count / fitted.packets))
        with np.errstate(over="ignore"):
            expected = latency + gpd.sigma * float(growth(log_m, gpd.xi))
        beyond = rest.position[rest.latency > expected]
        found.packets_above = int(beyond.size)
        found.bursts_above = with_run_length(
            beyond, decluster(fitted.position[over]).run_length
        ).count
        found.level_ns = expected if np.isfinite(expected) else None
    return found


HOUR_NS = 3600 * SECOND_NS
#: Warnings that are of the measurement, whatever the method.
OF_RUN = frozenset(
    (
        "loss",
        "maybe-not-stationary",
        "stationarity-unknown",
        "coarse-clock",
        "two-clocks",
        "stamp-resolution",
    )
)
#: A horizon this many times longer than what was fitted is said to be far.
_FAR = 1000


@dataclass(frozen=True)
class Options:
    """How runs are modelled."""

    #: The share of a run's packets that is fitted; the rest checks.
    fit: float = 0.2
    thresholds: tuple[Threshold, ...] = tuple(Threshold(p) for p in PERCENTILES)
    #: The times that return levels are wanted for, in ns.
    horizons: tuple[int, ...] = (HOUR_NS, 24 * HOUR_NS)

    def __post_init__(self) -> None:
        """Raises `InputError` where the options make no sense."""
        if not 0 < self.fit <= 1:
            raise InputError("--fit is a share of the run above 0 % and at most 100 %")
        if not self.thresholds or any(horizon <= 0 for horizon in self.horizons):
            raise InputError("give at least one --threshold, and every --horizon above zero")


@dataclass(frozen=True)
class TailModel:
    """The tail model of one run, and the published method beside it."""

    tail: StoredTail
    options: Options
    #: The tick of the clocks that took the stamps, in ns.
    tick: float
    fitted: Part
    rest: Part
    stationarity: tuple[StationarityRow, ...]
    assessments: tuple[Assessment, ...]
    #: The lowest threshold whose diagnostics hold; None when there is none.
    chosen: Assessment | None
    levels: tuple[HorizonLevel, ...]
    block_maxima: CrossCheck | None
    papers: tuple[PapersThreshold, ...]
    papers_chosen: PapersThreshold | None
    warnings: tuple[Notice, ...]
    #: What each horizon brings, whether a model holds or not; none where the run has no length.
    forecasts: tuple[ForecastRecord, ...] = ()


def analyse(tail: StoredTail, options: Options | None = None) -> TailModel:
    """Model the tail of a run from what its evaluation keeps."""
    options = options or Options()
    tick = tick_of(tail.latency_ns)
    fitted, rest = split(tail, options.fit, spread(tail.latency_ns, tick))
    measured = split(tail, options.fit, tail.latency_ns.astype(np.float64))
    papers = tuple(fit_papers(*measured, threshold) for threshold in options.thresholds)
    tests = tuple(series.tests(tail.blocks, fitted.packets))
    assessments = [
        assess(fitted, threshold, tick=tick, loss=tail.loss, tied=tail.tied)
        for threshold in options.thresholds
    ]
    if any(test.unit_root for test in tests):
        drifts = "the fitted part drifts: both ADF and KPSS say that it is not stationary"
        assessments = [found.with_flag("not-stationary", drifts) for found in assessments]
    assessments = [check(found, rest) for found in _compare(assessments)]
    # The rest of the run must have no say in the choice: it is there to check it.
    before = REFUSALS - {"prediction-failed"}
    chosen = min(
        (
            found
            for found in assessments
            if found.fit and before.isdisjoint(flag.code for flag in found.flags)
        ),
        key=lambda found: found.latency or 0.0,
        default=None,
    )
    usable = chosen if chosen is not None and not chosen.refused else None
    levels = []
    for horizon_ns in options.horizons:
        level = usable.level(tail.rate * horizon_ns / SECOND_NS) if usable else None
        if level is not None:
            level = level.widened(tail.within.ns)
        words = level_words(horizon_ns, tail.rate, level)
        levels.append(HorizonLevel(horizon_ns=horizon_ns, words=words, level=level))
    horizon = float(rest.packets or fitted.packets)
    cross = series.cross_check(tail.blocks, fitted.packets, horizon)
    papers_chosen = min(
        (found for found in papers if found.jensen_shannon is not None),
        key=lambda found: found.jensen_shannon or 0.0,
        default=None,
    )
    model = TailModel(
        tail, options, tick, fitted, rest, tests, tuple(assessments), chosen, tuple(levels), cross,
        papers, papers_chosen, (), _forecasts(tail, assessments, options.horizons),
    )  # fmt: skip
    return replace(model, warnings=tuple(_warnings(model)))


def _forecasts(
    tail: StoredTail, assessments: Sequence[Assessment], horizons: Sequence[int]
) -> tuple[ForecastRecord, ...]:
    """What each horizon brings over the thresholds that the run's stored latencies reach."""
    levels = [round(found.latency) for found in assessments if found.latency is not None]
    whole = tuple(level for level in levels if level >= tail.floor_ns)
    found = (forecast(tail, whole, horizon) for horizon in horizons)
    return tuple(one for one in found if one is not None)


def _compare(assessments: Sequence[Assessment]) -> list[Assessment]:
    """Flags thresholds whose xi contradicts that of a higher one: the tail begins higher up."""
    result: list[Assessment] = []
    for found in assessments:
        higher = [
            other
            for other in assessments
            if other.xi_interval
            and (other.latency or 0) > (found.latency or 0)
            and not other.refused
        ]
        against = [
            f"its xi contradicts that over {other.threshold.text}"
            for other in higher
            if found.xi_interval
            and other.xi_interval
            and not _overlap(found.xi_interval, other.xi_interval)
        ]
        result.append(found.with_flag("unstable", against[0]) if against else found)
    return result


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _warnings(model: TailModel) -> list[Notice]:
    tail, chosen = model.tail, model.chosen
    found = []
    if chosen is None:
        found.append(Notice("no-model", _why_none(model.assessments)))
    else:
        found.extend(chosen.flags)
    if tail.lost:
        found.append(
            Notice(
                "loss",
                f"the run lost {format_count(tail.lost, 'packet')} ({format_share(tail.loss)}): "
                "the model is of those that arrived",
            )
        )
    found.extend(
        Notice(
            "maybe-not-stationary",
            f"ADF and KPSS disagree on the {test.series} (p = {test.adf_p:.2g} and "
            f"{test.kpss_p:.2g})",
        )
        for test in model.stationarity
        if not test.stationary and not test.unit_root
    )
    if not model.stationarity:
        found.append(
            Notice(
                "stationarity-unknown",
                "the fitted part is too short or too constant for ADF and KPSS",
            )
        )
    for code, how, off_ns in (
        ("two-clocks", "the captures are of two clocks", tail.within.clocks_ns),
        ("stamp-resolution", "the stamps come in steps", tail.within.resolution_ns),
    ):
        if off_ns:
            found.append(
                Notice(
                    code,
                    f"{how}: latencies may be off by {format_time(off_ns)} to either side, which "
                    "the intervals of levels include",
                )
            )
    if model.tick > 1:
        found.append(
            Notice(
                "coarse-clock",
                f"stamps tick every {model.tick:g} ns: ties were spread within a tick",
            )
        )
    if chosen is not None:
        found.extend(_about(model, chosen))
    return found


def _about(model: TailModel, chosen: Assessment) -> list[Notice]:
    found = []
    if chosen.bursts is not None:
        over = model.fitted.position[model.fitted.latency > (chosen.latency or 0)]
        counts = unevenness(over[chosen.bursts.first], model.fitted.packets)
        if counts is not None:
            found.append(
                Notice(
                    "uneven",
                    f"clusters come unevenly over the fitted part (from {counts.min()} to "
                    f"{counts.max()} in each tenth of it): a longer run may look different",
                )
            )
    cross, same = model.block_maxima, None
    if cross is not None and cross.interval is not None:
        same = chosen.level(cross.packets)
    if (
        cross is not None
        and cross.interval is not None
        and same is not None
        and same.low is not None
        and not _overlap((same.low, same.high or np.inf), cross.interval)
    ):
        found.append(
            Notice(
                "block-maxima-disagree",
                f"block maxima put the level of {cross.packets:,.0f} packets at "
                f"{format_time(cross.level)}, peaks over threshold at "
                f"{format_time(same.value)}, outside each other's intervals",
            )
        )
    for entry in model.levels if not chosen.refused else ():
        factor = entry.horizon_ns * model.tail.rate / SECOND_NS / model.fitted.packets
        text = exact_time(entry.horizon_ns)
        if entry.level is None and factor < 1:
            message = (
                f"no cluster over the threshold is expected in {text}: look at the percentiles"
            )
            found.append(Notice("near", message))
        elif entry.level is None:
            message = f"the level of {text} lies beyond any latency: the tail is too heavy for it"
            found.append(Notice("endless", message))
        elif factor > _FAR:
            message = (
                f"{text} is {factor:,.0f} times as long as the fitted part: no interval covers "
                "causes too rare to be seen in it"
            )
            found.append(Notice("far", message))
    return found


def _why_none(assessments: Sequence[Assessment]) -> str:
    reasons = grouped(
        assessments,
        lambda one: next(flag.message for flag in one.flags if flag.code in REFUSALS),
    )
    told = "; ".join(
        f"over {', '.join(one.threshold.text for one in over)}: {message}"
        for message, over in reasons.items()
    )
    return f"no threshold gives a model: {told}"


def record(model: TailModel) -> TailRecord:
    """What `tail.json` says. Latencies are in ns; what there is not, is None."""
    tail = model.tail
    return TailRecord(
        run=tail.name,
        packets=ModelledPackets(
            matched=tail.packets,
            lost=tail.lost,
            fitted=model.fitted.packets,
            checked=model.rest.packets,
        ),
        rate=tail.rate,
        tick_ns=model.tick,
        within_ns=tail.within.ns,
        resolution_ns=tail.within.resolution_ns,
        fit=model.options.fit,
        stationarity=list(model.stationarity),
        thresholds=[_assessment(found) for found in model.assessments],
        chosen=None if model.chosen is None else model.chosen.threshold.text,
        levels=list(model.levels),
        block_maxima=_block_maxima(model),
        papers=PapersModel(
            thresholds=list(model.papers),
            chosen=None if model.papers_chosen is None else model.papers_chosen.threshold,
        ),
        forecasts=list(model.forecasts),
        warnings=list(model.warnings),
    )


def _assessment(found: Assessment) -> ThresholdRecord:
    # What a refused threshold predicts is no answer; why it is refused is in its flags.
    fit, bursts = found.fit, found.bursts
    low, high = found.xi_interval or (None, None)
    return ThresholdRecord(
        threshold=found.threshold.text,
        percentile=found.threshold.percentile,
        latency_ns=found.latency,
        exceedances=found.exceedances,
        bursts=bursts.count if bursts else None,
        extremal_index=bursts.extremal_index if bursts else None,
        run_length=bursts.run_length if bursts else None,
        xi=None if fit is None else Shape(value=fit.xi, low=low, high=high),
        sigma_ns=fit.sigma if fit else None,
        limit_ns=None if found.refused else found.limit,
        anderson_darling=found.goodness,
        jensen_shannon=found.divergence,
        check=None if found.refused else found.check,
        refused=found.refused,
        flags=list(found.flags),
    )


def _block_maxima(model: TailModel) -> BlockMaxima | None:
    """The cross-check of the model; without one that holds, it has no level of its own."""
    cross = model.block_maxima
    if cross is None:
        return None
    usable = model.chosen is not None and not model.chosen.refused
    low, high = cross.interval or (None, None)
    level = LevelRecord(packets=cross.packets, value=cross.level, low=low, high=high)
    return BlockMaxima(
        width_ns=cross.width_ns,
        blocks=cross.gev.n,
        mu_ns=cross.gev.mu,
        sigma_ns=cross.gev.sigma,
        xi=cross.gev.xi,
        level=level if usable else None,
    )
