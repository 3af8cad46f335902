"""The clock of the DuT's guest against that of the stamps, as a fact of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailtap.lab.instruments.observing import Reading
from tailtap.records.errors import InputError
from tailtap.records.record import as_json


def guest_clock_of(folder: Path, trace: Mapping[str, Any] | None) -> Reading:
    """`trace_guest` with its `alignment`, where there is a trace of a guest; or why it has none."""
    if trace is None:
        return Reading()
    from tailtap.analysis.clocks.guest import guest_clock  # `--check` needs no arrays

    try:
        clock = guest_clock(folder)
    except InputError as error:
        message = f"the guest's clock is not known: {error}; only the host's part can be told"
        return Reading({}, [{"code": "guest-clock", "message": message}])
    return Reading({"trace_guest": {**trace, "alignment": as_json(clock.record())}})
