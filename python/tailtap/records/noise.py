"""What took cores that nobody asked for anything: ``noise.json``. Times are ns."""

from __future__ import annotations

from typing import Annotated

from tailtap.records.record import Count, Notice, Number, Record, Share, says

NOISE = "noise.json"
"""What `tailtap host noise` writes into a folder of results."""


class NoisyCpu(Record, kw_only=True):
    """One core, of which a loop read the clock."""

    cpu: Count
    elapsed_ns: Count
    reads: Count
    least_ns: Annotated[Count, says("The shortest time between two reads")]
    gaps: Annotated[Count, says("Times between two reads that were longer than asked")]
    gap_ns: Annotated[Count, says("The time in all of them")]
    unkept: Annotated[Count, says("Gaps of which nothing but their sum is known")]
    median_ns: Annotated[Count | None, says("Of the gaps, as are the next two")]
    p99_ns: Count | None
    worst_ns: Count | None


class NoiseCause(Record, kw_only=True):
    """What had the cores in their gaps."""

    cause: str
    detail: str
    gaps: Annotated[Count, says("Gaps of which it had the most")]
    ns: Annotated[Count, says("All its time in gaps")]
    worst_ns: Annotated[Count, says("Its most in one gap")]
    share: Annotated[Share, says("Of the time of all cores")]


class NoisePart(Record, kw_only=True):
    """A part of a gap."""

    cause: str
    detail: str
    ns: Count


class WorstGap(Record, kw_only=True):
    """One of the longest gaps."""

    cpu: Count
    start_ns: Annotated[Count, says("By the kernel's monotonic clock")]
    ns: Count
    parts: list[NoisePart]


class NoiseRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.noise/1"):
    """``noise.json``, and what ``tailtap host noise --json`` prints."""

    above_ns: Annotated[Count, says("Shorter times are no gaps")]
    boot_id: str
    kernel: str
    cpus: list[NoisyCpu]
    causes: list[NoiseCause]
    named: Annotated[Number | None, says("The share of the gaps' time that has a cause")]
    worst: list[WorstGap]
    warnings: list[Notice]
