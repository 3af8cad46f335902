"""What a search for the highest rate has found, for the page; read from ``search.json``."""

from __future__ import annotations

from dataclasses import dataclass

from tailtap.analysis.runs.text import count_text, rate_text, share_text, time_text
from tailtap.records.record import Notice
from tailtap.records.search import SearchAnswer, SearchRecord

HEADS = ("highest rate", "up to", "width", "trials at it", "packets", "lost", "loss below")
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Found:
    """A row of the table: the highest rate with at most so much loss."""

    allowed: str
    cells: tuple[str, ...]
    """In the order of `HEADS`."""


@dataclass(frozen=True)
class Search:
    """A search and its answers."""

    method: str
    trials: int
    rows: tuple[Found, ...]
    warnings: tuple[Notice, ...]
    heads: tuple[str, ...] = HEADS


def told(record: SearchRecord) -> Search:
    """What a ``search.json`` tells."""
    return Search(
        record.settings.method,
        len(record.trials),
        tuple(_found(answer) for answer in record.answers),
        tuple(
            Notice(row.code, f"loss {share_text(answer.loss)}: {row.message}")
            for answer in record.answers
            for row in answer.warnings
        ),
    )


def _found(answer: SearchAnswer) -> Found:
    upper = NOT_TRIED if answer.upper is None else rate_text(answer.upper)
    if answer.reason == "generator":
        upper += " (the generator's limit)"
    allowed, at = share_text(answer.loss), answer.at_rate
    if at is None:
        return Found(allowed, ("none", upper, *[""] * 5))
    width, limit, trials = answer.width, answer.loss_limit, at.trials
    each = time_text(at.duration_ns / max(1, trials))
    return Found(
        allowed,
        (
            rate_text(at.rate),
            upper,
            "" if width is None else share_text(width),
            f"{trials - at.exceeding} of {trials} × {each}",
            count_text(at.packets),
            count_text(at.lost),
            "" if limit is None else share_text(limit),
        ),
    )
