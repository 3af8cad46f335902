"""`evaluation` of an experiment file: how packets are matched."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from tailtap.base.schema import Strict, Time
from tailtap.base.suggest import did_you_mean


class Matching(Strict):
    """How ingress and egress are matched; times in ns."""

    match: Literal["packets", "transactions"] = Field(
        default="packets",
        description="What is measured: packets is how long each took through the DuT, transactions "
        "how long requests waited for their answers, where dut.forwarder is server.",
        examples=["transactions"],
    )
    transaction: str | None = Field(
        default=None,
        description="Which kind of transactions is the run's result, where there are several: one "
        "that `tailtap evaluate --match transactions` finds. By default that with most "
        "requests.",
        examples=["dns"],
    )
    key: str = Field(
        default="auto",
        description="How packets are matched. Stamps have the packets' ids (moonsniff), which auto "
        "finds. With tap.format: pcap it is any key of `"
        "tailtap evaluate --key"
        "`.",
        examples=["moonsniff", "packet-nat"],
    )
    trim: Time = Field(
        default=0,
        description="How much time the evaluation leaves out at the beginning.",
        examples=["500 ms"],
    )
    window: Time = Field(
        default=5_000_000_000,
        description="A packet that is not seen behind the DuT within this time is lost.",
        examples=["1 s"],
    )

    @field_validator("transaction")
    @classmethod
    def _transaction_is_known(cls, kind: str | None) -> str | None:
        if kind is not None:
            from tailtap.analysis.evaluation.transactions import KINDS

            if kind not in KINDS:
                raise ValueError(f"there is no kind {kind!r}: {did_you_mean(kind, KINDS)}")
        return kind

    @field_validator("window")
    @classmethod
    def _window_is_positive(cls, window: int) -> int:
        if window == 0:
            raise ValueError("the window must be longer than 0 s: no packet could match")
        return window
