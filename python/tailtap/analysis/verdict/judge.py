"""One requirement, held against one run.

Three answers: it holds, it is violated, or it is not shown: a run of too few packets, an invalid
one, a model that is refused. The reason is one line in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from tailtap.analysis.tail.analysis import OF_RUN, TailModel
from tailtap.analysis.tail.assessment import REFUSALS, level_text
from tailtap.analysis.verdict import shares
from tailtap.analysis.verdict.evidence import Evidence, events_of, judged
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.base.units import (
    exact_time,
    format_count,
    format_rate,
    format_share,
    format_time,
    format_wait,
)
from tailtap.records.verdict import Answer, RunFinding

SECOND_NS = 1_000_000_000
#: Quantities that are latencies, or about such.
TIMED = frozenset(("percentile", "mean", "max", "reliability", "return_level"))
#: Quantities of the packets that arrived alone.
OF_ARRIVED = frozenset(("percentile", "mean", "max", "reordered", "return_level"))
#: The confidence of verdicts unless asked otherwise.
CONFIDENCE = 0.95


def judge(requirement: Requirement, run: Evidence, confidence: float = CONFIDENCE) -> RunFinding:
    """Hold one requirement against one run. `confidence` is that of bounds, below 1."""
    refusal = run.refusal or unclaimable(requirement, run)
    if refusal:
        found = _finding(requirement, run, "not shown", refusal)
    else:
        found = JUDGES[requirement.quantity](requirement, run, confidence)
    found.doubts = list(dict.fromkeys([*(one.code for one in run.warnings), *found.doubts]))
    return found


def unclaimable(requirement: Requirement, run: Evidence) -> str:
    """Why nothing can be said of a limit: the clocks leave more open than it is; or empty."""
    if requirement.quantity not in TIMED:
        return ""
    claimed = requirement.argument if requirement.quantity == "reliability" else requirement.limit
    open_ns = 2 * run.within.clocks_ns
    if run.refusal is not None or open_ns <= (claimed or 0):
        return ""
    return (
        f"{run.name}: '{requirement.text}' is about less than the clocks of its captures leave "
        f"open, {format_time(open_ns)}: stamp both sides by one clock, or evaluate again with a "
        "narrower --egress-ahead, or --back of quicker packets"
    )


def _finding(
    requirement: Requirement, run: Evidence, answer: Answer, reason: str, measured: str = "",
    **figures: Any,
) -> RunFinding:  # fmt: skip
    return RunFinding(
        run=run.name, answer=answer, reason=reason, measured=measured, figures=figures, doubts=[]
    )


def _percentile(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """Of packets that arrived. Holds when few enough of them are at the limit."""
    limit, p = int(requirement.limit), requirement.argument or Fraction(0)
    late, packets = run.late(limit, strict=requirement.strict), run.packets
    if late is None or not packets:
        return _unknown(requirement, run)
    hidden = run.hidden
    value = run.percentile(p)
    measured = "" if value is None else _time_words(value, run)
    allowed = float(1 - p)
    fewest, most = run.gone or (0, 0)
    # What published counts call lost may lie outside of the other capture.
    lost = fewest if run.published or run.errors is not None else most
    share = lost / (packets + lost)
    if share > allowed:
        return _finding(
            requirement, run, "not shown",
            f"{format_share(share)} of the packets {_gone_words(run)}, more than "
            f"the {format_share(allowed)} "
            "above the percentile: their latency is unknown; require reliability(…), or loss",
            measured, packets=packets, lost=lost,
        )  # fmt: skip
    return _of_share(
        requirement, run, (late[0], late[1] + hidden), packets + hidden, allowed,
        run.effect(limit), confidence, _late_words(requirement), measured,
    )  # fmt: skip


def _reliability(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """Of all packets: a lost one never was in time."""
    deadline = int(requirement.argument or 0)
    late, lost = run.late(deadline, strict=False), run.gone
    if late is None or run.packets is None or lost is None or not run.packets + lost[1]:
        return _unknown(requirement, run)
    # Whether these were in time nobody knows: they have no partner, or one of an earlier stamp.
    unknown = run.counts.get("duplicate_ingress", 0) + run.counts.get("noncausal", 0)
    fewest, most = late[0] + lost[0], late[1] + lost[1] + unknown
    packets = run.packets + lost[1] + unknown
    measured = format_share(1 - most / packets)
    if fewest < most:
        measured += f" to {format_share(1 - fewest / packets)}"
    what = f"later than {format_time(deadline)} or {'lost' if run.errors is None else 'failed'}"
    if requirement.limit == 1:
        return _of_run(requirement, run, (fewest, most), packets, confidence, what, measured)
    return _of_share(
        requirement, run, (fewest, most), packets, float(1 - requirement.limit),
        run.effect(deadline + 1), confidence, what, measured, lost=lost[1],
    )  # fmt: skip


def _max(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """Of the run: no packet that arrived was late. Says what that is worth elsewhere."""
    late, packets = run.late(int(requirement.limit), strict=requirement.strict), run.packets
    if run.maximum is None:
        return _unknown(requirement, run)
    measured = _time_words(run.maximum, run)
    # Percentiles that end before the last packet do not count the late ones; the maximum does.
    allowed = requirement.limit - (1 if requirement.strict else 0)
    # The largest may be of a failure.
    surely = run.maximum - run.within.ns > allowed and not run.among
    maybe = run.maximum + run.within.ns > allowed
    hidden = run.hidden
    if late is None or not packets:
        answer: Answer = "violated" if surely else "not shown" if maybe or hidden else "holds"
        reason = f"the largest latency is {measured}"
        if answer == "not shown":
            reason += f"; {_unsure('max', run, '')}"
        return _finding(requirement, run, answer, reason, measured)
    fewest, most = max(late[0], 1) if surely else 0, max(late[1], 1) if maybe else 0
    fewest = late[0] if run.among else fewest
    bounds = (fewest, most + hidden)
    return _of_run(
        requirement, run, bounds, packets + hidden, confidence, _late_words(requirement), measured
    )


def _mean(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """Of the run alone: nothing bounds the mean of a tail that nobody knows."""
    if run.mean is None or not run.packets:
        return _unknown(requirement, run)
    hidden = run.hidden
    # The others may have taken no time, or any.
    least = run.mean * run.packets / (run.packets + hidden) - run.within.ns
    most = math.inf if hidden else run.mean + run.within.ns
    if run.among:  # failures that took no time, or all of it
        least, most = 0.0, run.mean * (run.packets + run.among) / run.packets
    good = [
        mean < requirement.limit or (mean == requirement.limit and not requirement.strict)
        for mean in (least, most)
    ]
    answer: Answer = "holds" if all(good) else "not shown" if any(good) else "violated"
    measured = _time_words(round(run.mean), run)
    reason = f"the mean of {format_count(run.packets, 'packet')} is {measured}; of this run alone"
    if answer == "not shown":
        reason += f"; {_unsure('mean', run, '')}"
    return _finding(
        requirement, run, answer, reason, measured, packets=run.packets, mean_ns=run.mean
    )


def _loss(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    if run.lost is None or run.packets is None:
        return _unknown(requirement, run)
    whole = run.packets + run.lost[1]
    return _counted(requirement, run, run.lost, whole, confidence, "lost")


def _errors(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    if run.errors is None or not run.offered:
        return _unknown(requirement, run)
    found = (run.errors, run.errors)
    return _counted(requirement, run, found, run.offered, confidence, "failed", "request")


def _duplicates(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    count, whole = run.counts.get("duplicate_egress"), run.counts.get("egress")
    if count is None or whole is None:
        return _unknown(requirement, run)
    # What was not read may be a copy; and so may be what matches nothing, if packets before the
    # device were left out or not read, without which a copy may be taken for a further one.
    before = run.before.packets
    unmatched = run.counts.get("unmatched_egress", 0)
    known = not before and not run.counts.get("duplicate_ingress")
    most = count + run.after.packets + (0 if known else unmatched)
    whole += run.after.packets
    what = "further copies of others"
    return _counted(requirement, run, (max(count - before, 0), most), whole, confidence, what)


def _reordered(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    count, whole = run.counts.get("reordered"), run.packets
    if count is None or whole is None:
        return _unknown(requirement, run)
    hidden = run.hidden
    # One packet that overtook makes all reordered that it passed.
    most = whole + hidden if hidden else min(count + run.unordered(), whole)
    return _counted(requirement, run, (count, most), whole + hidden, confidence, "reordered")


def _counted(
    requirement: Requirement,
    run: Evidence,
    found: tuple[int, int],
    packets: int,
    confidence: float,
    what: str,
    unit: str = "packet",
) -> RunFinding:
    """`found` (fewest, most) of so many packets; where none is allowed, of the run."""
    if not packets:
        return _unknown(requirement, run)
    measured = f"{found[1]:,} of {packets:,}" if found[1] else "0"
    if found[0] < found[1]:
        measured = f"{found[0]:,} to {measured}"
    if requirement.limit == 0:
        return _of_run(requirement, run, found, packets, confidence, what, measured, unit)
    # Nothing says where lost packets were; they are taken to cluster like the latest ones.
    effect = run.effect(run.maximum + 1) if run.maximum is not None else 1.0
    return _of_share(
        requirement, run, found, packets, float(requirement.limit), effect, confidence, what,
        measured, unit,
    )  # fmt: skip


def _gap(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """Gaps between packets after the device, known to a bucket."""
    limit, p = int(requirement.limit), requirement.argument or 0
    fewest, most, gaps = run.late_gaps(limit, strict=requirement.strict)
    if not gaps or run.gaps is None:
        return _unknown(requirement, run)
    what = f"{_late_words(requirement)} (in buckets of {format_time(run.gaps.width)})"
    if p == 1:
        last = int(run.gaps.edges[-1])
        return _of_run(
            requirement, run, (fewest, most), gaps, confidence, what, format_time(last), "gap"
        )
    return _of_share(
        requirement, run, (fewest, most), gaps, float(1 - p), 1.0, confidence, what, "", "gap"
    )


def _blocked(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """How long nothing came out around events."""
    events = events_of(requirement, run)
    if not events:
        known = ", ".join(dict.fromkeys(event.name for event in run.events))
        reason = f"no event {requirement.of} happened" if known else "no event happened"
        return _finding(requirement, run, "not shown", reason + (f": known: {known}" * bool(known)))
    answer, reason, measured = judged(requirement, events)
    return _finding(requirement, run, answer, reason, measured, events=len(events))


def _return_level(requirement: Requirement, run: Evidence, confidence: float) -> RunFinding:
    """What the tail model says is exceeded once in a time, by its 95 % interval."""
    horizon = int(requirement.argument or 0)
    model = run.model(horizon)
    if model is None:
        return _finding(requirement, run, "not shown", run.without_tail)
    level = model.levels[0].level
    if level is None:
        found = _finding(requirement, run, "not shown", _no_level(model, horizon))
        found.doubts = _model_doubts(model)
        return found
    text = level_text(level)
    answer: Answer = "not shown"
    if level.high is not None and level.low is not None:
        if level.high < requirement.limit and not run.hidden:
            answer = "holds"
        elif level.low > requirement.limit:
            answer = "violated"
    reason = f"once in {exact_time(horizon)} at {format_rate(model.tail.rate)}: {text}"
    if answer == "not shown":
        wait = f"measure longer; {run.times_unsure}" if run.within.ns else "measure longer"
        why = level.high is not None and level.high < requirement.limit and run.hidden_why
        reason += f"; {why}" if why else f"; the interval does not decide it: {wait}"
    found = _finding(
        requirement, run, answer, reason, text,
        level_ns=level.value, low_ns=level.low, high_ns=level.high, packets=model.tail.packets,
    )  # fmt: skip
    found.doubts = _model_doubts(model)
    return found


def _no_level(model: TailModel, horizon: int) -> str:
    chosen = model.chosen
    if chosen is not None and chosen.refused:
        return "the tail model is refused: " + "; ".join(
            flag.message for flag in chosen.flags if flag.code in REFUSALS
        )
    told = [w.message for w in model.warnings if w.code in ("no-model", "near", "endless")]
    return "; ".join(told) or f"the tail model gives no level for {exact_time(horizon)}"


def _model_doubts(model: TailModel) -> list[str]:
    return [w.code for w in model.warnings if w.code not in OF_RUN | {"no-model"}]


def _of_share(
    requirement: Requirement,
    run: Evidence,
    late: tuple[int, int],
    packets: int,
    allowed: float,
    effect: float,
    confidence: float,
    what: str,
    measured: str,
    unit: str = "packet",
    **more: Any,
) -> RunFinding:
    """Whether at most a share of `packets` is `what`, of which `late` are (fewest, most)."""
    answer = shares.judge(late, packets, allowed, effect, confidence)
    fewest, most = late
    count = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    seen = f"{count} of {format_count(packets, unit)} {what}"
    bound = shares.upper(most / effect, packets / effect, confidence)
    figures = {
        "packets": packets, "late": most, "late_at_least": fewest, "allowed": allowed,
        "design_effect": effect, "upper": bound,
        "lower": shares.lower(fewest, packets, confidence), **more,
    }  # fmt: skip
    clusters = f", counted in clusters of {effect:.3g}" if effect >= 1.05 else ""
    if answer == "holds":
        reason = (
            f"{seen}: at most {format_share(bound)} with {format_share(confidence)} confidence"
            f"{clusters}, {format_share(allowed)} allowed"
        )
    elif answer == "violated":
        reason = f"{seen}: {format_share(fewest / packets)}, {format_share(allowed)} allowed"
    elif shares.judge((fewest, fewest), packets, allowed, effect, confidence) == "holds":
        reason = f"{seen}: {_unsure(requirement.quantity, run, unit)}"
    else:
        total = max(shares.needed(most, allowed, effect, confidence), packets)
        figures |= {"more_packets": total - packets}
        wait = ""
        if run.rate:
            figures |= {"more_seconds": (total - packets) / run.rate}
            wait = f": {format_wait(total / run.rate)} at {format_rate(run.rate)}"
        # The length of the whole run, as runs are judged one by one and never added up.
        such = f"no more than these {most:,}" if most else "none"
        reason = (
            f"{seen}{clusters}: too few to tell; one run of {format_count(total, unit)} with "
            f"{such} would show it{wait}"
        )
    return _finding(requirement, run, answer, reason, measured, **figures)


def _of_run(
    requirement: Requirement,
    run: Evidence,
    late: tuple[int, int],
    packets: int,
    confidence: float,
    what: str,
    measured: str,
    unit: str = "packet",
) -> RunFinding:
    """Whether none of the run's `packets` is `what`, of which `late` are (fewest, most)."""
    fewest, most = late
    whole = format_count(packets, unit)
    figures: dict[str, Any] = {"packets": packets, "late": most, "late_at_least": fewest}
    if not most:
        effect = 1.0 if unit == "gap" else run.effect((run.maximum or 0) + 1)
        bound = shares.upper(0, packets / effect, confidence)
        reason = (
            f"none of {whole} {what}; beyond this run at most {format_share(bound)} with "
            f"{format_share(confidence)} confidence"
        )
        return _finding(requirement, run, "holds", reason, measured, upper=bound, **figures)
    if fewest:
        reason = f"{most:,} of {whole} {what}"
        return _finding(requirement, run, "violated", reason, measured, **figures)
    reason = f"{most:,} of {whole} may be {what}: {_unsure(requirement.quantity, run, unit)}"
    return _finding(requirement, run, "not shown", reason, measured, **figures)


def _unsure(quantity: str, run: Evidence, unit: str) -> str:
    """Why there is a fewest and a most."""
    if unit == "gap":
        unsure = run.between_why
    elif run.among:
        unsure = f"up to {run.among:,} of its latencies are of requests that failed"
    elif quantity in OF_ARRIVED:
        unsure = run.hidden_why
    else:
        unsure = run.loss_unsure if run.lost and run.lost[1] else ""
        unsure = unsure or run.hidden_why
    return unsure or run.times_unsure or "what is known of them does not decide it"


def _gone_words(run: Evidence) -> str:
    return "were lost" if run.errors is None else "failed or were not answered"


def _time_words(ns: int, run: Evidence) -> str:
    return format_time(ns) + (f" ± {format_time(run.within.ns)}" if run.within.ns else "")


def _late_words(requirement: Requirement) -> str:
    limit = format_time(int(requirement.limit))
    return f"at {limit} or above" if requirement.strict else f"above {limit}"


def _unknown(requirement: Requirement, run: Evidence) -> RunFinding:
    if run.packets == 0:
        reason = "no packet was seen on both sides"
        reason = "no answer of it is known to be good" if run.errors else reason
    elif run.packets is None and requirement.quantity == "loss" and "lost" in run.counts:
        reason = (
            f"{run.counts['ingress']:,} packets were sent and {run.counts['egress']:,} received: "
            "counts alone do not say which arrived"
        )
    elif run.packets is None and not run.percentiles:
        reason = "its files hold no latencies"
    elif run.packets is None:
        reason = "its files do not say how many packets were measured"
    else:
        reason = f"its files do not tell {requirement.quantity.replace('_', ' ')}"
    return _finding(requirement, run, "not shown", reason)


JUDGES: Mapping[str, Callable[[Requirement, Evidence, float], RunFinding]] = {
    "percentile": _percentile,
    "mean": _mean,
    "max": _max,
    "reliability": _reliability,
    "return_level": _return_level,
    "loss": _loss,
    "errors": _errors,
    "duplicates": _duplicates,
    "reordered": _reordered,
    "gap": _gap,
    "blocked": _blocked,
}
