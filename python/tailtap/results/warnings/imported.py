"""Warnings about results that tailtap did not measure."""

from __future__ import annotations

from tailtap.results.warnings.entry import Entry

TITLE = "Imported results"
ENTRIES = (
    Entry(
        "file-missing",
        "A published run lacks some of its nine files.",
        "Nothing: what its other files say was imported.",
    ),
    Entry(
        "file-damaged",
        "A published file cannot be read and was skipped.",
        "Copy the tree again.",
    ),
    Entry(
        "file-twice",
        "Two files say the same of a run; one was skipped.",
        "Remove one of them.",
    ),
    Entry(
        "run-twice",
        "A published run is a copy of another one and was left out.",
        "Nothing.",
    ),
    Entry(
        "imports-unreadable",
        "The folder's database cannot be read: imported runs are left out of the report.",
        "Close the database in other programs, or remove it and import again.",
    ),
)
