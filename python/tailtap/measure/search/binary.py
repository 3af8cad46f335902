"""The binary search of RFC 2544: section 26.1 and, for its steps, ETSI GS NFV-TST 009.

Each rate is tried once, at full length: if the device loses more than allowed, the rate goes
down, else up, always to the middle of what is left. RFC 2544 wants trials of 60 s at least.
"""

from __future__ import annotations

from collections.abc import Generator

from tailtap.measure.search.trial import (
    Bounds,
    Result,
    Settings,
    Trial,
    close,
    rounded,
    unable,
)
from tailtap.records.search import Reason

Steps = Generator[Trial, Result, Reason | None]


def binary(settings: Settings) -> Generator[Trial, Result, list[Bounds]]:
    """Search for one loss after the other; what was tried for one counts for the others."""
    results: list[Result] = []
    found = []
    for loss in settings.losses:
        bounds = yield from _search(settings, loss, results)
        found.append(bounds)
    return found


def _search(
    settings: Settings, loss: float, results: list[Result]
) -> Generator[Trial, Result, Bounds]:
    refused = yield from _try(settings, settings.high, loss, results)
    if refused is None:
        return Bounds(loss, settings.high, None, "range")
    lower, upper, held = settings.low, settings.high, False
    while not close(lower, upper, settings.precision):
        middle = rounded((lower + upper) / 2, lower, upper, settings.precision)
        why = yield from _try(settings, middle, loss, results)
        if why is None:
            lower, held = middle, True
        else:
            upper, refused = middle, why
    if held:
        return Bounds(loss, lower, upper, refused)
    why = yield from _try(settings, lower, loss, results)
    if why is None:
        return Bounds(loss, lower, upper, refused)
    return Bounds(loss, None, lower, why)


def _try(settings: Settings, rate: int, loss: float, results: list[Result]) -> Steps:
    """Try a rate unless that has been done; why it does not hold, or None."""
    while True:
        for result in results:
            if result.trial.rate == rate and result.valid:
                return "loss" if result.loss > loss else None
        if unable(results, rate, settings.tries):
            return "generator"
        results.append((yield Trial(rate, settings.trial, max(settings.losses))))
