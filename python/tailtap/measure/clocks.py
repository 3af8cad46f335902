"""What the DuT's guest or its host told by another clock than that of the stamps."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tailtap.base.errors import InputError
from tailtap.lab.instruments.observing import Warning
from tailtap.records.record import Anything, as_json
from tailtap.records.run import Found


def guest_clock_of(folder: Path, trace: Anything | None) -> tuple[Anything | None, list[Warning]]:
    """`trace_guest` with its `alignment`, where there is a trace of a guest; or why it has none."""
    if trace is None:
        return None, []
    from tailtap.analysis.clocks.guest import guest_clock  # `--check` needs no arrays

    try:
        clock = guest_clock(folder)
    except InputError as error:
        message = f"the guest's clock is not known: {error}; only the host's part can be told"
        return trace, [{"code": "guest-clock", "message": message}]
    return {**trace, "alignment": as_json(clock.record())}, []


def with_events_by_stamps(found: Found) -> tuple[Found, list[Warning]]:
    """`events` by the clock of the stamps; or none of them, and why, where nobody knows that."""
    if not found.events:
        return found, []
    from tailtap.analysis.clocks.host import events_by_stamps, host_clock  # as above

    try:
        clock = host_clock(found, "the events")
    except InputError as error:
        return replace(found, events=[]), [{"code": "event-failed", "message": str(error)}]
    if clock is None:
        return found, []
    return replace(found, events=events_by_stamps(found.events, clock)), []
