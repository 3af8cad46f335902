"""Warnings about a search, its trials and its bounds."""

from __future__ import annotations

from tailtap.records.warnings.entry import Entry

TITLE = "The search for the highest rate"
ENTRIES = (
    Entry(
        "generator-limit",
        "The highest rate is a limit of the generator. The device may hold more.",
        "Give the generator a CPU of its own, or try another `traffic.generator`.",
    ),
    Entry(
        "generator-unsteady",
        "The generator could send a rate once and then not even a lower one.",
        "Stop what else works on this machine, and search again.",
    ),
    Entry(
        "none-holds",
        "The device lost more than allowed even at the lowest rate.",
        "Lower `--from`, or allow more with `--loss`.",
    ),
    Entry(
        "range-end",
        "The highest rate that was tried holds.",
        "Raise `--to`.",
    ),
    Entry(
        "trials-disagree",
        "Some trials at the rate found lost more than allowed; `--exceed` permits that.",
        "Use `--exceed 0`, or longer trials.",
    ),
    Entry(
        "loss-below",
        "More than allowed was lost at a rate below the one that was found.",
        "Use longer trials with `--trial`.",
    ),
    Entry(
        "loss-inversion",
        "A rate above one that does not hold lost no more than allowed.",
        "Nothing: the lowest rate that does not hold counts. Longer trials tell more.",
    ),
    Entry(
        "loss-unproven",
        "The trials are too short to show that no more than allowed is lost.",
        "Use more or longer trials with `--trials` and `--trial`.",
    ),
)
