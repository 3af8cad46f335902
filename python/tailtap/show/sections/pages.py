"""Sections on pages, by Jinja2.

Names come from files that anyone may have written: autoescape is on.
"""

from __future__ import annotations

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from tailtap.analysis.runs.text import with_micro_sign


@cache
def templates(package: str) -> Environment:
    """The templates of a package, which import ``sheets.html.j2``.

    Compiling one takes longer than most pages do: once is enough.
    """
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("tailtap.show.sections")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["micro"] = with_micro_sign
    return found
