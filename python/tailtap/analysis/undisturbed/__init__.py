"""Percentiles without the time in which the machine was taken away, beside the plain ones.

`stretches` says when the machine under the device or the generator was away, which time is left
out, and whether that is fair; `undisturbed` makes an evaluation of what is left.
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
