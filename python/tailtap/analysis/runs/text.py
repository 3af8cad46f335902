"""Numbers as pages and figures write them, and what a search for the highest rate has found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtap.base.units import format_count, format_rate, format_share, format_time, unbroken
from tailtap.records.record import Notice, read

if TYPE_CHECKING:
    from tailtap.analysis.runs.run import Run
    from tailtap.records.search import SearchAnswer, SearchRecord


NARROW_SPACE = "\u202f"
"""Groups digits without breaking the line."""

_MICROSECONDS = re.compile(r"(?<=\d\u00a0)us\b")


def time_text(ns: float) -> str:
    """A time in ns, with the micro sign that a page can show: ``4.312 µs``."""
    return typeset(format_time(ns))


def typeset(text: str) -> str:
    """A sentence as pages have it: the micro sign in times, no line ends before a unit."""
    return _MICROSECONDS.sub("µs", unbroken(text))


def percent_text(p: float) -> str:
    """A percentile's share: ``99.9 %``."""
    return f"{100 * p:.10g}\u00a0%"


def count_text(count: int, unit: str = "") -> str:
    """A count with grouped digits, and of what: ``1 packet``, ``2 packets``."""
    text = format_count(count, unit) if unit else f"{count:,}"
    return text.replace(",", NARROW_SPACE)


def number_text(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """A number with so many significant digits, or with all that stand before the point."""
    sign = "+" if signed else ""
    whole = abs(value) >= 10**digits
    return f"{value:{sign}.0f}" if whole else f"{value:{sign}.{digits}g}"


def share_text(share: float) -> str:
    """A share as per cent with two significant digits: ``0.0012 %``."""
    return typeset(format_share(share))


def broken(text: str, letters: int) -> str:
    """A text in lines of at most so many letters, broken behind spaces, slashes and hyphens."""
    lines = [""]
    for part in re.split(r"(?<=[ /-])(?! )", text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > letters:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def date_text(iso: str) -> str:
    """An ISO-8601 time as ``2026-03-01 14:05 UTC``; any other text as it is."""
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return iso


def rate_text(rate: float) -> str:
    """A rate for a tick or a table."""
    return typeset(format_rate(rate))


def as_words(value: object) -> str:
    """A varied value as people read it: ``suricata (rules many)`` of the mapping of that name."""
    if isinstance(value, list) and any(isinstance(one, str) for one in value):
        return " and ".join(map(as_words, value))
    if not isinstance(value, Mapping):
        return str(value)
    parts: list[str] = []
    for key, inner in value.items():
        words = as_words(inner)
        if isinstance(inner, Mapping):
            parts.append(f"{key} ({words})" if inner else str(key))
        else:
            parts.append(f"{key} {words}")
    return ", ".join(parts)


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
    from tailtap.records.search import SearchRecord

    return sorted(read(file, SearchRecord).answers, key=lambda answer: answer.loss)
