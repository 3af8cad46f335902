"""The section of the page about causes: its tables, its figures, and the data of its timelines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tailtap.analysis.runs.run import Run
from tailtap.show.report.causes import Story
from tailtap.show.report.causes.interactive import Figure, figures
from tailtap.show.report.causes.palette import COLOURS, Colour
from tailtap.show.report.causes.tables import HEADS, RunCauses, run_causes, used
from tailtap.show.report.causes.timeline import timeline


@dataclass(frozen=True)
class Section:
    """What the template needs; without traced runs nothing is in it."""

    runs: list[RunCauses]
    failures: list[tuple[str, str]]
    """Runs whose trace cannot be used, and why."""
    heads: tuple[tuple[str, str], ...]
    colours: dict[str, Colour]
    figures: list[Figure]
    payload: dict[str, Any]
    states: dict[str, Colour]
    """The colours of what cores did."""
    packets: dict[int, list[str]]
    """By configuration, the packets whose surroundings can be looked at."""

    @property
    def advised(self) -> dict[str, list[Run]]:
        """What to type for candidate remedies of late packets, and the runs that each is for."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            for line in run.lines:
                found.setdefault(line, []).append(run.story.member.run)
        return found


def _states(lines: Iterable[Any]) -> dict[str, Colour]:
    """What cores did in some timelines, the server first."""
    found = {
        line["texts"][cause]
        for line in lines
        for window in line["windows"]
        for cause in window["slices"]["cause"]
    }
    order = ["serving", "idle", *COLOURS]
    return {name: COLOURS[name] for name in dict.fromkeys(order) if name in found}


def section(stories: Sequence[Story]) -> Section:
    """The section about some traced runs."""
    lines = {
        story.member.index: timeline(story.causes)
        for story in stories
        if story.drawn and story.causes is not None
    }
    return Section(
        run_causes(stories),
        [(story.member.label, story.failure) for story in stories if story.causes is None],
        HEADS,
        used(stories),
        list(figures(stories, lines)),
        {"causes": {name: colour._asdict() for name, colour in COLOURS.items()},
         "timelines": lines} if lines else {},
        _states(lines.values()),
        {story.place: [packet["title"] for packet in lines[story.member.index]["packets"]]
         for story in stories if story.member.index in lines},
    )  # fmt: skip
