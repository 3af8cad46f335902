"""Texts that a user writes with placeholders in braces: ``trafgen --dev {interface}``."""

from __future__ import annotations

import shlex
import string
from collections.abc import Mapping, Sequence


def check_command(template: str, placeholders: Sequence[str]) -> str:
    """`template` as it is. Raises `ValueError` when it is no command or names something unknown."""
    check_fields(template, placeholders)
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ValueError(f"{template!r} is no command: {error}") from error
    if not words:
        raise ValueError("an empty command does nothing")
    return template


def check_fields(template: str, placeholders: Sequence[str]) -> None:
    """Raises `ValueError` when a brace is alone or something else than a name stands in braces."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r} is no template: {error}") from error
    fields = [field for _, field, _, _ in parts]
    unknown = [field for field in fields if field not in (None, *placeholders)]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in placeholders)
        raise ValueError(
            f"{{{unknown[0]}}} stands for nothing: known are {known}; write {{{{ for a brace"
        )
    for _, field, form, conversion in parts:
        if form or conversion:
            raise ValueError(f"{{{field}}} has no formats: write the name alone")


def fill_in(template: str, values: Mapping[str, object]) -> list[str]:
    """The words of the command with everything filled in; a value stays within its word."""
    return [word.format_map(values) for word in shlex.split(template)]
