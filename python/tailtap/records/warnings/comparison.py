"""Warnings about configurations that are held against each other."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "The comparison"
ENTRIES = (
    Entry(
        "left-out",
        "A run is left out of the comparison. The sentence says why.",
        "Repeat the run.",
    ),
    Entry(
        "doubts",
        "Runs that are compared have a warning of their own.",
        "Look the other code up on this page.",
    ),
    Entry(
        "no-ranking",
        "Under one load nothing can be ranked. The sentence says why.",
        "Measure more configurations under this load, or longer.",
    ),
    Entry(
        "equal-repeats",
        "Repeats are equal to the nanosecond: they are copies, and say nothing more.",
        "Leave the copies out.",
    ),
    Entry(
        "few-samples",
        "Fewer than ten packets lie above the percentile.",
        "Choose a lower `--percentile`, or measure longer.",
    ),
    Entry(
        "unknown-samples",
        "Nobody says how many packets published percentiles are of.",
        "Nothing: how far they can be relied on is not known.",
    ),
    Entry(
        "different-machines",
        "Configurations were measured on different machines, which may be what differs.",
        "Measure both on one machine.",
    ),
    Entry(
        "few-repeats",
        "Comparisons have too few repeats to be decided, whatever their latencies.",
        "Raise `repeat`; the advice says to how many.",
    ),
    Entry(
        "unpaired",
        "A configuration of a change has no partner in the baseline, or the other way round.",
        "Measure the same experiment file before and after.",
    ),
    Entry(
        "one-after-the-other",
        "All runs before a change were made before all runs after it.",
        "Measure both by turns, or add `wire` to both: where it moves, the machine changed.",
    ),
    Entry(
        "no-floor",
        "A history has no runs of `wire`, which would say when the machine changed.",
        "Measure `wire` with each commit, for a second or two.",
    ),
)
