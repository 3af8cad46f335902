"""`evaluate_transactions`: how long requests in captures waited for their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from tailtap import _core
from tailtap.analysis.evaluation.evaluate import SECOND_NS, Settings, evaluation_of
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.sources import Source, Sources
from tailtap.analysis.evaluation.values import DEFAULT
from tailtap.base.errors import InputError, NothingMatched
from tailtap.base.files import remove_tree, write_json
from tailtap.base.seen import Seen
from tailtap.records.evaluation import (
    From,
    KindRecord,
    MatchedRequests,
    Nanoseconds,
    TransactionCounts,
    TransactionsRecord,
)
from tailtap.records.record import Notice, as_json

TRANSACTIONS = "transactions.json"
"""The file of transactions, in their folder."""
KINDS = {
    "tcp-handshake": "SYN to SYN with ACK",
    "tls-server-hello": "ClientHello to ServerHello",
    "tls-flight": "ClientHello to the end of the server's first flight",
    "tls-first-data": "ClientHello to the server's first application data",
    "dns": "query to response",
    "icmp-echo": "echo request to echo reply",
    "quic-initial": "the client's Initial to the server's first packet",
    "http": "request to the first byte of the response",
    "ntp": "client's packet to server's packet",
    "ptp-delay": "Delay_Req to Delay_Resp",
    "gtp-u-echo": "echo request to echo response of GTP-U",
    "field": "an id to the same id the other way",
}
"""The kinds of transactions, and what each one waits for."""
SAMPLE = 20_000
"""Packets of each capture among which `has_transactions` looks."""


@dataclass(frozen=True)
class Kind:
    """The transactions of one kind."""

    kind: str
    name: str
    """The kind, with the place where packets were captured at several: ``dns@interface-2``."""
    counts: TransactionCounts
    evaluation: Evaluation | None
    """The waits like those of packets: requests are `ingress`, answers `egress`."""
    warnings: Sequence[Notice]

    def record(self, ps: Sequence[float] = DEFAULT, worst: int = 10) -> KindRecord:
        """What `transactions.json` says of it."""
        whole = None if self.evaluation is None else self.evaluation.record(ps, worst)
        return KindRecord(
            kind=self.kind,
            name=self.name,
            counts=self.counts,
            latency_ns=None if whole is None else whole.latency_ns,
            worst=[] if whole is None else whole.worst,
            warnings=list(self.warnings),
        )


@dataclass(frozen=True, repr=False)
class Transactions(Seen):
    """The requests and answers of captures, kind by kind."""

    captures: Sequence[str]
    since: From
    window_ns: int
    kinds: Sequence[Kind]
    warnings: Sequence[Notice]
    reason: str | None = None
    """Why they were looked for, where nobody asked for them."""

    def __getitem__(self, name: str) -> Evaluation:
        """The evaluation of this name. Raises `KeyError` where no request of it was answered."""
        return self.answered[name]

    def __contains__(self, name: object) -> bool:
        """Whether a request of the kind of this name was answered."""
        return name in self.answered

    @property
    def answered(self) -> dict[str, Evaluation]:
        """The evaluations of kinds that had answers, by name."""
        return {one.name: one.evaluation for one in self.kinds if one.evaluation is not None}

    def record(self, ps: Sequence[float] = DEFAULT, worst: int = 10) -> TransactionsRecord:
        """What `transactions.json` says, and `tailtap evaluate --json` prints."""
        return TransactionsRecord(
            captures=list(self.captures),
            reason=self.reason,
            since=self.since,
            window_ns=self.window_ns,
            kinds=[kind.record(ps, worst) for kind in self.kinds],
            warnings=list(self.warnings),
        )

    def as_json(self, ps: Sequence[float] = DEFAULT, worst: int = 10) -> dict[str, Any]:
        """The object that `tailtap evaluate --json` prints."""
        return as_json(self.record(ps, worst))

    def write(self, folder: str | PathLike[str]) -> None:
        """Write ``transactions.json``, and the evaluation of each kind into a folder of its name.

        Folders of kinds that these captures have not are removed. Raises `MachineError` when the
        folder cannot be written.
        """
        folder = Path(folder)
        for old in folder.glob("*/evaluation.json"):
            name = old.parent.name
            if name.partition("@")[0] in KINDS and name not in self:
                remove_tree(old.parent, below=folder)
        for name, evaluation in self.answered.items():
            evaluation.write(folder / name)
        write_json(folder / TRANSACTIONS, as_json(self.record()))


def evaluate_transactions(
    ingress: str | PathLike[str],
    egress: str | PathLike[str] | None = None,
    *,
    key: str = "auto",
    key_after: str | None = None,
    trim_ns: int = 0,
    window_ns: int = 5 * SECOND_NS,
    worst: int = 5000,
    bucket_ns: int = 100,
    format: str | None = None,
    nanoseconds: Nanoseconds | None = None,
    since: From = "first",
) -> Transactions:
    """Find requests and their answers in captures, and how long each request waited.

    `ingress` is a capture of both, or that of the requests where `egress` is that of the answers:
    two taps, or two directions of a link, stamped by one clock. `KINDS` says what is looked for.
    An answer must come within `window_ns` of its request. Of requests that were sent several times
    the wait counts `since` the ``first`` or the ``last`` time. Requests within `trim_ns` of the
    first packet are left out. A `key` of the form OFFSET:WIDTH:le|be, or ``moonsniff``, looks for
    the kind ``field``: who sends an id first asks, and the same id from the other end answers.
    `key_after` is where answers have it, if elsewhere.

    The other parameters are those of `evaluate`. Raises `InputError` when the captures cannot be
    read, and `NothingMatched` when there is no request with an answer in them.
    """
    settings = Settings(
        key,
        trim_ns,
        window_ns,
        worst,
        bucket_ns,
        format=format,
        nanoseconds=nanoseconds,
        key_after=key_after,
    )
    given = [ingress] if egress is None else [ingress, egress]
    with Sources() as sources:
        return transactions_by(settings, *sources.open(given), since=since)


def transactions_by(
    settings: Settings,
    ingress: Source,
    egress: Source | None = None,
    *,
    since: From = "first",
    reason: str | None = None,
) -> Transactions:
    """As `evaluate_transactions`, with settings that are made already."""
    if settings.clocks is not None:
        raise InputError("transactions need one clock: leave --egress-ahead and --back out")
    if settings.stamps == "trailer":
        raise InputError("transactions take the stamps of records: leave --stamps trailer out")
    if settings.key == "signature" or settings.key.startswith("packet"):
        raise InputError(
            f"the key '{settings.key}' is of packets: transactions take moonsniff, or a number "
            "such as OFFSET:WIDTH:le|be"
        )
    found, told = _core.transactions(
        ingress,
        egress,
        settings.matching,
        bucket_ns=settings.bucket_ns,
        from_last=since == "last",
    )
    kinds = [_kind(*one, settings, reason) for one in found]
    sources = [source for source in (ingress, egress) if source is not None]
    captures = [source.name for source in sources]
    if not any(kind.evaluation for kind in kinds):
        if egress is not None and has_transactions(settings, egress, ingress):
            raise NothingMatched(
                "the captures look swapped: the requests are in the second "
                "one; give the capture of the requests first"
            ).at(", ".join(captures))
        _nothing(captures, kinds)
    warnings = msgspec.json.decode(told, type=list[Notice])
    if egress is not None and all(has_transactions(settings, one) for one in sources):
        warnings.append(
            Notice(
                "both-hold-requests",
                f"{', '.join(captures)}: both captures hold requests and answers: waits are from "
                "requests in the first to answers in the second; one capture alone gives the waits "
                "at its own place",
            )
        )
    return Transactions(
        captures=captures,
        since=since,
        window_ns=settings.window_ns,
        kinds=kinds,
        warnings=warnings,
        reason=reason,
    )


def has_transactions(settings: Settings, ingress: Source, egress: Source | None = None) -> bool:
    """Whether there are answered requests among the first packets of one capture or two."""
    return _core.has_transactions(ingress, egress, settings.matching, packets=SAMPLE)


def _kind(
    record: bytes, columns: Mapping[str, Any], settings: Settings, reason: str | None
) -> Kind:
    found = msgspec.json.decode(record, type=MatchedRequests)
    counts, matched, evaluation = found.counts, found.matched, None
    if counts.answered:
        # Whatever relies on these, a verdict say, must know that they may have been answered.
        open_ones = {"requests-given-up": counts.given_up, "open-requests": counts.open_at_end}
        for side in matched.inputs.both:
            side.unread |= {name: count for name, count in open_ones.items() if count}
        matched.key_reason = reason
        what = f"requests of {found.name} were answered"
        evaluation = evaluation_of(matched, columns, settings, what)
    warnings = matched.warnings if evaluation is None else evaluation.warnings
    return Kind(found.kind, found.name, counts, evaluation, warnings)


def _nothing(captures: Sequence[str], kinds: Sequence[Kind]) -> None:
    """Raise what is to be said of captures without any answered request."""
    where = " and ".join(captures)
    for kind in kinds:
        counts = kind.counts
        if counts.requests or counts.unmatched_answers:
            raise (
                NothingMatched(
                    f"none of {counts.requests} requests has an answer within "
                    f"--window, and {counts.unmatched_answers} answers have no request"
                )
                .at(kind.kind)
                .at(where)
            )
    raise NothingMatched(
        f"no request with an answer of a known kind ({', '.join(KINDS)}); an id at any "
        "place is found with --key OFFSET:WIDTH:le|be"
    ).at(where)
