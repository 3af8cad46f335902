"""Tail models: ``tail.json``, and what ``tailtap model --json`` prints. Latencies are ns."""

from __future__ import annotations

from typing import Annotated

from tailtap.records.record import Count, Notice, Number, Record, Share, Width, says


class ModelledPackets(Record, kw_only=True):
    """The packets of a run, and what a tail model did with them."""

    matched: Count
    lost: Count
    fitted: Annotated[Count, says("The first ones, which the model is fitted to")]
    checked: Annotated[Count, says("The rest, which the model is held against")]


class StationarityRow(Record, kw_only=True):
    """Two tests of whether a series keeps its mean."""

    series: str
    length: Count
    adf: Number
    adf_p: Share
    kpss: Number
    kpss_p: Annotated[Share, says("From 0.01 to 0.1, where its table ends")]
    stationary: Annotated[bool, says("Both tests say that it is stationary")]
    unit_root: Annotated[bool, says("Both tests say that it is not stationary")]


class Shape(Record, kw_only=True):
    """A parameter of a tail with its 95 % interval."""

    value: Number
    low: Number | None
    high: Number | None


class LevelRecord(Shape, kw_only=True):
    """What is exceeded once in so many packets, with its 95 % interval."""

    packets: Number
    high: Annotated[Number | None, says("Null where nothing bounds the level from above")]

    def widened(self, ns: int) -> LevelRecord:
        """The level where every latency may be off by so much to either side.

        Latencies that are off by at most this are exceeded no more often than those with it added,
        and no less often than those with it taken off, and so are the levels of both.
        """
        low = None if self.low is None else self.low - ns
        high = None if self.high is None else self.high + ns
        return LevelRecord(packets=self.packets, value=self.value, low=low, high=high)


class GoodnessRecord(Record, kw_only=True):
    """Anderson-Darling's statistic, and the probability of a larger one if the model holds."""

    statistic: Number
    p: Share


class LevelCheck(Record, kw_only=True):
    """A level held against the packets that were not fitted; one cluster is expected above it."""

    level: LevelRecord
    packets_above: Count
    bursts_above: Count
    bursts_above_interval: Annotated[
        Count | None, says("Clusters above the upper end of the level's interval")
    ]


class FittedAbove(Record, kw_only=True):
    """A threshold, and what both methods say of the fit above it."""

    threshold: str
    percentile: Number | None
    latency_ns: Number | None
    exceedances: Count
    sigma_ns: Number | None
    limit_ns: Annotated[
        Number | None, says("What no packet exceeds; null of a tail without an end")
    ]
    jensen_shannon: Number | None


class ThresholdRecord(FittedAbove, kw_only=True):
    """One threshold, and the fit above it."""

    bursts: Count | None
    extremal_index: Number | None
    run_length: Count | None
    xi: Shape | None
    anderson_darling: GoodnessRecord | None
    check: LevelCheck | None
    refused: Annotated[bool, says("A diagnostic failed: nothing is predicted from it")]
    flags: list[Notice]


class HorizonLevel(Record, kw_only=True):
    """What is exceeded once in a time."""

    horizon_ns: Width
    words: str
    level: LevelRecord | None


class ExpectedRecord(Record, kw_only=True):
    """A number to expect in a horizon, with its 95 % prediction interval."""

    value: Number
    low: Number
    high: Number
    supported: Annotated[bool, says("The run has events enough, and they come evenly over it")]


class ForecastLevel(Record, kw_only=True):
    """What lay over a latency in the run, and what to expect over it."""

    level_ns: Count
    packets: Count
    events: Annotated[Count, says("Clusters of packets over the level")]
    uneven: Annotated[bool, says("Events come too unevenly for an interval")]
    expected_packets: ExpectedRecord
    expected_events: ExpectedRecord


class ForecastRecord(Record, kw_only=True):
    """What to expect in a horizon, whatever latencies are distributed as."""

    horizon_ns: Width
    run_ns: Width
    exceeded: Annotated[Share, says("The probability that the run's largest latency is exceeded")]
    unseen: Annotated[
        Count,
        says("At most so many events that the run did not show, with 95 %"),
    ]
    needed_ns: Annotated[
        Number,
        says("How long a run must last that the horizon stays below, with 95 %"),
    ]
    levels: list[ForecastLevel]


class BlockMaxima(Record, kw_only=True):
    """The cross-check by maxima of blocks."""

    width_ns: Width
    blocks: Count
    mu_ns: Number
    sigma_ns: Number
    xi: Number
    level: LevelRecord | None


class PapersThreshold(FittedAbove, kw_only=True):
    """The published method at one threshold."""

    xi: Number | None
    level_ns: Number | None
    bounded: bool | None
    packets_above: Count | None
    bursts_above: Count | None


class PapersModel(Record, kw_only=True):
    """The published method."""

    thresholds: list[PapersThreshold]
    chosen: str | None


class TailRecord(
    Record, kw_only=True, omit_defaults=True, tag_field="schema", tag="tailtap.tail/1"
):
    """``tail.json``."""

    run: str
    packets: ModelledPackets
    rate: Number
    tick_ns: Number
    within_ns: Annotated[Count, says("What latencies may be off by, to either side")] = 0
    resolution_ns: Annotated[Count, says("How much of it is the stamps' step")] = 0
    fit: Share
    stationarity: list[StationarityRow]
    thresholds: list[ThresholdRecord]
    chosen: Annotated[str | None, says("The threshold whose levels are told")]
    levels: list[HorizonLevel]
    block_maxima: BlockMaxima | None
    papers: PapersModel
    forecasts: list[ForecastRecord] = []
    warnings: list[Notice]


class ModelledRun(TailRecord, kw_only=True):
    """A tail model, and whether its run is valid."""

    valid: bool | None


class RepeatsRow(Record, kw_only=True):
    """Runs that differ in nothing but the repeat."""

    label: str
    runs: Count
    models: Count
    bursts: Annotated[Number | None, says("The mean of clusters above the level; 1 is expected")]
    bounded: Annotated[Share | None, says("The share of models with a limit")]
    papers_bursts: Number | None
    papers_bounded: Share | None


class ModelRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.model/1"):
    """``tailtap model --json``."""

    method: str
    runs: list[ModelledRun]
    summary: list[RepeatsRow]
    warnings: list[Notice]
