"""The figures of causes: late packets over time, what makes each percentile, and the timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tailtap.analysis.causes.stored import Causes, Shares, shares
from tailtap.analysis.figures.curves import tick_label, ticks_between
from tailtap.analysis.figures.kinds import KINDS, Axis
from tailtap.analysis.figures.quantities import CATEGORY, RATIO, TAIL, TIME
from tailtap.analysis.figures.specification import (
    Entry,
    Mark,
    Panel,
    Series,
    Specification,
    in_rows,
)
from tailtap.analysis.runs.groups import Member
from tailtap.analysis.runs.text import count_text, percent_text, share_text
from tailtap.show.report.causes import COLOURS, Story, used
from tailtap.show.report.causes.timeline import PACKETS
from tailtap.show.report.screen import Model, Screen

MOST_DOTS = 5_000
"""Late packets of a run that the figure shows, the worst first."""
LANE_PX, PACKETS_LANES = 30, 3
"""The height of a lane, and in such heights that of the late packets."""


def cause_figures(stories: Sequence[Story]) -> list[Specification]:
    """The figures of the runs that are drawn; none without such runs."""
    told = [(one, one.causes) for one in stories if one.drawn and one.causes is not None]
    if not told:
        return []
    names = list(used(stories))
    series = tuple(Series(name, *COLOURS[name]) for name in names)
    legend = tuple(Entry(name, COLOURS[name].light, "dots") for name in names)
    worst = KINDS["worst"]
    axes = {
        "causes": (worst.x, worst.y),
        "shares": (
            Axis("Percentile", TAIL, log=True),
            Axis("Share of the delay above it", RATIO, low=0, high=1,
                 ticks={part / 5: share_text(part / 5) for part in range(6)}),
        ),
    }  # fmt: skip
    panels: dict[str, list[Panel]] = {name: [] for name in axes}
    for (story, causes), at in zip(told, in_rows(len(told)), strict=True):
        x = replace(worst.x, low=0.0, high=1.01 * story.member.evaluation.duration)
        marks = tuple(_dots(causes, story.member, names))
        panels["causes"].append(Panel(story.group.title, *at, marks, story.place, x))
        found = shares(causes)
        edges = edges_of(found)
        labels = {x: tick_label(x) for x in ticks_between(float(edges[0]), float(edges[-1]))}
        x = replace(axes["shares"][0], low=edges[0], high=edges[-1], ticks=labels)
        marks = tuple(_bars(found, edges, story.member, names))
        panels["shares"].append(Panel(story.group.title, *at, marks, story.place, x))
    titles = {"causes": "Late packets by cause", "shares": "What makes each percentile"}
    return [
        Specification(
            name, titles[name], *axes[name], tuple(panels[name]), series, legend, common=""
        )
        for name in axes
    ]


def _dots(causes: Causes, member: Member, names: Sequence[str]) -> Iterator[Mark]:
    """For each cause, the worst late packets that are due to it."""
    ingress, latency = (causes.column("late", name) for name in ("ingress_ns", "latency_ns"))
    first = causes.run.stored.inputs.ingress.first_ns
    kept = np.sort(np.argsort(-latency, kind="stable")[:MOST_DOTS])
    columns = [causes.late[name].to_pylist() for name in ("blamed", "detail", "state")]
    found: dict[str, list[tuple[float, int, str]]] = {}
    for at in kept.tolist():
        blamed, detail, state = (column[at] for column in columns)
        told = f"{blamed}: {detail}" if detail else blamed
        told += " (behind a stall)" if state == "behind" else ""
        point = ((int(ingress[at]) - first) / 1e9, int(latency[at]), told)
        found.setdefault(blamed, []).append(point)
    for cause, points in sorted(found.items(), key=lambda item: -len(item[1])):
        x, y, told_of = zip(*points, strict=True)
        yield Mark(names.index(cause), "dots", "main", np.array(x, float), np.array(y, float),
                   member=member.index, told=told_of)  # fmt: skip


def edges_of(found: Shares) -> Any:
    """Where the bars of percentiles begin, as x = 1/(1-p), and where the last one ends: it is as
    wide as the others on a logarithmic axis."""
    x = 1 / (1 - found.p)
    step = (x[-1] / x[0]) ** (1 / (x.size - 1)) if x.size > 1 else 1.5
    return np.append(x, x[-1] * step)


def _bars(found: Shares, edges: Any, member: Member, names: Sequence[str]) -> Iterator[Mark]:
    """Bars over the percentile: each tells of the packets above the percentile where it begins."""
    base = np.zeros(edges.size - 1)
    for cause, share in found.by_cause.items():
        told = [
            f"{share_text(float(part))} of the delay of the {count_text(above)} packets above "
            f"{percent_text(float(p))}"
            for part, above, p in zip(share, found.above.tolist(), found.p, strict=True)
        ]
        top = base + share
        yield Mark(names.index(cause), "boxes", "main", edges[:-1], top, base, top, edges[1:],
                   member=member.index, told=told)  # fmt: skip
        base = top


def timeline_plot(screen: Screen, lanes: Sequence[str], member: Member) -> Model:
    """Lanes without anything in them: the page's script puts in what lies around a packet."""
    middles = lane_middles(lanes)
    height = sum(PACKETS_LANES if lane == PACKETS else 1 for lane in lanes)
    axes = (
        Axis("Time since the packet came to the device", TIME, low=0, high=1),
        Axis("", CATEGORY, low=-height, high=0, ticks=dict(zip(middles, lanes, strict=True))),
    )
    boxes = ("left", "right", "bottom", "top", "colour", "alpha", "name", "told")
    texts = ("x", "y", "text", "colour")

    def empty(role: str, glyph: str, names: Sequence[str], *more: Any, **looks: Any) -> Model:
        columns: Mapping[str, Any] = {name: [] for name in names}
        tag = {"run": member.index, "role": role}
        return screen.renderer(tag, glyph, columns, *more, **looks)

    colours = {"fill_color": "colour", "fill_alpha": "alpha"}
    slices = empty("slices", "Quad", boxes, colours, line_color=None)
    labels = empty("labels", "Text", texts, {"text": "text", "text_color": "colour"},
                   text_font_size="11px", text_baseline="middle")  # fmt: skip
    stay = screen.model("BoxAnnotation", left=0, right=0, line_width=1.5, fill_alpha=0.1,
                        tags=["stay"], level="underlay")  # fmt: skip
    hover = screen.model("HoverTool", renderers=[slices], limit=2, tags=["timeline"])
    ranges = [screen.model("Range1d", start=axis.low, end=axis.high) for axis in axes]
    return screen.plot(
        axes, ranges, [slices, labels], LANE_PX * height + 60, [stay], [hover], "width"
    )


def lane_middles(lanes: Sequence[str]) -> list[float]:
    """The middle of each lane, from the top (0) down."""
    middles, at = [], 0.0
    for lane in lanes:
        height = PACKETS_LANES if lane == PACKETS else 1
        middles.append(at - height / 2)
        at -= height
    return middles
