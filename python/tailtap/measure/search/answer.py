"""The answer of a search, and how reliable it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailtap.base.units import format_rate
from tailtap.measure.search.trial import Bounds
from tailtap.records.record import Notice
from tailtap.records.search import AtRate, SearchAnswer, SearchSettings, TrialRow

CONFIDENCE = 0.95
"""The confidence of the upper limit of the loss."""


def loss_limit(lost: int, packets: int) -> float | None:
    """The upper limit of a loss ratio with `CONFIDENCE`, one-sided, after Clopper and Pearson.

    Exact for packets that are lost independently (Biometrika 26, 1934); losses come in bursts, so
    it is the least that must be allowed for. None without packets.
    """
    from scipy import special

    if packets == 0:
        return None
    if lost >= packets:
        return 1.0
    return float(special.betaincinv(lost + 1, packets - lost, CONFIDENCE))


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
