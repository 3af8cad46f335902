"""What a search for the highest rate has found, for the page; read from ``search.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.analysis.runs.text import as_words, count_text, rate_text, share_text, time_text
from tailtap.records.record import Notice, read
from tailtap.records.search import SearchAnswer, SearchRecord

if TYPE_CHECKING:
    from tailtap.analysis.runs.run import Run

HEADS = ("highest rate", "up to", "width", "trials at it", "packets", "lost", "loss below")
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Found:
    """A row of the table: the highest rate with at most so much loss."""

    names: tuple[str, ...]
    """The varied values, in the order of `Search.varied`, and the loss that is allowed."""
    cells: tuple[str, ...]
    """In the order of `HEADS`."""


@dataclass(frozen=True)
class Search:
    """A search and its answers."""

    method: str
    trials: int
    rows: tuple[Found, ...]
    warnings: tuple[Notice, ...]
    varied: tuple[str, ...] = ()
    """What varied: there was a search for each combination of its values."""
    heads: tuple[str, ...] = HEADS


def told(record: SearchRecord) -> Search:
    """What a ``search.json`` tells."""
    return Search(
        record.settings.method,
        len(record.trials),
        tuple(_found(answer) for answer in record.answers),
        tuple(
            Notice(
                row.code,
                f"{in_words(answer.variables)}loss {share_text(answer.loss)}: {row.message}",
            )
            for answer in record.answers
            for row in answer.warnings
        ),
        tuple(record.answers[0].variables) if record.answers else (),
    )


def in_words(variables: Mapping[str, Any]) -> str:
    """Varied values, each with its variable and a comma behind it; empty where nothing varied."""
    return "".join(f"{key} {as_words(value)}, " for key, value in variables.items())


def _found(answer: SearchAnswer) -> Found:
    upper = NOT_TRIED if answer.upper is None else rate_text(answer.upper)
    if answer.reason == "generator":
        upper += " (the generator's limit)"
    at = answer.at_rate
    names = (*map(as_words, answer.variables.values()), share_text(answer.loss))
    if at is None:
        return Found(names, ("none", upper, *[""] * 5))
    width, limit, trials = answer.width, answer.loss_limit, at.trials
    each = time_text(at.duration_ns / max(1, trials))
    return Found(
        names,
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


def answer_for(run: Run) -> SearchAnswer | None:
    """The answer with the least loss for the configuration of a run that belongs to a search.

    None where it belongs to none. Raises `InputError` for a damaged ``search.json``.
    """
    if run.top is None or not (file := run.top / "search.json").is_file():
        return None
    answers = _answers(file, file.stat().st_mtime_ns)
    return next((
        answer for answer in answers
        if all(run.variables.get(key) == as_words(value) for key, value in answer.variables.items())
    ), None)  # fmt: skip


@lru_cache(maxsize=4)
def _answers(file: Path, changed_ns: int) -> list[SearchAnswer]:
    return sorted(read(file, SearchRecord).answers, key=lambda answer: answer.loss)
