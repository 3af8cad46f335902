"""The search for the highest rate that a device holds: its trials, and the answer from them.

`trial.py` has the terms: settings, a trial, its result. A method (`binary.py`, `mlr.py`) is a
generator that yields trials, is sent their results and returns the bounds that it found; it knows
nothing of machines, so that it is tested against simulated devices with a known rate. `answer.py`
says how reliable the bounds are. `conduct.py` makes the trials and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from tailtap.measure.search.answer import Answer, answer
from tailtap.measure.search.binary import binary
from tailtap.measure.search.mlr import mlr
from tailtap.measure.search.trial import Bounds, Result, Settings, Trial

__all__ = ["METHODS", "Answer", "Bounds", "Result", "Settings", "Trial", "answer"]

Method = Callable[[Settings], Generator[Trial, Result, list[Bounds]]]
"""Yields trials, is sent the result of each, returns the bounds for each loss of the settings."""

METHODS: Mapping[str, Method] = {"mlr": mlr, "binary": binary}
"""Every method by its name, the default first."""
