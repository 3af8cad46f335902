"""A tail model as the record of `tail.json`."""

from __future__ import annotations

from tailtap.analysis.tail.analysis import TailModel
from tailtap.analysis.tail.assessment import Assessment, Level, level_words
from tailtap.analysis.tail.papers import PapersFit
from tailtap.records.record import made
from tailtap.records.tail import (
    BlockMaxima,
    HorizonLevel,
    LevelCheck,
    LevelRecord,
    ModelledPackets,
    PapersModel,
    PapersThreshold,
    Shape,
    StationarityRow,
    TailRecord,
    ThresholdRecord,
)


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
        within_ns=tail.within_ns,
        resolution_ns=tail.resolution_ns,
        fit=model.options.fit,
        stationarity=[made(test, StationarityRow) for test in model.stationarity],
        thresholds=[_assessment(found) for found in model.assessments],
        chosen=None if model.chosen is None else model.chosen.threshold.text,
        levels=[
            HorizonLevel(
                horizon_ns=entry.horizon_ns,
                words=level_words(entry.horizon_ns, tail.rate, entry.level),
                level=_level(entry.level),
            )
            for entry in model.levels
        ],
        block_maxima=_block_maxima(model),
        papers=PapersModel(
            thresholds=[_papers(found) for found in model.papers],
            chosen=None if model.papers_chosen is None else model.papers_chosen.threshold.text,
        ),
        forecasts=list(model.forecasts),
        warnings=list(model.warnings),
    )


def _level(level: Level | None) -> LevelRecord | None:
    return None if level is None else made(level, LevelRecord)


def _assessment(found: Assessment) -> ThresholdRecord:
    # What a refused threshold predicts is no answer; why it is refused is in its flags.
    check = None if found.refused else found.check
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
        check=None
        if check is None
        else LevelCheck(
            level=made(check.level, LevelRecord),
            packets_above=check.packets,
            bursts_above=check.bursts,
            bursts_above_interval=check.beyond,
        ),
        refused=found.refused,
        flags=list(found.flags),
    )


def _papers(found: PapersFit) -> PapersThreshold:
    return PapersThreshold(
        threshold=found.threshold.text,
        percentile=found.threshold.percentile,
        latency_ns=found.latency,
        exceedances=found.exceedances,
        xi=found.xi,
        sigma_ns=found.sigma,
        jensen_shannon=found.divergence,
        level_ns=found.level,
        limit_ns=found.limit,
        bounded=found.bounded,
        packets_above=found.above,
        bursts_above=found.bursts,
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
