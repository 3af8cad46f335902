"""Requests and their answers: ``transactions.json``, and what ``tailtap evaluate`` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from tailtap.records.evaluation import Latency, WorstRecord
from tailtap.records.record import Count, Notice, Record, Texts, says

Match = Literal["auto", "packets", "transactions"]
"""What is looked for in captures."""
From = Literal["first", "last"]
"""What a wait counts from: the first time that a request was sent, or the last."""


class TransactionCounts(Record, kw_only=True):
    """What became of requests and answers of one kind."""

    requests: Annotated[Count, says("Requests; those sent again count once")]
    answered: Annotated[Count, says("Requests with an answer: the latencies are of these")]
    unanswered: Annotated[Count, says("Requests without an answer within the window")]
    open_at_end: Annotated[
        Count,
        says("Requests without an answer whose window had not passed when the capture ended"),
    ]
    refused: Annotated[
        Count,
        says("Requests refused or withdrawn: by RST, an alert of TLS, or RST_STREAM"),
    ]
    given_up: Annotated[
        Count,
        says("Requests of which nobody can tell which answer is theirs, or whether they had one"),
    ]
    trimmed: Annotated[Count, says("Requests left out at the start")]
    retransmitted: Annotated[Count, says("How often requests were sent again")]
    repeated_answers: Annotated[Count, says("Further answers of a request: in no statistic")]
    unmatched_answers: Annotated[Count, says("Answers without a request")]
    coalesced: Annotated[Count, says("Answers that shared a packet with the one before")]
    reordered: Annotated[
        Count, says("Answers of a request sent before one that was answered already")
    ]
    half_open: Annotated[Count, says("Connections of TCP that the client did not complete")]
    truncated: Annotated[Count, says("Packets that were cut where a message should be")]
    cut: Annotated[
        Count,
        says("Requests and answers whose headers were cut: they count by the packet that was cut"),
    ]


class KindRecord(Record, kw_only=True):
    """The transactions of one kind."""

    kind: str
    name: Annotated[str, says("The kind, and behind @ the place where the capture is of several")]
    counts: TransactionCounts
    latency_ns: Annotated[Latency | None, says("How long requests waited; null without any answer")]
    worst: Annotated[
        list[WorstRecord],
        says("Times of request (ingress) and answer (egress), worst first"),
    ]
    warnings: list[Notice]


class TransactionsRecord(Record, kw_only=True, tag_field="schema", tag="tailtap.transactions/1"):
    """``transactions.json``."""

    captures: Annotated[Texts, says("The capture of both, or those of requests and of answers")]
    reason: Annotated[
        str | None,
        says("Why transactions were looked for, where nobody asked for them"),
    ]
    since: Annotated[From, says("What waits count from, where requests were sent several times")]
    window_ns: Count
    kinds: list[KindRecord]
    warnings: Annotated[list[Notice], says("Of the captures as a whole")]
