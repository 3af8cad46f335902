"""Latencies without the time in which the machine was taken away: ``undisturbed.json``."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.evaluation import Latency
from tailtap.records.record import Count, Cpu, Record, Share, Texts, says

By = Literal["steal", "stop", "generator"]
"""What a pause was: the hypervisor took the core, a virtual machine was stopped, or the generator
was late and this kernel did not hold it."""


class PausesRow(Record, kw_only=True):
    """Pauses of one kind on one CPU."""

    by: By
    cpu: Annotated[Cpu | None, says("Null where that is not known")]
    pauses: Count
    pause_ns: Annotated[Count, says("How long all of them took")]
    longest_ns: Count


class Independence(Record, kw_only=True):
    """Whether pauses came whatever the device had to do."""

    p_value: Annotated[Share | None, says("Null where there are too few pauses to tell")]
    least_p: Annotated[Share, says("Pauses of a smaller p depend on the load")]
    shifts: Count
    seed: Count


class UndisturbedRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.undisturbed/1"):
    """``undisturbed/undisturbed.json``."""

    run: str
    shown: Annotated[bool, says("Whether its percentiles are those of the device")]
    reason: Annotated[str | None, says("Why they are not")]
    words: str
    known_by: Annotated[Texts, says("What tells of pauses; others are not known")]
    pauses: list[PausesRow]
    of_ns: Annotated[Count, says("From the first packet to the last")]
    left_out_ns: Annotated[Count, says("How much of that time is left out")]
    stretches: Count
    while_ns: Annotated[
        Count,
        says("By how much stretches begin before a pause, and end after it, at most"),
    ]
    packets: Annotated[Count, says("Packets that are left")]
    left_out: Annotated[Count, says("Packets that came in a stretch that is left out")]
    independence: Independence
    latency_ns: Annotated[Latency | None, says("Null where it is not shown")]
    plain_ns: Annotated[Latency, says("That of all packets")]
    of: Annotated[str | None, says("`made` of the evaluation of all packets")]
    made: Annotated[str | None, says("What the tables beside it say, too")] = None
