"""docs/reference/warnings.md: `python -m tailtap.records.warnings.page` prints it."""

from __future__ import annotations

import textwrap

from tailtap.records.warnings import CATALOGUE

HEAD = """# Warnings

For whoever meets one.

Made from the program's own list by `make docs`; a test fails when it is stale.

Doubtful numbers carry a warning: a code for programs, and a sentence with the
figures for people. Warnings are stored with the run (`run.json`, `evaluation.json`,
`results.duckdb`) and shown wherever its numbers are shown. A warning that *invalidates* says that
the load was not the one that was asked for: the run has `"valid": false`, shows nothing in a
verdict, and is left out of a comparison. A *note* says what was not done, and puts no number in
doubt: the page has it below the numbers.
"""


def page() -> str:
    """The page of the catalogue."""
    parts = [HEAD]
    for title, entries in CATALOGUE.items():
        parts.append(f"## {title}\n")
        for entry in sorted(entries, key=lambda one: one.code):
            mark = " (invalidates)" if entry.invalidates else " (note)" if entry.note else ""
            text = f"`{entry.code}`{mark}: {entry.meaning} *{entry.action}*"
            parts.append(textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  "))
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
