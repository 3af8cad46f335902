"""The standard figures as specifications, of configurations of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tailtap.analysis.evaluation import Evaluation
from tailtap.analysis.evaluation.model import Latencies
from tailtap.analysis.evaluation.values import HEAVY_LOSS, KEPT_LOSSES
from tailtap.analysis.figures.curves import bins_per_decade, curve_of
from tailtap.analysis.figures.kinds import FLOOR, KINDS, Axis, Trace
from tailtap.analysis.figures.quantities import NUMBER
from tailtap.analysis.figures.specification import (
    BEFORE,
    Entry,
    Form,
    Mark,
    Panel,
    Series,
    Specification,
    in_rows,
)
from tailtap.analysis.runs.groups import Configuration, Member, configurations
from tailtap.analysis.runs.reader import experiment_of
from tailtap.analysis.runs.run import Floats, Integers
from tailtap.analysis.runs.text import count_text, rate_text, share_text
from tailtap.base.errors import InputError
from tailtap.show.report.loss import axes_of, loss_curves
from tailtap.show.report.readings import moments

Groups = Sequence[Configuration]
STEPS, STEPS_PER_DECADE = 4000, 60
"""Losses over time have so many places for marks, from left to right and in each decade."""
PANELLED = ("worst", "losses", "gaps", "rates", "latency")
"""The figures with a panel for each configuration."""


def standard_figures(groups: Groups) -> Iterator[Specification]:
    """The figures that every report has, and those of losses where packets were lost."""
    shown = {"losses": bool(lossy(groups)), "loss": bool(loss_curves(groups))}
    for name in ("hdr", *PANELLED, "loss"):
        if shown.get(name, True):
            yield FIGURES[name](groups)


def hdr(groups: Groups, bottom: float | None = None) -> Specification:
    """Latency over percentile of all runs; latencies begin at `bottom` (ns), or at the smallest."""
    kind = KINDS["hdr"]
    marks: list[Mark] = []
    for place, member in _members(groups):
        marks += _marks(place, member, "hdr", "line", _traces("hdr", member))
        curve = curve_of(member.undisturbed) if member.undisturbed else None
        if curve is not None:
            x, y = curve.x[: curve.split], curve.y[: curve.split].astype(float)
            mark = Mark(place, "line", "undisturbed", x, y, supported=curve.split)
            marks.append(replace(mark, member=member.index))
    names = [f"{one.label} (tail lost)" if one.lost_heavily else one.title for one in groups]
    legend = [
        Entry(name, one.light, "line", one.dash, thin=one.origin is not None)
        for name, one in zip(names, groups, strict=True)
    ]
    return Specification(
        "hdr",
        kind.title,
        kind.x,
        replace(kind.y, low=bottom),
        (Panel("", 0, 0, tuple(marks), empty="not published"),),
        _series(groups),
        tuple(legend),
    )


def loss(groups: Groups) -> Specification:
    """Loss over packet rate, all repeats, one line for each configuration apart from its rate."""
    curves = loss_curves(groups)
    axes = axes_of(curves)
    floor = min(axes[1].ticks or {})
    marks, legend = [], []
    for place, curve in enumerate(curves):
        x = np.array([point.rate for point in curve.line], float)
        y = np.array([max(point.loss, floor) for point in curve.line], float)
        marks.append(Mark(place, "line", "main", x, y))
        legend.append(Entry(curve.label, curve.light, "points"))
        for point in sorted(curve.points, key=lambda one: not one.valid):
            told = f"{share_text(point.loss)} lost at {rate_text(point.rate)}"
            told += "" if point.valid else ", invalid"
            at = np.array([point.rate]), np.array([max(point.loss, floor)])
            mark = Mark(place, "dots", "main" if point.valid else "hollow", *at, told=[told])
            marks.append(replace(mark, member=point.member.index))
    if any(mark.role == "hollow" for mark in marks):
        legend.append(Entry("invalid: not what was asked for", BEFORE, "dots", role="hollow"))
    return Specification(
        "loss",
        "Loss against rate",
        *axes,
        (Panel("", 0, 0, tuple(marks)),),
        tuple(Series(curve.label, curve.light, curve.dark) for curve in curves),
        tuple(legend),
        rulers={HEAVY_LOSS: share_text(HEAVY_LOSS)},
    )


def losses(groups: Groups) -> Specification:
    """The losses over time, of configurations that lost packets."""

    def traces(member: Member) -> list[Trace]:
        time, packets = bursts(member.evaluation)
        return [Trace(time, packets.astype(float))]

    found = lossy(groups)
    steps = ticks(found)
    made = _panelled("losses", found, "dots", traces, common="y", until=_duration)
    places = [groups.index(group) for group in found]
    panels = [replace(one, place=at) for one, at in zip(made.panels, places, strict=True)]
    labels = {float(step): count_text(step) for step in steps}
    y = replace(made.y, high=2.0 * steps[-1], ticks=labels)
    return replace(made, panels=tuple(panels), y=y)


def gaps(groups: Groups) -> Specification:
    """Inter-packet gaps before and after the device."""
    every = (member.evaluation.gaps(side) for _, member in _members(groups)
             for side in ("ingress", "egress"))  # fmt: skip
    bins = bins_per_decade(every)
    return _panelled("gaps", groups, "line", lambda member: _traces("gaps", member, bins))


def latency(groups: Groups) -> Specification:
    """How often each latency occurred."""
    bins = bins_per_decade(member.evaluation.histogram() for _, member in _members(groups))
    return _panelled("latency", groups, "line", lambda member: _traces("latency", member, bins))


def rates(groups: Groups) -> Specification:
    """Packets in each second before and after the device."""

    def traces(member: Member) -> list[Trace]:
        return [replace(one, y=one.y / 1000) for one in _traces("rates", member)]

    made = _panelled("rates", groups, "line", traces, common="", until=_duration)
    return replace(made, y=Axis("Packet rate (kpkt/s)", NUMBER))


FIGURES: Mapping[str, Callable[[Groups], Specification]] = {
    "hdr": hdr,
    "worst": lambda groups: _panelled("worst", groups, "dots", common="y", until=_duration),
    "losses": losses,
    "gaps": gaps,
    "rates": rates,
    "latency": latency,
    "loss": loss,
}
"""The figures by name."""


def of_evaluation(evaluation: Evaluation, name: str) -> Specification:
    """The figure `name` of one evaluation that stands for itself.

    Raises `InputError` when there is no figure of that name.
    """
    names = [known for known in FIGURES if known != "loss"]
    if name not in names:
        raise InputError(f"'{name}' is no figure: give one of {', '.join(names)}")
    label = " → ".join(Path(side.path).name for side in evaluation.inputs.both)
    groups = configurations(experiment_of(evaluation, label))
    if name == "losses" and not lossy(groups):
        raise InputError(f"'{name}': no packet was lost, or the lost ones are not recorded")
    return FIGURES[name](groups)


def _panelled(
    name: str,
    groups: Groups,
    form: Form,
    traces: Callable[[Member], list[Trace]] | None = None,
    *,
    common: str = "xy",
    until: Callable[[Configuration], float] | None = None,
) -> Specification:
    """A panel for each configuration; `until` says where its own axis of time ends."""
    kind, panels = KINDS[name], []
    for place, (group, at) in enumerate(zip(groups, in_rows(len(groups)), strict=True)):
        marks: list[Mark] = []
        for member in group.members if group.shows(name) else ():
            found = _traces(name, member) if traces is None else traces(member)
            marks += _marks(place, member, name, form, found)
            if form == "dots" and (spans := moments(member.run)):
                x = np.array(spans, float).ravel()
                marks.append(Mark(place, "span", "main", x, np.resize([0.0, 1.0], x.size)))
        x_axis = replace(kind.x, low=0.0, high=1.01 * until(group)) if until else None
        panels.append(Panel(group.title, *at, tuple(marks), place, x_axis, empty="not published"))
    return Specification(
        name, kind.title, kind.x, kind.y, tuple(panels), _series(groups), common=common
    )


def _marks(
    place: int, member: Member, name: str, form: Form, traces: Sequence[Trace]
) -> Iterator[Mark]:
    for trace in traces:
        mark = Mark(place, form, "before" if trace.before else "main", trace.x, trace.y,
                    trace.low, trace.high, supported=trace.supported,
                    run=member.run.slug, member=member.index, dash=member.dash)  # fmt: skip
        yield mark
        if trace.before and name == "gaps":
            yield replace(mark, form="area", low=np.full(trace.x.size, FLOOR), high=trace.y)


def _traces(name: str, member: Member, bins: int = 1) -> list[Trace]:
    made = KINDS[name].curves
    assert made is not None
    return made(member.evaluation, bins)


def _members(groups: Groups) -> Iterator[tuple[int, Member]]:
    return ((place, member) for place, group in enumerate(groups) for member in group.members)


def _series(groups: Groups) -> tuple[Series, ...]:
    return tuple(
        Series(one.title, one.light, one.dark, thin=one.origin is not None) for one in groups
    )


def _duration(group: Configuration) -> float:
    return max(member.evaluation.duration for member in group.members)


def lossy(groups: Groups) -> list[Configuration]:
    """Those of which it is known which packets were lost."""
    return [group for group in groups if group.shows("losses")]


def bursts(evaluation: Latencies) -> tuple[Floats, Integers]:
    """When bursts of losses began, in s, and how many packets they have; one of those that
    coincide."""
    time, packets = evaluation.bursts
    across = (time * (STEPS / evaluation.duration)).astype(np.int64)
    up = (np.log10(packets) * STEPS_PER_DECADE).astype(np.int64)
    places = across * (1 << 16) + up
    chosen = np.sort(np.unique(places, return_index=True)[1])
    return time[chosen], packets[chosen]


def ticks(groups: Groups) -> list[int]:
    """Numbers of lost packets to label: up to the first above the longest burst of all."""
    most = max(int(m.evaluation.bursts[1].max(initial=5)) for g in groups for m in g.members)
    steps = (1, 2, 5) if most < 1000 else (1,)
    every = [step * 10**decade for decade in range(len(str(most)) + 1) for step in steps]
    return [tick for tick in every if tick < most] + [next(t for t in every if t >= most)]


def cut_short(groups: Groups) -> str:
    """The sentence about runs that lost more packets than are kept; empty without any."""
    names = [
        member.label
        for group in lossy(groups)
        for member in group.members
        if member.evaluation.shows("losses")
        and member.evaluation.counted.get("lost", 0) > KEPT_LOSSES
    ]
    if not names:
        return ""
    return f"Of {', '.join(names)} only the first {KEPT_LOSSES:,} lost packets are shown."
