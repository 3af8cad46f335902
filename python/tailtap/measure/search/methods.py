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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tailtap.base.errors import InputError
from tailtap.base.units import format_rate, format_time
from tailtap.records.record import Notice
from tailtap.records.search import AtRate, Reason, SearchAnswer, SearchSettings, TrialRow


def settings_of(
    losses: Sequence[float],
    low: int,
    high: int,
    precision: float = 0.02,
    *,
    method: str = "mlr",
    trial_ns: int = 2_000_000_000,
    trials: int = 3,
    exceed: float = 0.5,
    short_ns: int = 500_000_000,
    tries: int = 3,
) -> SearchSettings:
    """The settings of a search. Raises `InputError` for those that make no sense.

    `losses` are allowed ratios, ascending: one answer for each. `precision` is the distance that
    the bounds may have, as a share of the upper one. A full trial, of `trial_ns`, decides about a
    rate. With `mlr` so many `trials` do, of which the share `exceed`, by time, may lose more than
    allowed, and one of `short_ns` only guides the search. So many `tries` may fail at a rate before
    the search gives that rate up.
    """
    for is_wrong, why in (
        (
            not losses or any(not 0 <= loss < 1 for loss in losses),
            "--loss must be at least 0 and below 100 %: give 0 or 0.5%",
        ),
        (
            list(losses) != sorted(set(losses)),
            "--loss is given twice with the same value: leave one out",
        ),
        (not 1 <= low < high, f"--from {format_rate(low)} is not below --to {format_rate(high)}"),
        (not 0.0001 <= precision < 1, "--precision must be at least 0.01 % and below 100 %"),
        (not 0 <= exceed < 1, "--exceed must be at least 0 and below 1"),
        (trials < 1 or tries < 1, "--trials must be at least 1"),
        (
            not 0 < short_ns <= trial_ns,
            (
                f"--short {format_time(short_ns)} must be above zero and not longer than --trial "
                f"{format_time(trial_ns)}"
            ),
        ),
    ):
        if is_wrong:
            raise InputError(why)
    return SearchSettings(
        method=method, losses=list(losses), low=low, high=high, precision=precision,
        trial_ns=trial_ns, trials=trials, exceed=exceed, short_ns=short_ns, tries=tries,
    )  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """Something to try."""

    rate: int
    duration_ns: int
    give_up: float | None = None
    """The loss of a trial above which the rest of the trial cannot change any answer."""


def result(
    trial: Trial,
    packets: int,
    lost: int,
    achieved: float,
    doubt: str | None = None,
    *,
    given_up: bool = False,
) -> TrialRow:
    """The result of a trial, which has no number and no name yet.

    `packets` are those before the device or, where the trial was given up, those that it would have
    sent. `lost` did not come out; of a trial that was given up, at least so many. Packets came to
    the device at the rate `achieved`, in pkt/s. `doubt` says why the generator did not send what
    was asked of it.
    """
    return TrialRow(
        number=0, slug="", rate=trial.rate, duration_ns=trial.duration_ns, give_up=trial.give_up,
        packets=packets, lost=lost, loss=lost / packets if packets else 1.0,
        achieved_rate=achieved, doubt=doubt, given_up=given_up, warnings=[],
    )  # fmt: skip


@dataclass(frozen=True)
class Bounds:
    """The bounds of the highest rate with at most `loss`: at least `lower`, below `upper`."""

    loss: float
    lower: int | None
    """The highest rate that was found to hold; None when not even the lowest does."""
    upper: int | None
    """The lowest rate above it that was found not to hold; None at the end of the range."""
    reason: Reason


def unable(results: Iterable[TrialRow], rate: int, tries: int) -> bool:
    """Whether the search takes the generator to be too slow for `rate`.

    Each trial in which it did send the rate allows `tries` more: a busy machine spoils some.
    """
    there = [result.valid for result in results if result.rate == rate]
    return there.count(False) >= tries * (1 + there.count(True))


def rounded(rate: float, lower: int, upper: int, precision: float) -> int:
    """`rate` rounded to few digits, strictly between `lower` and `upper`.

    The rounding is finer than a tenth of the precision. Where no round number lies between, the
    result is exact.
    """
    digits = max(0, math.floor(math.log10(max(rate * precision, 1))) - 1)
    step = int(10**digits)
    near = round(rate / step) * step
    if lower < near < upper:
        return near
    return min(max(round(rate), lower + 1), upper - 1)


def close(lower: int, upper: int, width: float) -> bool:
    """Whether two bounds are as near as asked, or as integers can be."""
    return upper - lower <= max(width * upper, 1)


CONFIDENCE = 0.95


def loss_limit(lost: int, packets: int) -> float | None:
    """The upper limit of a loss ratio with `CONFIDENCE`, one-sided, after Clopper and Pearson.

    Exact for packets that are lost independently (Biometrika 26, 1934); losses come in bursts, so
    it is the least that must be allowed for. None without packets.
    """
    from tailtap.analysis.verdict.shares import upper  # with numpy

    return upper(lost, packets, CONFIDENCE) if packets else None


def answer(
    settings: SearchSettings,
    bounds: Bounds,
    results: Sequence[TrialRow],
    variables: Mapping[str, Any] | None = None,
) -> SearchAnswer:
    """The answer for the `bounds` of a search, from the `results` of all of its trials.

    `variables` are the varied values of the configuration that was tried, as written. The loss at
    the rate found lies below `loss_limit` if packets are lost independently of each other.
    """
    lower, upper = (
        None if rate is None else _at(rate, bounds.loss, settings, results)
        for rate in (bounds.lower, bounds.upper)
    )
    limit = None if lower is None else loss_limit(lower.lost, lower.packets)
    width = None
    if bounds.lower is not None and bounds.upper is not None:
        width = (bounds.upper - bounds.lower) / bounds.upper
    return SearchAnswer(
        variables=dict(variables or {}),
        loss=bounds.loss,
        rate=bounds.lower,
        upper=bounds.upper,
        reason=bounds.reason,
        width=width,
        loss_limit=limit,
        at_rate=lower,
        at_upper=upper,
        warnings=list(_warnings(settings, bounds, lower, limit, results)),
    )


def _at(rate: int, loss: float, settings: SearchSettings, results: Sequence[TrialRow]) -> AtRate:
    there = [result for result in results if result.rate == rate]
    full = [r for r in there if r.valid and r.duration_ns >= settings.trial_ns]
    return AtRate(
        rate=rate,
        trials=len(full),
        exceeding=sum(result.loss > loss for result in full),
        duration_ns=sum(result.duration_ns for result in full),
        packets=sum(result.packets for result in full),
        lost=sum(result.lost for result in full),
        invalid=sum(not result.valid for result in there),
    )


def _warnings(
    settings: SearchSettings,
    bounds: Bounds,
    lower: AtRate | None,
    limit: float | None,
    results: Sequence[TrialRow],
) -> Iterator[Notice]:
    full = [r for r in results if r.valid and r.duration_ns >= settings.trial_ns]
    if bounds.reason == "generator":
        edge = bounds.upper or settings.high
        reasons = [r.doubt for r in results if r.rate == edge and r.doubt is not None]
        yield Notice(
            "generator-limit",
            f"{format_rate(edge)} is a limit of the generator, not of the device, which may hold "
            f"more: in each of {len(reasons)} trials {reasons[-1]}; give the generator a CPU of "
            "its own, or try another traffic.generator",
        )
        able = [r.rate for r in results if r.valid and r.rate > edge]
        if able:
            yield Notice(
                "generator-unsteady",
                f"the generator could send {format_rate(max(able))} once and not "
                f"{format_rate(edge)}: something else was at work on this machine",
            )
    if lower is None:
        if bounds.reason == "loss":
            yield Notice(
                "none-holds",
                f"even at {format_rate(settings.low)} the device lost more than allowed: lower "
                "--from, or allow more with --loss",
            )
        return
    if bounds.upper is None:
        yield Notice(
            "range-end",
            f"nothing above {format_rate(settings.high)} was tried: the device may hold more; "
            "raise --to",
        )
    if lower.exceeding:
        yield Notice(
            "trials-disagree",
            f"{lower.exceeding} of {lower.trials} trials at {format_rate(lower.rate)} lost more "
            f"than allowed; --exceed {settings.exceed:g} permits that, "
            "--exceed 0 does not",
        )
    lossy = sorted({r.rate for r in full if r.rate < lower.rate and r.loss > bounds.loss})
    if lossy:
        yield Notice(
            "loss-below",
            f"more than allowed was lost at {_rates(lossy)} too, below the rate that was found: "
            "loss does not only depend on the rate here; longer trials (--trial) tell",
        )
    upper = bounds.upper
    inverted = sorted(
        {r.rate for r in full if upper is not None and r.rate > upper and r.loss <= bounds.loss}
    )
    if inverted and bounds.reason == "loss":
        yield Notice(
            "loss-inversion",
            f"no more than allowed was lost at {_rates(inverted)}, above a rate that does not "
            "hold: the lowest rate that does not hold counts",
        )
    if bounds.loss > 0 and limit is not None and limit > bounds.loss:
        yield Notice(
            "loss-unproven",
            f"the loss at {format_rate(lower.rate)} may be as high as {100 * limit:.3g} % "
            f"({100 * CONFIDENCE:g} % confidence): more or longer trials (--trials, "
            "--trial) tell",
        )


def _rates(rates: Sequence[int]) -> str:
    shown = ", ".join(format_rate(rate) for rate in rates[:3])
    return shown + (f" and {len(rates) - 3} more rates" if len(rates) > 3 else "")


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
        guess = rounded(guess, settings.low - 1, settings.high + 1, settings.precision)
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
            search.results.append((yield Trial(rate, stage.duration, max(settings.losses))))


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
