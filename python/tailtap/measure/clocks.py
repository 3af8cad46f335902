"""The clock of the DuT's guest against that of the stamps, as a fact of the run."""

from __future__ import annotations

from pathlib import Path

from tailtap.lab.instruments.observing import Warning
from tailtap.records.errors import InputError
from tailtap.records.record import Anything, as_json


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
