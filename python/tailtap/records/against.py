"""An experiment measured against another one, in pairs of runs: ``against.json``. Times are ns."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailtap.records.record import Anything, Count, Number, Record, Share, Texts, Width

Against = Literal["better", "no worse", "worse", "not shown"]


class AgainstRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.against/1"):
    """``against.json``, which ``tailtap run --against --json`` prints, too."""

    name: str
    base: Annotated[str, Meta(description="The name of the other experiment")]
    status: Literal["running", "done", "interrupted", "failed"]
    error: str | None
    p: Annotated[Share, Meta(description="The percentile that is compared")]
    margin: Annotated[Number, Meta(description="More than this is worse: 0.05 is 5 %")]
    error_rate: Annotated[Share, Meta(description="The probability of a wrong answer but `worse`")]
    error_rate_worse: Annotated[Share, Meta(description="The probability of a wrong `worse`")]
    within_ns: Width
    parameters: Anything
    base_parameters: Anything
    started: str
    finished: str | None
    answer: Against
    pairs: Annotated[list[list[Width]], Meta(description="The percentile, and that of the base")]
    spoiled: Annotated[Count, Meta(description="Pairs of which a run failed or is invalid")]
    ratio: Annotated[Number | None, Meta(description="The median of the pairs' ratios to the base")]
    low: Annotated[
        Number | None, Meta(description="The ratio is above it, at the error rate of `worse`")
    ]
    high: Number | None
    runs: Texts
