"""Both directions of two captures: told apart, evaluated each by itself, and never mixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

from tailtap import _core
from tailtap.analysis.evaluation.clocks import Clocks, aligned, known
from tailtap.analysis.evaluation.model import Evaluation
from tailtap.analysis.evaluation.settings import Settings, sides_of
from tailtap.analysis.evaluation.sources import Source
from tailtap.base.errors import InputError, WrongValue
from tailtap.records.evaluation import Nanoseconds
from tailtap.records.record import Notice

Direction = Literal["there", "back", "both"]
"""What can be asked for; ``both`` does not look for directions and takes all packets as one."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
Pair = tuple[Source, Source]
"""A side before the device, and one behind it."""
Run = Callable[[Settings, Source, Source], Evaluation]
"""Evaluates a pair, as `evaluate.evaluate_by` does."""


def evaluate_directions(
    run: Run,
    settings: Settings,
    ingress: Source,
    egress: Source,
    *,
    direction: Direction | None = None,
    back: Pair | None = None,
) -> Evaluation:
    """Evaluate two captures by `run`; where they hold both directions, each by itself.

    The way there is the result, and the way back its `back`; or one of them, by `direction`. By
    `back`, captures of packets that went the other way, two clocks are aligned. Without it, and
    where `settings` do not say how the clocks are, the packets of both directions align them if
    they show that the clocks differ.

    Raises `InputError` for captures that cannot be evaluated, and for those that have one direction
    only where `direction` asks for the way back.
    """
    if direction is not None and direction not in DIRECTIONS:
        raise WrongValue("--direction", direction, f"give {', '.join(DIRECTIONS)}")
    found = None if direction == "both" else _core.both_ways(ingress, egress, settings.matching)
    if found is None:
        if direction == "back":
            raise InputError(
                f"--direction back: no packets go both ways in {ingress.name} and {egress.name}"
            )
        if back is not None:
            clocks = _aligned((ingress, egress), _one_way(back, settings), settings)
            settings = replace(settings, clocks=clocks)
        return run(settings, ingress, egress)
    before, after = found["ways"]
    forth = (ingress.going(before, back=False), egress.going(after, back=False))
    other = (ingress.going(before, back=True), egress.going(after, back=True))
    told = "both captures hold both directions, which are told apart"
    theirs = settings
    if found["links"]:
        other = (other[1], other[0])
        theirs = _exchanged(settings)
        differ = settings.clocks is None and min(found["least_ns"]) < 0
        if back is not None or differ:
            by = other if back is None else _one_way(back, settings)
            settings = replace(
                settings, clocks=_aligned(forth, by, settings, found_within=back is None)
            )
            if direction != "there":
                theirs = replace(theirs, clocks=_aligned(other, forth, theirs, found_within=True))
        if differ and back is None:
            told += "; their clocks differ, and were aligned by the packets of both"
    else:
        told += ": there is where the first packet between two ends went"
    if direction == "back":
        return _telling(run(theirs, *other), told)
    there = _telling(run(settings, *forth), told)
    if direction == "there":
        return there
    try:
        return replace(there, back=run(theirs, *other))
    except InputError as error:
        return _telling(there, f"the way back cannot be evaluated: {error}")


def _one_way(back: Pair, settings: Settings) -> Pair:
    """Those that went from the first to the second capture, where these hold both directions."""
    found = _core.both_ways(*back, _exchanged(settings).matching)
    if found is None or not found["links"]:
        return back
    before, after = found["ways"]
    return back[0].going(before, back=False), back[1].going(after, back=False)


def _exchanged(settings: Settings) -> Settings:
    """The same for captures that are exchanged. Only clocks known by an interval can be."""
    exchanged: dict[Nanoseconds | None, Nanoseconds] = {"ingress": "egress", "egress": "ingress"}
    nanoseconds = exchanged.get(settings.nanoseconds, settings.nanoseconds)
    clocks = settings.clocks
    if clocks is not None:
        [(least_ns, most_ns)] = clocks.record.ahead_ns
        clocks = known(-most_ns, -least_ns)
    settings = replace(settings, nanoseconds=nanoseconds, clocks=clocks)
    if settings.key_after is None:
        return settings
    return replace(settings, key=settings.key_after, key_after=settings.key)


def _aligned(pair: Pair, back: Pair, settings: Settings, *, found_within: bool = False) -> Clocks:
    return aligned(
        *pair,
        back,
        key=settings.key,
        format=settings.format,
        nanoseconds=sides_of(settings.nanoseconds),
        key_after=settings.key_after,
        stamps=settings.stamps,
        found_within=found_within,
    )


def _telling(found: Evaluation, text: str) -> Evaluation:
    return replace(found, warnings=[*found.warnings, Notice("both-directions", text)])
