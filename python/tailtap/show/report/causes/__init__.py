"""Why packets were late, in the report: tables, figures, and timelines around late packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from tailtap.analysis.causes.remedies import proven_words
from tailtap.analysis.causes.stored import Causes, Shares, causes_of, shares
from tailtap.analysis.causes.trace import has_trace
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
from tailtap.analysis.runs.groups import Colour, Configuration, Member
from tailtap.analysis.runs.text import count_text, percent_text, share_text
from tailtap.base.errors import InputError
from tailtap.records.causes import CausesRecord
from tailtap.show import sections
from tailtap.show.report.causes.timeline import PACKETS, timeline
from tailtap.show.report.screen import Model, Screen
from tailtap.show.report.tables import mark_of
from tailtap.show.sections import Section
from tailtap.show.sections.causes import causes_section, estimate

COLOURS: dict[str, Colour] = {
    "timer": Colour("#1f6fb2", "#5aa9ea"),
    "reschedule-ipi": Colour("#4f9bd9", "#8cc6f0"),
    "function-call-ipi": Colour("#00868f", "#3cc4cc"),
    "tlb-flush": Colour("#4455c7", "#8f9cff"),
    "device-interrupt": Colour("#123f73", "#b9d6f5"),
    "softirq": Colour("#00805a", "#2fc9a0"),
    "foreign-net-rx": Colour("#5f9e2f", "#a5d86c"),
    "kernel-thread": Colour("#d9650b", "#ff9a52"),
    "task": Colour("#c1272d", "#ff7a75"),
    "waiting": Colour("#b08900", "#e8c245"),
    "throttled": Colour("#7d5a00", "#c9a35a"),
    "idle-exit": Colour("#d1ab2a", "#f5de85"),
    "page-fault": Colour("#9a4f2c", "#e0a07e"),
    "frequency": Colour("#8a7f3a", "#cfc58a"),
    "steal": Colour("#8e3a9d", "#d892e6"),
    "gap": Colour("#b8377e", "#f28dc0"),
    "nmi": Colour("#5b2a86", "#b794e0"),
    "own-work": Colour("#5d7183", "#a8bac9"),
    "link": Colour("#3f7f7f", "#86c5c5"),
    "behind": Colour("#8798a8", "#788a9b"),
    "mixed": Colour("#8c8578", "#b3ac9f"),
    "unexplained": Colour("#b9bec3", "#5d666e"),
    "serving": Colour("#c9d8e4", "#3f5365"),
    "idle": Colour("#f0f2f4", "#20272d"),
    "unseen": Colour("#dcdcdc", "#454545"),
}
"""By the names of `CAUSES`, and of what a core does when nothing is wrong. Interrupts are
blue, other work of the kernel green, whoever takes the core orange and red, waiting yellow, what is
outside the kernel's reach purple, and what is no cause grey."""
TASKS = (
    COLOURS["task"],
    Colour("#e0562b", "#ff9d7a"),
    Colour("#8f1238", "#e0668c"),
    Colour("#b3592d", "#e3a681"),
    Colour("#d6336c", "#ff8fb5"),
    Colour("#6b1f1f", "#c98282"),
)
"""What tasks of a timeline have, one after the other: red, as all of them."""


@dataclass(frozen=True)
class Story:
    """A traced run of the report: why its packets were late, or why nobody can say."""

    place: int
    """Its configuration, by its place among those that are drawn."""
    group: Configuration
    member: Member
    causes: Causes | None
    failure: str
    drawn: bool
    """Whether figures show it: of each configuration the worst valid repeat that has causes."""


def stories(
    groups: Sequence[Configuration],
    progress: Callable[[str], None] = lambda _: None,
) -> list[Story]:
    """The traced runs of some configurations, in their order.

    What `tailtap explain` has not stored is found out now. A trace that
    cannot be used is no reason not to report the rest.
    """
    found = []
    for place, group in enumerate(groups):
        told: list[tuple[Member, Causes | None, str]] = []
        for member in group.members:
            if member.run.origin is None and has_trace(member.run):
                progress(f"why packets of {member.run.slug} were late")
                told.append((member, *_causes(member)))
        usable = [member for member, causes, _ in told if causes is not None]
        chosen = group.example(usable)
        found += [
            Story(place, group, member, causes, failure, member is chosen)
            for member, causes, failure in told
        ]
    return found


def _causes(member: Member) -> tuple[Causes | None, str]:
    try:
        causes = causes_of(member.run)
        _ = causes.events, causes.guest_events  # a trace that cannot be read is found out here
    except InputError as error:
        return None, str(error)
    return causes, ""


def used(stories: Sequence[Story]) -> dict[str, Colour]:
    """The causes that figures show, with their colours, those of most late packets first."""
    counts: Counter[str] = Counter()
    for story in stories:
        if story.causes is not None and story.drawn:
            counts.update(story.causes.late["blamed"].to_pylist())
            # A part may be of a packet with another cause.
            counts.update(dict.fromkeys(shares(story.causes).by_cause, 0))
    ordered = sorted(counts, key=lambda cause: (cause == "unexplained", -counts[cause]))
    return {cause: COLOURS[cause] for cause in ordered}


@dataclass(frozen=True)
class RunCauses:
    """What the page says of one run."""

    story: Story
    record: CausesRecord
    section: Section
    proven: str
    """Which remedies were shown to help, and by how much; nothing without any."""
    estimate: str
    """What would be left of the tail without the causes that candidates answer."""


@dataclass(frozen=True)
class CausesSection:
    """What the template needs; without traced runs nothing is in it."""

    runs: list[RunCauses]
    failures: list[tuple[str, str]]
    """Runs whose trace cannot be used, and why."""
    colours: dict[str, Colour]
    timelines: dict[int, Any]
    """What lies around the worst packets, by the run's number on the page."""
    states: dict[str, Colour]
    """The colours of what cores did."""
    packets: dict[int, list[str]]
    """By configuration, the packets whose surroundings can be looked at."""

    @property
    def payload(self) -> dict[str, Any]:
        """What the page's script needs."""
        if not self.timelines:
            return {}
        both = {**COLOURS, **self.states}
        colours = {name: colour._asdict() for name, colour in both.items()}
        return {"causes": colours, "timelines": self.timelines}

    def of(self, group: Configuration) -> CausesRecord | None:
        """Why packets of the repeat that figures show of a configuration were late."""
        stories = ((run.story, run.record) for run in self.runs)
        return next((one for story, one in stories if story.drawn and story.group is group), None)


def _states(lines: Iterable[Any]) -> dict[str, Colour]:
    """What cores did in some timelines, the server first."""
    found = {
        line["texts"][cause]
        for line in lines
        for window in line["windows"]
        for cause in window["slices"]["cause"]
    }
    order = ["serving", "idle", *COLOURS]
    known = {name: COLOURS[name] for name in dict.fromkeys(order) if name in found}
    return known | dict(zip(sorted(found - known.keys()), cycle(TASKS)))


def _run(story: Story, record: CausesRecord) -> RunCauses:
    marks = {name: sections.Mark(*colour) for name, colour in COLOURS.items()}
    return RunCauses(
        story,
        record,
        causes_section(record, story.member.label, marks, mark_of(story.group), flows=False),
        proven_words(record.remove.proven),
        estimate(record.remove),
    )


def causes_shown(stories: Sequence[Story]) -> CausesSection:
    """The causes_shown about some traced runs."""
    lines = {
        story.member.index: timeline(story.causes)
        for story in stories
        if story.drawn and story.causes is not None
    }
    return CausesSection(
        [_run(story, story.causes.record) for story in stories if story.causes is not None],
        [(story.member.label, story.failure) for story in stories if story.causes is None],
        used(stories),
        lines,
        _states(lines.values()),
        {story.place: [packet["title"] for packet in lines[story.member.index]["packets"]]
         for story in stories if story.member.index in lines},
    )  # fmt: skip


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
