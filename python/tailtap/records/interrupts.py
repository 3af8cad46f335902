"""Counters of interrupts held against late packets: what ``tailtap interrupts --json`` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.record import Count, Notice, Number, Record, Share, Whole, says

Answer = Literal["associated", "none", "cannot-tell"]
"""Whether any counter rises where packets are late."""
OffsetSource = Literal["clock", "clocks", "given", "suggested"]
"""How the offset of the samples' clock is known."""


class Took(Record, kw_only=True):
    """How long a sample took, in ns."""

    median: Count
    max: Count


class SamplesRow(Record, kw_only=True):
    """The samples of a run."""

    number: Count
    period_ns: Count
    windows: Count
    took_ns: Took | None


class OffsetRow(Record, kw_only=True):
    """What to add to a sample's time for the captures'."""

    ns: Whole | None
    source: OffsetSource
    best_ns: Whole | None
    low_ns: Whole | None
    high_ns: Whole | None
    p_value: Share | None
    searched_ns: list[Whole] | None


class LateRow(Record, kw_only=True):
    """The late packets."""

    packets: Count
    threshold_ns: Whole


class CounterRow(Record, kw_only=True):
    """A counter that rose."""

    name: str
    increments: Count
    late_per_s: Annotated[Number, says("Increments a second where packets are late")]
    elsewhere_per_s: Number
    p_value: Annotated[Share | None, says("Corrected for the number of counters")]
    associated: bool


class SamplerRow(Record, kw_only=True):
    """Whether packets were late while the sampler sampled."""

    packets: Count
    expected: Number
    p_value: Share
    delays: bool


class InterruptsRun(Record, kw_only=True):
    """``interrupts.json`` of a run."""

    run: str
    answer: Answer
    reason: str | None
    samples: SamplesRow
    offset: OffsetRow
    late: LateRow
    counters: list[CounterRow]
    sampler: SamplerRow | None


class InterruptsRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.interrupts/1"):
    """``tailtap interrupts --json``."""

    runs: list[InterruptsRun]
    warnings: list[Notice]
