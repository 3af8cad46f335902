"""Requests and their answers: ``transactions.json``, and what ``tailtap evaluate`` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailtap.records.evaluation import Latency, WorstRecord
from tailtap.records.record import Count, Notice, Record, Texts

Match = Literal["auto", "packets", "transactions"]
"""What is looked for in captures."""
From = Literal["first", "last"]
"""What a wait counts from: the first time that a request was sent, or the last."""


class TransactionCounts(Record, kw_only=True):
    """What became of requests and answers of one kind."""

    requests: Annotated[Count, Meta(description="Requests; those sent again count once")]
    answered: Annotated[
        Count, Meta(description="Requests with an answer: the latencies are of these")
    ]
    unanswered: Annotated[Count, Meta(description="Requests without an answer within the window")]
    open_at_end: Annotated[
        Count,
        Meta(description="Those of them whose window had not passed when the capture ended"),
    ]
    refused: Annotated[
        Count, Meta(description="Requests that were refused: by RST, or by an alert of TLS")
    ]
    given_up: Annotated[
        Count, Meta(description="Requests of which nobody can tell which answer is theirs")
    ]
    trimmed: Annotated[Count, Meta(description="Requests left out at the start")]
    retransmitted: Annotated[Count, Meta(description="How often requests were sent again")]
    repeated_answers: Annotated[
        Count, Meta(description="Further answers of a request: in no statistic")
    ]
    unmatched_answers: Annotated[Count, Meta(description="Answers without a request")]
    coalesced: Annotated[
        Count, Meta(description="Answers that shared a packet with the one before")
    ]
    reordered: Annotated[
        Count, Meta(description="Answers of a request sent before one that was answered already")
    ]
    half_open: Annotated[
        Count, Meta(description="Connections of TCP that the client did not complete")
    ]
    truncated: Annotated[Count, Meta(description="Packets that were cut where a message should be")]


class KindRecord(Record, kw_only=True):
    """The transactions of one kind."""

    kind: str
    counts: TransactionCounts
    latency_ns: Annotated[
        Latency | None, Meta(description="How long requests waited; null without any answer")
    ]
    worst: Annotated[
        list[WorstRecord],
        Meta(description="Times of request (ingress) and answer (egress), worst first"),
    ]
    warnings: list[Notice]


class TransactionsRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.transactions/1"):
    """``transactions.json``."""

    captures: Annotated[
        Texts, Meta(description="The capture of both, or those of requests and of answers")
    ]
    reason: Annotated[
        str | None,
        Meta(description="Why transactions were looked for, where nobody asked for them"),
    ]
    since: Annotated[
        From, Meta(description="What waits count from, where requests were sent several times")
    ]
    window_ns: Count
    kinds: list[KindRecord]
    warnings: Annotated[list[Notice], Meta(description="Of the captures as a whole")]
