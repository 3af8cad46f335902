"""Warnings about the samples of interrupts and softirqs."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "The counters of interrupts"
ENTRIES = (
    Entry(
        "no-interrupts",
        "A run has no samples of the interrupt counters.",
        "Measure it with `interrupts: counters`, or give samples with `--samples`.",
    ),
)
