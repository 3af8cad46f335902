"""What the guest's kernel did on the DuT's virtual CPUs, by `tailtap trace` in the guest.

Its clock is not this machine's. So packets are stamped in the guest as well, where they come in and
where they go out, by `tailtap tap`: packets that passed both clocks bound their difference
(`tailtap.analysis.clocks.host`). Whatever does not work in a guest costs this part of the trace
and a warning, never the run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tailtap.base.errors import MachineError
from tailtap.lab.instruments.observing import Guest, Quiet, Reading, Scope, Tracing
from tailtap.lab.instruments.taps.inline import QUIET_SHARE
from tailtap.lab.instruments.taps.kinds import STAMP_BYTES
from tailtap.lab.instruments.tracer import (
    EVENTS,
    RECORD,
    RECORD_BYTES,
    SPARE,
    ended,
    records_of,
    warnings_of,
)
from tailtap.records.record import Notice, as_json
from tailtap.records.run import Facts
from tailtap.records.trace import Taken

FILES = {EVENTS: "trace-guest.events", RECORD: "trace-guest.json"}
"""What the tracer's files are called in the run folder."""
FOLDER = Path("/run")
"""Where they are in the guest, in its memory; it is there before either program starts."""
HOUSEKEEPING = 0
"""The guest's CPU that serves no packets: the tracer and the taps work there."""
READY_SECONDS = 30.0
STOP_SECONDS = 30.0
"""How long starting and ending may take where the CPU is not emulated."""
SHARE = 8
"""The tracer may have so much of the guest's memory for its rings: an eighth; the taps as much."""


def trace_guest(scope: Scope) -> InGuest | Untraced | None:
    """A tracer and two taps in the virtual machine."""
    if scope.guest is None or scope.tracing is None:
        return None
    try:
        return InGuest(scope.guest, scope.tracing)
    except MachineError as error:
        return Untraced(str(error))


class Untraced(Quiet):
    """A guest that cannot be traced."""

    def __init__(self, reason: str) -> None:
        """`reason` is a sentence without its end."""
        self._reason = reason

    def stop(self) -> Reading:
        return Reading(warnings=[_untraced(self._reason)])


class InGuest(Quiet):
    """A tracer and its taps at work. Their end is no trouble of the run."""

    def __init__(self, guest: Guest, tracing: Tracing) -> None:
        """Returns when all programs are attached. Raises `MachineError`."""
        self._guest, self._tracing = guest, tracing
        commands = (_trace_command(guest, tracing), _tap_command(guest, tracing))
        with contextlib.ExitStack() as stack:
            both = [guest.host.start([*guest.host.program, *words]) for words in commands]
            for process in both:
                stack.callback(process.close)
            for process in both:
                process.expect("ready", READY_SECONDS * guest.patience)
            self._trace, self._taps = both
            self._stack = stack.pop_all()

    def stop(self) -> Reading:
        folder = self._tracing.folder
        try:
            self._trace.interrupt()
            self._taps.interrupt()
            limit = STOP_SECONDS * self._guest.patience
            trace = ended(self._trace, limit)
            taps = self._taps.expect("done", limit)["links"]
        except MachineError as error:
            return Reading(warnings=[_untraced(str(error))], files=tuple(self._fetched(folder)))
        finally:
            self.close()
        files = tuple(self._fetched(folder))
        facts = Facts(trace_guest={**as_json(trace), "taps": _counts(taps)})
        return Reading(facts, tuple(self._warnings(trace, files)), files)

    def close(self) -> None:
        self._stack.close()

    def _fetched(self, folder: Path) -> Iterator[str]:
        """Fetch what there is; the names in the run folder."""
        names = {**FILES, **{name: name for name in _stamps()}}
        for name, here in names.items():
            # Of a trace that was cut off some are not there.
            with contextlib.suppress(MachineError):
                self._guest.host.get(FOLDER / name, folder / here)
                yield here

    def _warnings(self, trace: Taken, files: tuple[str, ...]) -> Iterator[Notice]:
        yield from warnings_of(trace, "the guest's trace")
        missing = sorted({*FILES.values(), *_stamps()} - set(files))
        if missing:
            yield _untraced(f"{', '.join(missing)} could not be fetched from it")


def _stamps() -> tuple[str, ...]:
    """The files of the guest's taps. NumPy, which reads them, is not there on every station."""
    from tailtap.analysis.clocks.host import FILES as stamps

    return stamps


def _trace_command(guest: Guest, tracing: Tracing) -> list[str]:
    wanted = records_of(tracing.packets, tracing.mode)
    room = _room(wanted, guest.memory // len(guest.cpus), RECORD_BYTES)
    command = ["trace", "--cpus", ",".join(map(str, guest.cpus)), "--out", str(FOLDER)]
    command += ["--mode", tracing.mode, "--records", str(room), "--flush", "0 s"]
    if guest.served.by == "softirq" or guest.served.pids:
        command += ["--served", str(guest.served)]
    return [*command, "--cpu", str(HOUSEKEEPING), "--json"]


def _tap_command(guest: Guest, tracing: Tracing) -> list[str]:
    came, left = guest.ports
    room = _room(tracing.packets * QUIET_SHARE + SPARE, guest.memory // 2, STAMP_BYTES)
    command = ["tap", f"guest-ingress={came}", f"guest-egress={left}@egress", "--key", guest.key]
    command += ["--write", str(FOLDER / "{link}.stamps"), "--records", str(room), "--flush", "0 s"]
    return [*command, "--cpu", str(HOUSEKEEPING), "--json"]


def _room(wanted: int, memory: int, size: int) -> int:
    """A power of two: as much as is wanted, or as there is memory for."""
    return 1 << min((wanted - 1).bit_length(), (memory // SHARE // size).bit_length() - 1)


def _counts(taps: dict[str, Any]) -> dict[str, Any]:
    names = ("seen", "stored", "lost", "other", "late", "dropped")
    return {
        link: {name: said[name] for name in names if name in said} for link, said in taps.items()
    }


def _untraced(reason: str) -> Notice:
    return Notice(
        "guest-untraced",
        "late packets are explained on the host alone: the guest's kernel is not "
        f"traced ({reason})",
    )
