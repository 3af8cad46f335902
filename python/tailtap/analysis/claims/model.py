"""A claim as an experiment file states it: a sentence, and the test behind it.

There are two forms. One requires something of runs, and the verdict answers; the other holds runs
against others by a percentile, and a rank test over the repeats answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from tailtap.analysis.verdict.requirement import parse_percentile, parse_requirements
from tailtap.base.document import Misfit
from tailtap.base.schema import Matching, Strict, Written, as_value_error, name_words, read_by
from tailtap.base.units import parse_share

Relation = Literal["better", "worse", "no worse", "different", "no different"]
"""How latencies compare: lower, higher, no higher, either, neither; all by more than a share."""
NEEDS_MARGIN: tuple[Relation, ...] = ("no worse", "no different")
"""What no number of runs shows of a share of nothing."""
BELOW_ALL: tuple[Relation, ...] = ("better", "different", "no different")
"""What is said of a latency lower by the share: it is below 100 %."""


def _is_share(text: str) -> str:
    with as_value_error():
        if parse_share(text) == 0:
            raise ValueError("leave it out instead of 0 %")
    return text


Chosen = Annotated[dict[str, Any], Field(min_length=1), Written("mapping from key paths")]
"""Runs, by values that vary: each key has the value, or one of a list of them."""


class Claim(Strict):
    """A sentence about the results, and the test behind it."""

    model_config = ConfigDict(serialize_by_alias=True)

    says: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="The claim, in a sentence for people.",
        examples=["A container is no later than bare metal."],
    )
    id: Annotated[str, Matching(r"^[a-z][a-z0-9-]{0,31}$", name_words(32, "no-later"))] | None = (
        Field(
            default=None,
            description="What it is called in results. By default claim-1, claim-2, ….",
            examples=["no-later"],
        )
    )
    for_: Chosen | None = Field(
        default=None,
        alias="for",
        description="Which runs it is about, by values that vary; a list stands for any of its "
        "values. By default all.",
        examples=[{"dut.platform": "container"}],
    )
    require: Annotated[
        list[Annotated[str, read_by(lambda text: parse_requirements([text]))]] | None,
        Field(min_length=1),
        Written("list of requirements"),
    ] = Field(
        default=None,
        description="What each of these runs must meet, as in `require` of the file.",
        examples=[["p99.9 < 1 ms"]],
    )
    against: Chosen | None = Field(
        default=None,
        description="Instead of `require`: which runs they are held against. All values that are "
        "not here are equal.",
        examples=[{"dut.platform": "bare-metal"}],
    )
    at: Annotated[str, read_by(parse_percentile)] | None = Field(
        default=None,
        description="Of `against`: the percentile of the latency, or max.",
        examples=["p99.9"],
    )
    is_: Relation | None = Field(
        default=None,
        alias="is",
        description="Of `against`: what the latency is. better is lower, worse is higher.",
        examples=["no worse"],
    )
    by: Annotated[str, AfterValidator(_is_share)] | None = Field(
        default=None,
        description="Of `against`: the share of the other's latency by more than which it "
        "differs, or with no: does not. By default 0 %, which no worse and no "
        "different cannot have.",
        examples=["5 %"],
    )

    @model_validator(mode="after")
    def _has_one_test(self) -> Claim:
        compared = {"at": self.at, "is": self.is_, "by": self.by}
        if (self.require is None) == (self.against is None):
            key = "says" if self.require is None else "against"
            raise Misfit((key,), "a claim has one test: write require, or against with at and is")
        if self.against is None:
            for key, value in compared.items():
                if value is not None:
                    raise Misfit((key,), "this belongs to against: leave it out beside require")
            return self
        for key in ("at", "is"):
            if compared[key] is None:
                raise Misfit(("against",), f"{key} is missing: write at: p99.9 and is: no worse")
        if self.is_ in NEEDS_MARGIN and self.by is None:
            raise Misfit(("is",), f"{self.is_} needs a share: write by: 5 %")
        if self.is_ in BELOW_ALL and self.margin >= 1:
            raise Misfit(("by",), f"nothing is {self.is_} by 100 % of a latency: write less")
        return self

    @property
    def chosen(self) -> Mapping[str, Any]:
        """The values of the runs that it is about."""
        return self.for_ or {}

    @property
    def others(self) -> Mapping[str, Any]:
        """The values of the runs that these are held against."""
        return {**self.chosen, **(self.against or {})}

    @property
    def margin(self) -> float:
        """The share `by`."""
        return 0.0 if self.by is None else parse_share(self.by)
