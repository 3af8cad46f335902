"""Whether events blocked the device for longer than is allowed."""

from __future__ import annotations

from collections.abc import Sequence

from tailtap.analysis.verdict.evidence import Evidence
from tailtap.analysis.verdict.requirement import Requirement
from tailtap.base.units import format_time
from tailtap.records.run import Blocked, Event
from tailtap.records.verdict import Answer

ANY = "event"
"""Stands for all events, whatever they are called."""


def events_of(requirement: Requirement, run: Evidence) -> Sequence[Event]:
    """The events that a requirement is about."""
    return [event for event in run.events if requirement.of in (ANY, event.name)]


def judged(requirement: Requirement, events: Sequence[Event]) -> tuple[Answer, str, str]:
    """The answer, why, and what was measured, of one event or more: the longest block counts."""
    failed = next((event for event in events if event.status != 0), None)
    blocks = [event.blocked for event in events if event.blocked is not None]
    longest = max(
        blocks, key=lambda one: (one.most_ns is None, one.most_ns or 0, one.least_ns), default=None
    )
    surely = max(blocks, key=lambda one: one.least_ns, default=None)
    measured = "0 s" if longest is None else span(longest)
    limit = int(requirement.limit) - (1 if requirement.strict else 0)
    if surely is not None and surely.least_ns > limit:
        return "violated", f"nothing came out for {span(surely)}", measured
    if failed is not None:
        return "not shown", f"the event {failed.name} did not succeed", measured
    if longest is not None and (longest.most_ns is None or longest.most_ns > limit):
        return "not shown", f"nothing came out for {measured}, as far as packets tell", measured
    many = "the event" if len(events) == 1 else f"{len(events)} events"
    return "holds", f"around {many} nothing came out for {measured} at most", measured


def span(block: Blocked) -> str:
    """How long a block lasted, and within which bounds that is known."""
    if block.ns is None or block.most_ns is None:
        return f"{format_time(block.least_ns)} or more (nothing came out any more)"
    low, high = format_time(block.least_ns), format_time(block.most_ns)
    return f"{format_time(block.ns)} ({low} to {high})"
