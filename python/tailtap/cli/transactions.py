"""What `tailtap evaluate` prints of requests and their answers."""

from __future__ import annotations

import json as json_module
from pathlib import Path

import msgspec

from tailtap.analysis.evaluation.settings import Settings
from tailtap.analysis.evaluation.sources import Source
from tailtap.analysis.evaluation.transactions import (
    KINDS,
    Transactions,
    has_transactions,
    transactions_by,
)
from tailtap.base.errors import NothingMatched
from tailtap.cli.console import print_table
from tailtap.cli.evaluated import require_same
from tailtap.cli.terminal import say, warn
from tailtap.records.evaluation import From
from tailtap.show.sections import COUNT, Column, row, table
from tailtap.show.sections.latency import latency_table, transactions_table

ALWAYS = ("requests", "answered", "unanswered")
"""Counts that are shown also where they are 0."""


def instead(
    settings: Settings,
    ingress: Source,
    egress: Source | None,
    since: From,
    nothing: NothingMatched,
) -> Transactions:
    """The transactions of captures without a packet on both sides. Raises `nothing` without any."""
    if egress is None:
        pairs: list[tuple[Source, Source | None]] = [(ingress, None)]
        reason = "one capture, which holds requests and answers"
    else:
        pairs = [(ingress, egress), (egress, ingress)]
        reason = "no packet is in both captures, and the second answers the first"
    if not any(has_transactions(settings, *pair) for pair in pairs):
        raise nothing
    return transactions_by(settings, ingress, egress, since=since, reason=reason)


def show(
    found: Transactions,
    ps: tuple[float, ...],
    worst: int,
    out: Path | None,
    *,
    json: bool,
    quiet: bool,
    replace: bool,
) -> None:
    """Print and write transactions as the command was asked to."""
    if out is not None:
        if not replace:
            for name, evaluation in found.answered.items():
                require_same(evaluation, out / name)
        found.write(out)
    if json:
        print(json_module.dumps(found.as_json(ps, worst=worst)))
    else:
        _print(found, ps)
    if not quiet:
        told = {warning: None for kind in found.kinds for warning in kind.warnings}
        for warning in {**dict.fromkeys(found.warnings), **told}:
            warn(f"warning: {warning.message} [{warning.code}]")
        if out is not None:
            warn(f"tables written to {out}, a folder for each kind")


def _print(found: Transactions, ps: tuple[float, ...]) -> None:
    say(f"requests and answers{f': {found.reason}' if found.reason else ''}")
    print_table(transactions_table(found.kinds))
    for kind in found.kinds:
        counts = msgspec.structs.asdict(kind.counts).items()
        shown = (
            row(f" {name.replace('_', ' ')}", count)
            for name, count in counts
            if count or name in ALWAYS
        )
        print_table(table(f"{kind.name}: {KINDS[kind.kind]}", (Column(), Column("", COUNT)), shown))
        if kind.evaluation is not None:
            print_table(latency_table(kind.evaluation, ps, f"{kind.name}: wait"))
