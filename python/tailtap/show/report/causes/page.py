"""The section of the page about causes: its tables, its figures, and the data of its timelines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tailtap.analysis.causes.remedies import proven_words
from tailtap.analysis.runs.groups import Colour
from tailtap.analysis.runs.run import Run
from tailtap.analysis.runs.text import with_micro_sign
from tailtap.records.causes import CausesRecord
from tailtap.show import sections
from tailtap.show.report.causes import COLOURS, Story, used
from tailtap.show.report.causes.timeline import timeline
from tailtap.show.report.tables import mark_of
from tailtap.show.sections import Mark
from tailtap.show.sections.causes import causes_section, estimate


@dataclass(frozen=True)
class RunCauses:
    """What the page says of one run."""

    story: Story
    record: CausesRecord
    section: sections.Section
    proven: str
    """Which remedies were shown to help, and by how much; nothing without any."""
    estimate: str
    """What would be left of the tail without the causes that candidates answer."""


@dataclass(frozen=True)
class Section:
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
        colours = {name: colour._asdict() for name, colour in COLOURS.items()}
        return {"causes": colours, "timelines": self.timelines}

    @property
    def advised(self) -> dict[str, list[Run]]:
        """What to type for candidate remedies of late packets, and the runs that each is for."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            for line in run.record.remove.lines:
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


def _run(story: Story, record: CausesRecord) -> RunCauses:
    marks = {name: Mark(*colour) for name, colour in COLOURS.items()}
    return RunCauses(
        story,
        record,
        causes_section(record, story.member.label, marks, mark_of(story.group)),
        with_micro_sign(proven_words(record.remove.proven)),
        with_micro_sign(estimate(record.remove)),
    )


def section(stories: Sequence[Story]) -> Section:
    """The section about some traced runs."""
    lines = {
        story.member.index: timeline(story.causes)
        for story in stories
        if story.drawn and story.causes is not None
    }
    return Section(
        [_run(story, story.causes.record) for story in stories if story.causes is not None],
        [(story.member.label, story.failure) for story in stories if story.causes is None],
        used(stories),
        lines,
        _states(lines.values()),
        {story.place: [packet["title"] for packet in lines[story.member.index]["packets"]]
         for story in stories if story.member.index in lines},
    )  # fmt: skip
