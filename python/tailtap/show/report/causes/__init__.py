"""Why packets were late, in the report: tables, figures, and timelines around late packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailtap.analysis.causes.remedies import Knob
from tailtap.analysis.causes.stored import Causes, causes_of, shares
from tailtap.analysis.causes.trace import has_trace
from tailtap.analysis.runs.groups import Colour, Configuration, Member
from tailtap.base.errors import InputError

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
"""By the names of `taxonomy.CAUSES`, and of what a core does when nothing is wrong. Interrupts are
blue, other work of the kernel green, whoever takes the core orange and red, waiting yellow, what is
outside the kernel's reach purple, and what is no cause grey."""


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
