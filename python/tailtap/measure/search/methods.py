"""The methods of a search: each yields trials, is sent their results and returns the bounds.

A method knows nothing of machines, so that it is tested against simulated devices with a known
rate.

`mlr` is a search in the manner of MLRsearch (RFC 9971, draft-ietf-bmwg-mlrsearch).

Short trials show where to look, and only full ones decide. It begins with a look at the highest
rate: what a device forwards when it gets too much is often near what it holds. Then stages of
longer trials and narrower bounds follow, for all losses at once, as every trial tells something
about each of them. In a stage

- a rate *holds* when full trials of so long a time have lost no more than allowed that the rest
  of the `trials` cannot change it, and *does not hold* in the same way (`judge`, the load
  classification of the draft's appendix A). Of the `trials`, a share of `exceed` may lose more.
  Trials shorter than the stage's count nothing here; in the draft, bad ones count against a rate;
- the bounds of the stage before are tried again, at this stage's length. If one of them fails
  now, the search goes outwards, each step twice as long as the one before;
- between the bounds it tries the geometric middle or, if the lower one is nearer, the next of
  these steps from there: the first look at the highest rate leaves an upper bound far away.

The upper bound is the lowest rate that does not hold, the lower one the highest below it that
does: a rate that holds above one that does not is no answer (draft, loss inversion).

`binary` is the binary search of RFC 2544: section 26.1 and, for its steps, ETSI GS NFV-TST 009.

Each rate is tried once, at full length: if the device loses more than allowed, the rate goes
down, else up, always to the middle of what is left. RFC 2544 wants trials of 60 s at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tailtap.measure.search.trial import Bounds, Trial, close, rounded, unable
from tailtap.records.search import Reason, SearchSettings, TrialRow

Verdict = Literal["holds", "loses", "unable", "undecided"]

STAGE_WIDTHS = (8, 3, 1)
"""The distance that the bounds of each stage may have, in units of `SearchSettings.precision`."""


def judge(good: float, bad: float, whole: float, exceed: float) -> Verdict:
    """What trials of `good` and `bad` length say about a rate; `whole` is how long to try.

    The load classification of draft-ietf-bmwg-mlrsearch, appendix A, without short trials: once
    with the time that is left taken to be good, once taken to be bad.
    """
    whole = max(whole, good + bad)
    optimistic = bad <= whole * exceed
    pessimistic = whole - good <= whole * exceed
    if optimistic == pessimistic:
        return "holds" if optimistic else "loses"
    return "undecided"


@dataclass(frozen=True)
class _Stage:
    duration: int
    trials: int
    width: float


@dataclass
class _Search:
    """The results so far, and what is asked of them."""

    settings: SearchSettings
    results: list[TrialRow] = field(default_factory=list)

    def try_(self, rate: int, duration: int) -> Generator[Trial, TrialRow, None]:
        self.results.append((yield Trial(rate, duration, max(self.settings.losses))))

    def verdict(self, rate: int, loss: float, stage: _Stage) -> Verdict:
        settings = self.settings
        good = bad = 0
        for result in self.results:
            if result.rate != rate or result.duration_ns < stage.duration or not result.valid:
                continue
            if result.loss > loss:
                bad += result.duration_ns
            else:
                good += result.duration_ns
        found = judge(good, bad, stage.duration * stage.trials, settings.exceed)
        if found == "undecided" and unable(self.results, rate, settings.tries):
            return "unable"
        return found

    def bounds(self, loss: float, stage: _Stage) -> Bounds:
        """What is known at this stage; an upper bound of None is unknown or the range's end."""
        verdicts = {r.rate: self.verdict(r.rate, loss, stage) for r in self.results}
        bad = [rate for rate, found in verdicts.items() if found in ("loses", "unable")]
        upper = min(bad, default=None)
        reason: Reason = "range"
        if upper is not None:
            reason = "generator" if verdicts[upper] == "unable" else "loss"
        good = [rate for rate, found in verdicts.items() if found == "holds"]
        below = [rate for rate in good if upper is None or rate < upper]
        return Bounds(loss, max(below, default=None), upper, reason)


def mlr(settings: SearchSettings) -> Generator[Trial, TrialRow, list[Bounds]]:
    """Search for all losses at once, stage by stage."""
    search = _Search(settings)
    middle = round(math.sqrt(settings.short_ns * settings.trial_ns))
    one, two, three = (settings.precision * width for width in STAGE_WIDTHS)
    stages = [
        _Stage(settings.short_ns, 1, one),
        _Stage(middle, 1, two),
        _Stage(settings.trial_ns, settings.trials, three),
    ]
    guess = settings.high
    for _ in range(2):
        # Not given up early: the search needs what the device forwards in all of it.
        result = yield Trial(guess, settings.short_ns)
        search.results.append(result)
        if result.valid and result.loss <= settings.losses[0]:
            break
        # Where nothing was sent that counts, nothing is known yet.
        aim = result.forwarded if result.achieved_rate else math.sqrt(settings.low * settings.high)
        guess = min(max(round(aim), settings.low), settings.high)
        guess = _readable(guess, settings)
    hints: dict[float, Sequence[int]] = dict.fromkeys(settings.losses, (guess,))
    found: list[Bounds] = []
    for stage in stages:
        found = []
        for loss in settings.losses:
            bounds = yield from _narrow(search, loss, stage, hints[loss])
            found.append(bounds)
            # The lower bound first: if it holds, the search need not go down.
            hints[loss] = [rate for rate in (bounds.lower, bounds.upper) if rate is not None]
    return found


def _narrow(
    search: _Search, loss: float, stage: _Stage, hints: Sequence[int]
) -> Generator[Trial, TrialRow, Bounds]:
    """Try until the bounds for `loss` are as near as `stage` wants them."""
    settings = search.settings
    step = stage.width
    while True:
        bounds = search.bounds(loss, stage)
        lower, upper = bounds.lower, bounds.upper
        if lower == settings.high or upper == settings.low:
            return bounds
        if lower is not None and upper is not None and close(lower, upper, stage.width):
            return bounds
        rate = _hinted(bounds, hints)
        if rate is None:
            rate = _next(settings, bounds, stage, step)
            step *= 2
        while search.verdict(rate, loss, stage) == "undecided":
            yield from search.try_(rate, stage.duration)


def _hinted(bounds: Bounds, hints: Sequence[int]) -> int | None:
    """The first hint that is not decided yet."""
    for hint in hints:
        if (bounds.lower is None or bounds.lower < hint) and (
            bounds.upper is None or hint < bounds.upper
        ):
            return hint
    return None


def _next(settings: SearchSettings, bounds: Bounds, stage: _Stage, step: float) -> int:
    """The rate to try next: a step outwards from the bound that is known, or the middle."""
    lower = settings.low - 1 if bounds.lower is None else bounds.lower
    upper = settings.high + 1 if bounds.upper is None else bounds.upper
    if bounds.upper is None:
        aim = min(lower * (1 + step), settings.high)
    elif bounds.lower is None:
        aim = max(upper / (1 + step), settings.low)
    else:
        aim = min(math.sqrt(lower * upper), lower * (1 + step))
    return rounded(aim, lower, upper, stage.width)


def _readable(rate: int, settings: SearchSettings) -> int:
    return rounded(rate, settings.low - 1, settings.high + 1, settings.precision)


Steps = Generator[Trial, TrialRow, Reason | None]


def binary(settings: SearchSettings) -> Generator[Trial, TrialRow, list[Bounds]]:
    """Search for one loss after the other; what was tried for one counts for the others."""
    results: list[TrialRow] = []
    found = []
    for loss in settings.losses:
        bounds = yield from _search(settings, loss, results)
        found.append(bounds)
    return found


def _search(
    settings: SearchSettings, loss: float, results: list[TrialRow]
) -> Generator[Trial, TrialRow, Bounds]:
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


def _try(settings: SearchSettings, rate: int, loss: float, results: list[TrialRow]) -> Steps:
    """Try a rate unless that has been done; why it does not hold, or None."""
    while True:
        for result in results:
            if result.rate == rate and result.valid:
                return "loss" if result.loss > loss else None
        if unable(results, rate, settings.tries):
            return "generator"
        results.append((yield Trial(rate, settings.trial_ns, max(settings.losses))))


Method = Callable[[SearchSettings], Generator[Trial, TrialRow, list[Bounds]]]
"""Yields trials, is sent the result of each, returns the bounds for each loss of the settings."""

METHODS: Mapping[str, Method] = {"mlr": mlr, "binary": binary}
"""Every method by its name, the default first."""
