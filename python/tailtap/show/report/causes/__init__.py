"""Why packets were late, in the report: tables, figures, and timelines around late packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.stored import Causes, causes_of, shares
from tailtap.analysis.causes.trace import has_trace
from tailtap.analysis.runs.groups import Configuration, Member
from tailtap.base.errors import InputError
from tailtap.show.report.causes.palette import COLOURS, Colour


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
    knobs: Sequence[Knob] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Story]:
    """The traced runs of some configurations, in their order.

    What `tailtap explain` has not stored is found out now, with `knobs` as remedies. A trace that
    cannot be used is no reason not to report the rest.
    """
    found = []
    for place, group in enumerate(groups):
        told: list[tuple[Member, Causes | None, str]] = []
        for member in group.members:
            if member.run.origin is None and has_trace(member.run):
                progress(f"why packets of {member.run.slug} were late")
                told.append((member, *_causes(member, knobs)))
        usable = [member for member, causes, _ in told if causes is not None]
        chosen = group.example(usable)
        found += [
            Story(place, group, member, causes, failure, member is chosen)
            for member, causes, failure in told
        ]
    return found


def _causes(member: Member, knobs: Sequence[Knob]) -> tuple[Causes | None, str]:
    try:
        causes = causes_of(member.run, knobs)
        _ = causes.events, causes.guest_events  # a trace that cannot be read is found out here
    except InputError as error:
        return None, str(error)
    return causes, ""


def used(stories: Sequence[Story]) -> dict[str, Colour]:
    """The causes that figures show, with their colours, those of most late packets first."""
    counts: dict[str, int] = {}
    for story in stories:
        if story.causes is not None and story.drawn:
            for cause in story.causes.late["blamed"].to_pylist():
                counts[cause] = counts.get(cause, 0) + 1
            for part in shares(story.causes).by_cause:  # of a packet with another cause, say
                counts.setdefault(part, 0)
    ordered = sorted(counts, key=lambda cause: (cause == "unexplained", -counts[cause]))
    return {cause: COLOURS[cause] for cause in ordered}
