"""Percentiles without the time in which the machine was taken away, beside the plain ones.

A run's way through the modules: `pauses` (when the machine under the device or the generator was
away), `packets` (all packets, matched again), `stretches` (which time is left out), `independence`
(whether that is fair), all called by `undisturbed`, which makes an evaluation of what is left.
docs/explanation/undisturbed.md is the model.
"""

from tailtap.analysis.undisturbed.undisturbed import (
    Undisturbed,
    keep_undisturbed,
    read_undisturbed,
    stored_of,
    undisturbed_of,
    undisturbed_run,
)

__all__ = [
    "Undisturbed",
    "keep_undisturbed",
    "read_undisturbed",
    "stored_of",
    "undisturbed_of",
    "undisturbed_run",
]
