"""Warnings about a search, its trials and its bounds."""

from __future__ import annotations

from tailtap.base.options import spelled
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
        f"Lower `{spelled('from')}`, or allow more with `{spelled('loss')}`.",
    ),
    Entry(
        "range-end",
        "The highest rate that was tried holds.",
        f"Raise `{spelled('to')}`.",
    ),
    Entry(
        "trials-disagree",
        f"Some trials at the rate found lost more than allowed; `{spelled('exceed')}` permits "
        "that.",
        f"Use `{spelled('exceed')} 0`, or longer trials.",
    ),
    Entry(
        "loss-below",
        "More than allowed was lost at a rate below the one that was found.",
        f"Use longer trials with `{spelled('trial')}`.",
    ),
    Entry(
        "loss-inversion",
        "A rate above one that does not hold lost no more than allowed.",
        "Nothing: the lowest rate that does not hold counts. Longer trials tell more.",
    ),
    Entry(
        "loss-unproven",
        "The trials are too short to show that no more than allowed is lost.",
        f"Use more or longer trials with `{spelled('trials')}` and `{spelled('trial')}`.",
    ),
)
