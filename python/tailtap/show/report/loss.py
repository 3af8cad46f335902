"""Loss against the packet rate: one curve for each configuration apart from its rate.

Losses lie on a logarithmic axis, as one packet in a million matters as much as one in ten; no loss
at all lies on the axis itself, a decade or more below the least loss that occurred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tailtap.analysis.figures.kinds import Axis
from tailtap.analysis.figures.quantities import RATE as RATES
from tailtap.analysis.figures.quantities import SHARE
from tailtap.analysis.runs.groups import (
    RATE,
    Colours,
    Configuration,
    Member,
    configuration_label,
)
from tailtap.analysis.runs.text import rate_text, share_text

LEAST = 1e-5
"""Where no loss at all lies at most, so that one lost packet in few does not look like many."""
WIDE = 20
"""Rates that lie further apart than this factor stand on a logarithmic axis."""


@dataclass(frozen=True)
class Point:
    """A run: `rate` is at what packets came to the device, in pkt/s, and `loss` their share."""

    member: Member
    asked: int
    rate: float
    loss: float
    valid: bool
    """False when the generator did not send what was asked of it."""


@dataclass(frozen=True)
class LossCurve:
    """The runs that differ only in rate and repeat, by ascending rate."""

    label: str
    light: str
    dark: str
    points: tuple[Point, ...]

    @property
    def lossy(self) -> bool:
        """Whether any of its runs lost a packet."""
        return any(point.loss for point in self.points)

    @property
    def line(self) -> tuple[Point, ...]:
        """The worst valid repeat at each rate that was asked for."""
        worst: dict[int, Point] = {}
        for point in self.points:
            if point.valid and (point.asked not in worst or point.loss > worst[point.asked].loss):
                worst[point.asked] = point
        return tuple(worst[asked] for asked in sorted(worst))


def loss_curves(groups: Sequence[Configuration]) -> list[LossCurve]:
    """What a figure shows: `rate_curves`, or nothing where no packet was lost."""
    curves = rate_curves(groups)
    return curves if any(point.loss for curve in curves for point in curve.points) else []


def lossless(curves: Sequence[LossCurve]) -> str:
    """The sentence about those `curves` along which no packet was lost; empty without any."""
    none = [curve for curve in curves if not curve.lossy]
    if not none:
        return ""
    points = [point for curve in none for point in curve.points]
    rates = [point.asked for point in points if point.valid]
    if not rates:
        return ""
    of = "" if len(none) == len(curves) else f" of {', '.join(curve.label for curve in none)}"
    invalid = len(points) - len(rates)
    runs = f"{invalid} invalid run does" if invalid == 1 else f"{invalid} invalid runs do"
    return (
        f"No packet was lost in any of the {len(rates)} runs{of}, at {rate_text(min(rates))} to "
        f"{rate_text(max(rates))}{f'; {runs} not count' if invalid else ''}."
    )


def rate_curves(groups: Sequence[Configuration]) -> list[LossCurve]:
    """The curves of those configurations that were measured at two rates or more."""
    found: dict[tuple[object, ...], list[Point]] = {}
    labels: dict[tuple[object, ...], str] = {}
    wires: set[tuple[object, ...]] = set()
    for group in groups:
        rest = {key: value for key, value in group.variables.items() if key != RATE}
        folder = group.origin.path if group.origin else None
        key: tuple[object, ...] = (folder, group.wire, *rest.items())
        points = [point for member in group.members if (point := _point(member))]
        if not points:
            continue
        found.setdefault(key, []).extend(points)
        labels[key] = configuration_label(group.members[0].run, "loss", (RATE,))
        if group.wire:
            wires.add(key)
    curves, colours = [], Colours()
    for key, points in found.items():
        if len({point.asked for point in points}) < 2:
            continue
        light, dark = colours.next(wire=key in wires)
        points.sort(key=lambda point: (point.asked, point.member.run.repeat))
        curves.append(LossCurve(labels[key], light, dark, tuple(points)))
    return curves


def _point(member: Member) -> Point | None:
    loss, run = member.evaluation.loss, member.run
    if loss is None or run.rate is None:
        return None
    sent = run.generator.achieved_rate if run.generator else None
    return Point(member, run.rate, sent or run.rate, loss, run.valid is not False)


def axes_of(curves: Sequence[LossCurve]) -> tuple[Axis, Axis]:
    """Rates and losses that `curves`, of which there is one at least, fit on.

    No loss lies where the label 0 is, the first of the labels of losses.
    """
    points = [point for curve in curves for point in curve.points]
    low, high = min(p.rate for p in points), max(p.rate for p in points)
    log = high > WIDE * low
    ends = (low / 1.3, high * 1.3) if log else (0, high * 1.06)
    least = min((p.loss for p in points if p.loss), default=1.0)
    floor = min(10.0 ** (math.floor(math.log10(least)) - 1), LEAST)
    decades = range(round(math.log10(floor)) + 1, 1)
    ticks = {floor: "0"} | {10.0**d: share_text(10.0**d) for d in decades}
    return (
        Axis("Packet rate before the device", RATES, log, *ends),
        Axis("Lost packets", SHARE, True, floor / 1.2, 1.2, ticks),
    )
