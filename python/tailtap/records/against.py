"""An experiment measured against another one, in pairs of runs: ``against.json``. Times are ns."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.record import Anything, Count, Number, Record, Share, Texts, Width, says

Against = Literal["better", "no worse", "worse", "not shown"]


class AgainstRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.against/1"):
    """``against.json``, which ``tailtap run --against --json`` prints, too."""

    name: str
    base: Annotated[str, says("The name of the other experiment")]
    status: Literal["running", "done", "interrupted", "failed"]
    error: str | None
    p: Annotated[Share, says("The percentile that is compared")]
    margin: Annotated[Number, says("More than this is worse: 0.05 is 5 %")]
    error_rate: Annotated[Share, says("The probability of a wrong answer but `worse`")]
    error_rate_worse: Annotated[Share, says("The probability of a wrong `worse`")]
    within_ns: Width
    parameters: Anything
    base_parameters: Anything
    started: str
    finished: str | None
    answer: Against
    pairs: Annotated[list[list[Width]], says("The percentile, and that of the base")]
    spoiled: Annotated[Count, says("Pairs of which a run failed or is invalid")]
    ratio: Annotated[Number | None, says("The median of the pairs' ratios to the base")]
    low: Annotated[Number | None, says("The ratio is above it, at the error rate of `worse`")]
    high: Number | None
    runs: Texts
