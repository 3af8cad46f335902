"""What a search for the highest rate has found, for the page; read from ``search.json``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.analysis.runs.text import as_words, share_text
from tailtap.records.record import Notice, read
from tailtap.records.search import SearchAnswer, SearchRecord

if TYPE_CHECKING:
    from tailtap.analysis.runs.run import Run


def warnings_of(record: SearchRecord) -> tuple[Notice, ...]:
    """The warnings of all answers of a search, each with what it is about."""
    return tuple(
        Notice(
            one.code, f"{in_words(answer.variables)}loss {share_text(answer.loss)}: {one.message}"
        )
        for answer in record.answers
        for one in answer.warnings
    )


def in_words(variables: Mapping[str, Any]) -> str:
    """Varied values, each with its variable and a comma behind it; empty where nothing varied."""
    return "".join(f"{key} {as_words(value)}, " for key, value in variables.items())


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
